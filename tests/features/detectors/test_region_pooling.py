"""Mean of RoIAlign: by hand, against a naive twin, and what it mustn't depend on."""

import numpy as np
import torch

from tests.features.naive_roi_align import naive_mean_of_roi_align
from visual_grounding.features.detectors.region_pooling import pool_boxes


def test_pool_boxes_of_a_slope_is_its_height_in_the_middle_of_the_box() -> None:
    # Places have their centres at 0.5, 1.5, ..., 9.5, and hold 0, 1, ..., 9: at x the slope is x - 0.5. The box from
    # 0.2 to 0.6 of 10 places has its middle at 4, so 3.5; from 0.3 to 0.9 downwards at 6, so 5.5.
    slope = torch.arange(10.0).expand(10, 10)
    both = torch.stack([slope, slope.T]).unsqueeze(0)
    found = pool_boxes(both, [torch.tensor([[0.2, 0.3, 0.6, 0.9]])])
    torch.testing.assert_close(found, torch.tensor([[3.5, 5.5]]))


def test_pool_boxes_agrees_with_a_naive_twin_on_maps_that_are_not_square() -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, 3, 5, 8, generator=generator)
    corners = torch.rand(2, 6, 2, 2, generator=generator).sort(dim=2).values
    boxes = [torch.cat([corners[0, :, 0], corners[0, :, 1]], 1), torch.cat([corners[1, :4, 0], corners[1, :4, 1]], 1)]
    boxes[0][0] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    found = pool_boxes(maps, boxes).numpy()
    sides = np.array([8, 5, 8, 5])
    expected = [
        naive_mean_of_roi_align(maps[place].numpy(), box.numpy() * sides, aligned=True)
        for place in range(2)
        for box in boxes[place]
    ]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_pool_boxes_takes_pictures_without_boxes() -> None:
    maps = torch.ones(3, 2, 4, 4)
    none = torch.zeros(0, 4)
    found = pool_boxes(maps, [none, torch.tensor([[0.0, 0.0, 1.0, 1.0]]), none])
    torch.testing.assert_close(found, torch.ones(1, 2))
    assert pool_boxes(maps, [none] * 3).shape == (0, 2)


def test_pool_boxes_of_half_precision_maps_pools_in_float32() -> None:
    maps = torch.full((1, 1, 4, 4), 300.0).half()
    found = pool_boxes(maps, [torch.tensor([[0.1, 0.1, 0.9, 0.9]])])
    assert found.dtype == torch.float32 and found.item() == 300.0
