"""Attention to text and regions, to both at once and to each apart: by hand, and against loops."""

import math

import pytest
import torch
from torch import Tensor

from visual_grounding.modules.attention_apart import (
    attend,
    attend_apart,
    attention_weights,
    side_by_side,
    weights_of_columns,
)

B, H, U, L, M, E = 3, 2, 4, 5, 3, 6


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values; the second sentence has padding and an absent region, the third no region."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(B, H, n, E, generator=generator) for n in (U, L + M, L + M))
    mask = torch.zeros(B, L + M, dtype=torch.bool)
    mask[1, [3, 4, 6]] = True
    mask[2, L:] = True
    return q, k, v, mask


def naive(q: Tensor, k: Tensor, v: Tensor, keys: list[int]) -> tuple[list[float], Tensor]:
    """One query of one head: q (E), k and v (K, E), and the keys that it may see."""
    scores = [math.exp(float(q @ k[key]) / math.sqrt(len(q))) for key in keys]
    weights = [score / sum(scores) for score in scores]
    return weights, sum((weight * v[key] for weight, key in zip(weights, keys)), torch.zeros(len(q)))


def test_attend_by_hand() -> None:
    """One head of size 1: scores 0 and log 3, so weights 1/4 and 3/4; the third key is masked."""
    q, k = torch.ones(1, 1, 1, 1), torch.tensor([0.0, math.log(3), 99.0]).view(1, 1, 3, 1)
    v, mask = torch.tensor([4.0, 8.0, 99.0]).view(1, 1, 3, 1), torch.tensor([[False, False, True]])
    assert attend(q, k, v, mask).item() == pytest.approx(7.0)
    torch.testing.assert_close(attention_weights(q, k, mask).flatten(), torch.tensor([0.25, 0.75, 0.0]))
    text, regions = attend_apart(
        q, k, v, mask, regions=2
    )  # text: the first key; regions: the second, for the third is absent
    assert (text.item(), regions.item()) == pytest.approx((4.0, 8.0))


def test_all_and_apart_equal_a_loop() -> None:
    q, k, v, mask = inputs()
    together = side_by_side(attend(q, k, v, mask))
    weights = attention_weights(q, k, mask)
    text, regions = attend_apart(q, k, v, mask, M)
    for b in range(B):
        for u in range(U):
            for found, keys in ((together, range(L + M)), (text, range(L)), (regions, range(L, L + M))):
                seen = [key for key in keys if not mask[b, key]]
                expected = torch.cat([naive(q[b, h, u], k[b, h], v[b, h], seen)[1] for h in range(H)])
                torch.testing.assert_close(found[b, u], expected, rtol=1e-5, atol=1e-6)
            for h in range(H):
                seen = [key for key in range(L + M) if not mask[b, key]]
                expected = torch.zeros(L + M)
                expected[seen] = torch.tensor(naive(q[b, h, u], k[b, h], v[b, h], seen)[0])
                torch.testing.assert_close(weights[b, h, u], expected, rtol=1e-5, atol=1e-6)


def test_what_is_absent_changes_nothing_and_nothing_gives_zero_without_nan() -> None:
    q, k, v, mask = inputs()
    before = attend_apart(q, k, v, mask, M)
    assert torch.equal(before[1][2], torch.zeros(U, H * E))
    hidden = mask[:, None, :, None]
    after = attend_apart(q, k.masked_fill(hidden, 7.0), v.masked_fill(hidden, 7.0), mask, M)
    torch.testing.assert_close(before, after)
    learned = [x.clone().requires_grad_() for x in (q, k, v)]
    text, regions = attend_apart(*learned, mask, M)
    (text.sum() + regions.pow(2).sum()).backward()
    assert all(x.grad.isfinite().all() for x in learned)
    assert not learned[2].grad[2, :, L:].any()  # values of regions that are absent
    assert not attention_weights(q, k, mask | True).any()


def test_without_regions_the_text_alone_is_all() -> None:
    q, k, v, mask = inputs()
    text, regions = attend_apart(q, k[:, :, :L], v[:, :, :L], mask[:, :L], regions=0)
    torch.testing.assert_close(text, side_by_side(attend(q, k[:, :, :L], v[:, :, :L], mask[:, :L])))
    assert torch.equal(regions, torch.zeros(B, U, H * E))


def test_dropout_drops_in_every_look() -> None:
    q, k, v, mask = inputs()
    torch.manual_seed(0)
    assert not torch.allclose(attend(q, k, v, mask, 0.5), attend(q, k, v, mask))
    for found, expected in zip(attend_apart(q, k, v, mask, M, 0.5), attend_apart(q, k, v, mask, M)):
        assert not torch.allclose(found, expected)


def test_half_precision_stays_close() -> None:
    q, k, v, mask = inputs()
    for dtype in (torch.float16, torch.bfloat16):
        found = attend_apart(q.to(dtype), k.to(dtype), v.to(dtype), mask, M)
        assert found[0].dtype == found[1].dtype == dtype
        for half, whole in zip(found, attend_apart(q, k, v, mask, M)):
            torch.testing.assert_close(half.float(), whole, rtol=0.05, atol=0.05)
        assert attention_weights(q.to(dtype), k.to(dtype), mask).dtype == torch.float32


def test_weights_of_columns_are_those_of_their_keys_and_zero_for_none() -> None:
    weights = torch.tensor([[[0.1, 0.2, 0.3, 0.4]], [[0.5, 0.1, 0.2, 0.2]]])
    found = weights_of_columns(weights, torch.tensor([[1, 3], [-1, 0]]))
    torch.testing.assert_close(found, torch.tensor([[[0.2, 0.4]], [[0.0, 0.5]]]))
