"""The losses of VA eq. 1 and VOK §3.2: worked by hand, naive twins, and what may never be a negative."""

import pytest
import torch

from visual_grounding.modules.matching_losses import (
    hardest_negative_triplet_loss,
    next_other_image,
    other_images,
    token_image_hinge,
)

# Three pairs; pairs 0 and 1 are two captions of one image. Entry (b, c): image of pair b, caption of pair c.
SIMILARITY = torch.tensor([[0.5, 0.9, 0.4], [0.5, 0.9, 0.4], [0.1, 0.8, 0.6]])
ROWS = torch.tensor([7, 7, 3])


def naive_loss(similarity: torch.Tensor, rows: torch.Tensor, margin: float, direction: str) -> torch.Tensor:
    losses = []
    for b in range(len(rows)):
        others = [c for c in range(len(rows)) if rows[c] != rows[b]]
        loss = 0.0
        if others:
            loss += max(0.0, margin - float(similarity[b, b]) + max(float(similarity[b, c]) for c in others))
        if others and direction == "both":
            loss += max(0.0, margin - float(similarity[b, b]) + max(float(similarity[c, b]) for c in others))
        losses.append(loss)
    return torch.tensor(losses)


def test_triplet_loss_agrees_with_the_equation_worked_by_hand() -> None:
    # pair 0: its image's other caption (0.9) is no negative, so z is caption 2: max(0, 0.2 - 0.5 + 0.4) = 0.1
    # pair 1: max(0, 0.2 - 0.9 + 0.4) = 0; pair 2: z is caption 1: max(0, 0.2 - 0.6 + 0.8) = 0.4
    torch.testing.assert_close(hardest_negative_triplet_loss(SIMILARITY, ROWS, 0.2), torch.tensor([0.1, 0.0, 0.4]))
    # the mirror: caption 0 against image 2: 0.2 - 0.5 + 0.1 < 0; caption 1: 0.2 - 0.9 + 0.8 = 0.1; caption 2:
    # 0.2 - 0.6 + 0.4 = 0
    both = hardest_negative_triplet_loss(SIMILARITY, ROWS, 0.2, "both")
    torch.testing.assert_close(both, torch.tensor([0.1, 0.1, 0.4]))


@pytest.mark.parametrize("direction", ["image", "both"])
def test_triplet_loss_agrees_with_its_naive_twin(direction: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for size in range(1, 9):
        similarity = torch.rand(size, size, generator=generator) * 2 - 1
        rows = torch.randint(0, 4, (size,), generator=generator)
        loss = hardest_negative_triplet_loss(similarity, rows, 0.3, direction)
        torch.testing.assert_close(loss, naive_loss(similarity, rows, 0.3, direction))


def test_triplet_loss_follows_a_permutation_of_the_pairs() -> None:
    order = torch.tensor([2, 0, 1])
    loss = hardest_negative_triplet_loss(SIMILARITY, ROWS, 0.2, "both")
    permuted = hardest_negative_triplet_loss(SIMILARITY[order][:, order], ROWS[order], 0.2, "both")
    torch.testing.assert_close(permuted, loss[order])


@pytest.mark.parametrize("pairs", [0, 1, 3])
def test_triplet_loss_is_zero_with_finite_gradient_when_no_other_image_is_there(pairs: int) -> None:
    similarity = torch.rand(pairs, pairs, requires_grad=True)
    loss = hardest_negative_triplet_loss(similarity, torch.full((pairs,), 5), 0.2, "both")
    assert loss.shape == (pairs,) and loss.sum() == 0
    loss.sum().backward()
    assert similarity.grad is not None and (similarity.grad == 0).all()


def test_triplet_loss_refuses_an_unknown_direction() -> None:
    with pytest.raises(ValueError, match="'image' or 'both', but is 'text'"):
        hardest_negative_triplet_loss(SIMILARITY, ROWS, 0.2, "text")


# --- tokens: VOK §3.2 -------------------------------------------------------------------------------------------------


def naive_hinge(tokens: torch.Tensor, images: torch.Tensor, places: list[list[int]], margin: float) -> torch.Tensor:
    """Token by token, negative by negative; `places` are those of each caption's negatives in the batch."""
    losses = torch.zeros(tokens.shape[:2])
    for b, negatives in enumerate(places):
        for t, token in enumerate(tokens[b]):
            terms = [max(0.0, margin - float(token @ images[b]) + float(token @ images[c])) for c in negatives]
            losses[b, t] = sum(terms) / len(terms) if terms else 0.0
    return losses


def test_hinge_agrees_with_the_equation_worked_by_hand() -> None:
    # M = 0.5. A caption of two tokens: the first scores 0.9 with its image and 0.1 with the other: 0.5 - 0.9 + 0.1 < 0.
    # The second: 0.5 - 0.2 + 0.4 = 0.7. Another caption: 0.5 - 0.3 + 0.1 = 0.3 and 0.5 - 0.6 + 0.6 = 0.5.
    own = torch.tensor([[0.9, 0.2], [0.3, 0.6]])
    others = torch.tensor([[0.1, 0.4], [0.1, 0.6]]).unsqueeze(2)
    losses = token_image_hinge(own, others, torch.ones(2, 1, dtype=torch.bool), margin=0.5)
    torch.testing.assert_close(losses, torch.tensor([[0.0, 0.7], [0.3, 0.5]]))
    # A second negative that scores 0.8 and 0.0 with the first caption's tokens: 0.4 and 0.3; the means are 0.2 and 0.5.
    # The second caption has none but the first.
    more = torch.cat([others, torch.tensor([[0.8, 0.0], [0.9, 0.9]]).unsqueeze(2)], dim=2)
    counted = torch.tensor([[True, True], [True, False]])
    torch.testing.assert_close(token_image_hinge(own, more, counted, 0.5), torch.tensor([[0.2, 0.5], [0.3, 0.5]]))


def test_hinge_agrees_with_its_naive_twin() -> None:
    generator = torch.Generator().manual_seed(0)
    for size in range(1, 9):
        tokens = torch.nn.functional.normalize(torch.randn(size, 3, 2, generator=generator), dim=2)
        images = torch.nn.functional.normalize(torch.randn(size, 2, generator=generator), dim=1)
        rows = torch.randint(0, 4, (size,), generator=generator)
        present = torch.rand(size, generator=generator) > 0.3
        others = other_images(rows, present)
        own = torch.einsum("btd,bd->bt", tokens, images)
        every = [[c for c in range(size) if rows[c] != rows[b] and present[c]] for b in range(size)]
        losses = token_image_hinge(own, torch.einsum("btd,cd->btc", tokens, images), others, 0.3)
        torch.testing.assert_close(losses, naive_hinge(tokens, images, every, 0.3))
        one = next_other_image(others)
        losses = token_image_hinge(
            own, (tokens * images[one].unsqueeze(1)).sum(2, keepdim=True), (one >= 0).unsqueeze(1), 0.3
        )
        torch.testing.assert_close(losses, naive_hinge(tokens, images, [[int(c)] if c >= 0 else [] for c in one], 0.3))


def test_gradient_of_the_hinge_is_that_of_the_violated_terms_alone() -> None:
    # Token 0 loses against both negatives, token 1 against the second alone, token 2 against none; the third negative
    # doesn't count, though it is a number that isn't one.
    own = torch.tensor([[0.1, 0.5, 0.9]], requires_grad=True)
    others = torch.tensor([[[0.2, 0.3, float("nan")], [-0.5, 0.4, 0.9], [0.0, 0.1, 0.9]]], requires_grad=True)
    token_image_hinge(own, others, torch.tensor([[True, True, False]]), 0.5).sum().backward()
    assert own.grad is not None and own.grad.tolist() == [[-1.0, -0.5, 0.0]]
    assert others.grad is not None and others.grad.tolist() == [[[0.5, 0.5, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]]


def test_caption_without_a_negative_has_no_loss_and_a_finite_gradient() -> None:
    own = torch.full((2, 3), 0.1, requires_grad=True)
    losses = token_image_hinge(own, torch.full((2, 3, 4), 0.9), torch.zeros(2, 4, dtype=torch.bool), 0.5)
    losses.sum().backward()
    assert not losses.any() and own.grad is not None and not own.grad.any()
    assert token_image_hinge(own[:0], torch.zeros(0, 3, 1), torch.zeros(0, 1, dtype=torch.bool), 0.5).shape == (0, 3)


@pytest.mark.parametrize(
    ("rows", "absent", "expected"),
    [
        ([1, 2, 3, 4], [], [2, 3, 0, 1]),  # the halves, as in the paper's code
        ([1, 2, 3, 4, 5], [], [2, 3, 4, 0, 1]),
        ([1, 2, 1, 2], [], [3, 0, 1, 2]),  # the i-th of the other half has the same image: the next
        ([1, 2, 3, 4], [3], [2, 0, 0, 1]),  # an absent image is no negative; its caption is left out elsewhere
        ([1, 1, 1, 2], [], [3, 3, 3, 1]),
        ([7, 7, 7], [], [-1, -1, -1]),
        ([7, 8], [1], [-1, 0]),
        ([7], [], [-1]),
        ([], [], []),
    ],
)
def test_one_negative_is_the_next_other_image_behind_the_half_of_the_batch(rows, absent, expected) -> None:
    present = torch.tensor([place not in absent for place in range(len(rows))], dtype=torch.bool)
    assert next_other_image(other_images(torch.tensor(rows, dtype=torch.long), present)).tolist() == expected
