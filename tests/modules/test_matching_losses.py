"""The triplet loss: VA eq. 1 worked by hand, a naive twin, and what may never be a negative."""

import pytest
import torch

from visual_grounding.modules.matching_losses import hardest_negative_triplet_loss

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
