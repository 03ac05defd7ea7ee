"""VLP eq. 3 to 5: by hand, against loops, and where nothing counts."""

import math

import pytest
import torch
from torch import Tensor

from visual_grounding.modules.modality_loss import TokenWeight, counted_positions, modality_distance, modality_loss

B, U, D, E, PAD = 3, 4, 5, 6, 1


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """h_x, h_v, embeddings, targets, absent regions: the second row has padding, the third no region."""
    generator = torch.Generator().manual_seed(3)
    text, regions = (torch.randn(B, U, D, generator=generator) for _ in range(2))
    regions[2] = 0
    target = torch.tensor([[4, 5, 6, 2], [7, 2, 1, 1], [8, 9, 4, 2]])
    absent = torch.tensor([[False, False], [True, False], [True, True]])
    return text, regions, torch.randn(B, U, E, generator=generator), target, absent


def cosine(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other))
    return dot / math.sqrt(sum(a * a for a in one)) / math.sqrt(sum(b * b for b in other))


def test_loss_by_hand() -> None:
    """(3, 4) and (4, 3): cosine 24/25. (1, 0) and (0, 2): 0. (1, 1) and (-2, -2): -1. With lambda 0.4: 1.216."""
    text = torch.tensor([[[3.0, 4.0], [1.0, 0.0], [1.0, 1.0]]])
    regions = torch.tensor([[[4.0, 3.0], [0.0, 2.0], [-2.0, -2.0]]])
    distance = modality_distance(text, regions)
    torch.testing.assert_close(distance, torch.tensor([[0.04, 1.0, 2.0]]))
    every = torch.ones(1, 3, dtype=torch.bool)
    assert modality_loss(distance, 0.4, every).sum().item() == pytest.approx(0.4 * 3.04)
    last_is_padding = counted_positions(torch.tensor([[4, 2, PAD]]), PAD, torch.tensor([[True, False]]))
    assert modality_loss(distance, 0.4, last_is_padding).sum().item() == pytest.approx(0.4 * 1.04)


def test_token_weight_by_hand() -> None:
    """w_y = (1, 0), w_x = 2, w_v = -1; Emb = (log 3, 9), h_x = 1, h_v = 2: sigmoid(log 3 + 2 - 2) = 3/4."""
    weight = TokenWeight(2, 1)
    given = torch.tensor([[[math.log(3), 9.0]]]), torch.tensor([[[1.0]]]), torch.tensor([[[2.0]]])
    assert weight(*given).item() == 0.5  # before anything is learned
    with torch.no_grad():
        weight.target.copy_(torch.tensor([1.0, 0.0]))
        weight.text.fill_(2.0)
        weight.regions.fill_(-1.0)
    assert weight(*given).item() == pytest.approx(0.75)


def test_loss_with_token_weights_equals_a_loop() -> None:
    text, regions, embedded, target, absent = inputs()
    weight = TokenWeight(E, D)
    for vector in weight.parameters():
        torch.nn.init.normal_(vector)
    lambdas = weight(embedded, text, regions)
    found = modality_loss(modality_distance(text, regions), lambdas, counted_positions(target, PAD, absent))
    w_y, w_x, w_v = (vector.tolist() for vector in (weight.target, weight.text, weight.regions))
    for b in range(B):
        for j in range(U):
            h_x, h_v, y = text[b, j].tolist(), regions[b, j].tolist(), embedded[b, j].tolist()
            logit = sum(w * e for vector, h in ((w_y, y), (w_x, h_x), (w_v, h_v)) for w, e in zip(vector, h))
            assert lambdas[b, j].item() == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-5)
            counts = target[b, j] != PAD and not absent[b].all()
            expected = lambdas[b, j].item() * (1 - cosine(h_x, h_v)) if counts else 0.0
            assert found[b, j].item() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert found[0].all() and found[1, :2].all() and not found[1, 2:].any() and not found[2].any()


def test_loss_does_not_ask_how_long_vectors_are() -> None:
    text, regions, *_ = inputs()
    torch.testing.assert_close(modality_distance(text * 7, regions * 0.01), modality_distance(text, regions))
    torch.testing.assert_close(modality_distance(text, text * 3), torch.zeros(B, U), rtol=0, atol=1e-6)
    torch.testing.assert_close(modality_distance(text, -text), torch.full((B, U), 2.0))


def test_gradient_reaches_what_counts_and_nothing_else() -> None:
    text, regions, embedded, target, absent = inputs()
    learned = [x.requires_grad_() for x in (text, regions, embedded)]
    weight = TokenWeight(E, D)
    counted = counted_positions(target, PAD, absent)
    modality_loss(modality_distance(text, regions), weight(embedded, text, regions), counted).sum().backward()
    assert all(vector.grad.isfinite().all() and vector.grad.any() for vector in weight.parameters())
    for x in learned[:2]:
        assert x.grad.isfinite().all()
        assert torch.equal(x.grad.abs().sum(2) > 0, counted)


def test_nothing_that_counts_is_a_loss_of_zero_with_a_gradient() -> None:
    text, regions, embedded, _, absent = inputs()
    weight = TokenWeight(E, D)
    loss = modality_loss(
        modality_distance(text.requires_grad_(), regions * 0),
        weight(embedded, text, regions * 0),
        absent[:, :1] & False,
    ).sum()
    loss.backward()
    assert loss.item() == 0
    assert all(torch.equal(vector.grad, torch.zeros_like(vector)) for vector in (*weight.parameters(), text))


def test_half_precision_is_counted_in_float32() -> None:
    text, regions, embedded, *_ = inputs()
    weight = TokenWeight(E, D).half()
    assert modality_distance(text.half() * 300, regions.half() * 300).dtype == torch.float32
    torch.testing.assert_close(
        modality_distance(text.half() * 300, regions.half() * 300), modality_distance(text, regions), atol=1e-3, rtol=0
    )  # a norm of 300 · √5 squared doesn't fit float16
    assert weight(embedded.half(), text.half(), regions.half()).dtype == torch.float32
