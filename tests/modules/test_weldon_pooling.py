"""Weldon pooling: worked by hand, a naive twin, absent and permuted regions."""

import pytest
import torch

from visual_grounding.modules.weldon_pooling import weldon_pool


def naive_pool(regions: torch.Tensor, padding_mask: torch.Tensor, full_from: int) -> torch.Tensor:
    result = torch.zeros(regions.shape[0], regions.shape[2])
    for b in range(regions.shape[0]):
        present = [regions[b, r] for r in range(regions.shape[1]) if not padding_mask[b, r]]
        k = 15 if len(present) >= full_from else max(1, min(15, len(present) // 4))
        for d in range(regions.shape[2]):
            values = sorted(float(region[d]) for region in present)
            if values:
                result[b, d] = sum(values[-k:]) / k + sum(values[:k]) / k
    return result


def test_weldon_pool_takes_the_mean_of_both_ends() -> None:
    # 8 regions, k = 2: (8 + 7) / 2 + (1 + 2) / 2 = 9; the middle is not looked at
    regions = torch.tensor([3.0, 8.0, 1.0, 4.0, 7.0, 5.0, 2.0, 6.0]).view(1, 8, 1)
    assert weldon_pool(regions, torch.zeros(1, 8, dtype=torch.bool)).item() == 9.0


def test_weldon_pool_takes_15_at_each_end_of_49_or_more() -> None:
    # 12 regions have 1, the others 0. Of 49 and 50: 12/15 + 0/15. Of 48, 12 at each end: 12/12 + 0/12.
    # By the rule of before, 12 at each end of 49 and of 50: 1.
    regions = (torch.arange(50) < 12).float().view(1, 50, 1).repeat(3, 1, 1)
    mask = torch.arange(50) >= torch.tensor([48, 49, 50]).unsqueeze(1)
    torch.testing.assert_close(weldon_pool(regions, mask).flatten(), torch.tensor([1.0, 0.8, 0.8]))
    assert weldon_pool(regions, mask, full_from=60).flatten().tolist() == [1.0, 1.0, 1.0]
    assert weldon_pool(regions, mask, full_from=torch.tensor(50)).flatten().tolist() == pytest.approx([1.0, 1.0, 0.8])


@pytest.mark.parametrize("full_from", [49, 60])
def test_weldon_pool_agrees_with_its_naive_twin_for_every_number_of_regions(full_from: int) -> None:
    generator = torch.Generator().manual_seed(0)
    counts = list(range(0, 70))
    regions = torch.randn(len(counts), 70, 3, generator=generator)
    padding_mask = torch.arange(70) >= torch.tensor(counts).unsqueeze(1)
    expected = naive_pool(regions, padding_mask, full_from)
    torch.testing.assert_close(weldon_pool(regions, padding_mask, full_from), expected)


def test_weldon_pool_does_not_change_with_more_absent_or_permuted_regions() -> None:
    regions = torch.randn(2, 9, 4)
    mask = torch.zeros(2, 9, dtype=torch.bool)
    expected = weldon_pool(regions, mask)
    more = torch.cat([regions, torch.full((2, 5, 4), 1e4)], dim=1)
    more_mask = torch.cat([mask, torch.ones(2, 5, dtype=torch.bool)], dim=1)
    order = torch.randperm(14)
    torch.testing.assert_close(weldon_pool(more[:, order], more_mask[:, order]), expected)


def test_weldon_pool_of_one_region_counts_it_twice_and_of_none_is_zero() -> None:
    regions = torch.tensor([[[3.0], [9.0]], [[3.0], [9.0]]])
    mask = torch.tensor([[False, True], [True, True]])
    assert weldon_pool(regions, mask).flatten().tolist() == [6.0, 0.0]


def test_weldon_pool_gradient_is_finite_with_absent_regions_and_zero_there() -> None:
    regions = torch.randn(2, 6, 3, requires_grad=True)
    mask = torch.tensor([[False] * 4 + [True] * 2, [True] * 6])
    weldon_pool(regions, mask).square().sum().backward()
    assert regions.grad is not None and regions.grad.isfinite().all()
    assert regions.grad[mask].abs().sum() == 0 and regions.grad[0, :4].abs().sum() > 0
