"""Losses that pull a caption, or its tokens, and its image together: pure functions of similarities."""

import torch
from torch import Tensor

TRIPLET_DIRECTIONS = ("image", "both")
TOKEN_IMAGE_NEGATIVES = ("one", "all")


def hardest_negatives(similarity: Tensor, image_rows: Tensor) -> Tensor:
    """For each row of `similarity`, the highest entry in a column that belongs to another image; −inf where none does.

    Shapes:
        similarity: (B, B);  image_rows: (B,) which image row and column b belong to
        returns: (B,)
    """
    same_image = image_rows.unsqueeze(0) == image_rows.unsqueeze(1)  # (B, B)
    return similarity.masked_fill(same_image, float("-inf")).amax(dim=1)


def hardest_negative_triplet_loss(
    similarity: Tensor, image_rows: Tensor, margin: float, direction: str = "image"
) -> Tensor:
    """Triplet loss of every pair of a batch with its hardest negative (VA eq. 1).

        loss(x, y, z) = max(0, alpha - x·y + x·z)

    x -> image, y -> its caption, z -> the caption of another image that is most similar to x, alpha -> `margin`.
    Direction "image" is this equation; "both" adds its mirror (caption x, images y and z), as the reference code does.
    A pair without any negative has loss 0. Deviation: the reference sums over a batch; the criterion divides by its
    number of pairs, as fairseq does with every loss.

    Shapes:
        similarity: (B, B), entry (b, c) = image of pair b · caption of pair c
        image_rows: (B,) equal where two pairs share their image: they aren't each other's negatives
        returns: (B,)

    Raises:
        ValueError: `direction` is neither.
    """
    if direction not in TRIPLET_DIRECTIONS:
        raise ValueError(f"direction should be 'image' or 'both', but is {direction!r}")
    if not len(similarity):
        return similarity.sum(dim=1)  # no pair: an empty loss that still leads back to the parameters
    positive = similarity.diagonal()
    loss = (margin - positive + hardest_negatives(similarity, image_rows)).clamp(min=0)
    if direction == "both":
        loss = loss + (margin - positive + hardest_negatives(similarity.T, image_rows)).clamp(min=0)
    return loss


def other_images(image_rows: Tensor, present: Tensor) -> Tensor:
    """Which images of a batch are negatives of which captions: those of another row that are there.

    Shapes:
        image_rows: (B,) which image each caption has;  present: (B,) whether it is there
        returns: (B, B) bool, entry (b, c) = the image of caption c is a negative of caption b
    """
    return (image_rows.unsqueeze(1) != image_rows.unsqueeze(0)) & present.unsqueeze(0)


def next_other_image(others: Tensor) -> Tensor:
    """One negative for each caption: the batch's halves swap their images, the i-th of one with the i-th of the other.

    So VOK's code draws its random negative: the order of a batch is random. Deviation: there it may be the caption's
    own image, if that has several captions; here it is the next one of the batch, in a circle, that is a negative.

    Shapes:
        others: (B, B) as `other_images` gives it
        returns: (B,) the negative's place in the batch, −1 where there is none
    """
    size = len(others)
    places = torch.arange(size, device=others.device)
    if not size:
        return places
    steps = (places.unsqueeze(0) - places.unsqueeze(1) - size // 2) % size  # (B, B), from the swapped image on
    nearest = steps.masked_fill(~others, size).argmin(dim=1)
    return nearest.masked_fill(~others.any(dim=1), -1)


def token_image_hinge(own: Tensor, others: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Hinge loss of every token of a caption with other images (VOK §3.2).

        Σ_i max(0, M − r(w_i, x; s) + r(w_i, x'; s))

    w_i -> a token, special pieces included, x -> its caption's image, x' -> a negative, M -> `margin`. These are the
    terms of the sum; the criterion takes their mean over tokens, as the paper's code does. Several negatives count by
    their mean, where the paper has one. A sentence vector is a caption's only token.

    Shapes:
        own: (B, T) scores r(w_i, x; s)
        others: (B, T, N) scores r(w_i, x'; s) with N other images
        negatives: (B, N) bool, which of them count
        returns: (B, T), 0 where none does
    """
    terms = (margin - own.unsqueeze(2) + others).clamp(min=0)  # (B, T, N)
    counted = negatives.unsqueeze(1)  # (B, 1, N)
    return terms.masked_fill(~counted, 0.0).sum(dim=2) / counted.sum(dim=2).clamp(min=1)
