"""Losses that pull a caption and its image together: pure functions of a similarity matrix."""

from torch import Tensor

TRIPLET_DIRECTIONS = ("image", "both")


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
