"""Features of boxes: the mean of RoIAlign (He et al. 2017, Mask R-CNN, section 3) over each box of a map."""

from collections.abc import Sequence

import torch
from torchvision.ops import roi_align

CELLS = 7  # a box is cut into CELLS x CELLS cells
SAMPLES = 2  # and a cell is the mean of SAMPLES x SAMPLES points, each interpolated between four places of the map


def pool_boxes(feature_map: torch.Tensor, boxes: Sequence[torch.Tensor]) -> torch.Tensor:
    """Mean of the interpolated map over each box, in float32.

        f(box) = 1 / n^2 sum_ij map(y0 + (i + 1/2) (y1 - y0) / n, x0 + (j + 1/2) (x1 - x0) / n)

    n -> CELLS * SAMPLES points along each side; map(y, x) -> bilinear between the four nearest places, whose centres
    lie at halves (torchvision's `aligned`). Box and map lie over the same picture, whatever its size.

    Shapes:
        feature_map: (B, C, h, w)
        boxes: B of (K, 4) x0, y0, x1, y1 in 0..1
        returns: (sum of K, C) float32
    """
    height, width = feature_map.shape[2:]
    sides = torch.tensor([width, height, width, height], dtype=torch.float32, device=feature_map.device)
    scaled = [each.float() * sides for each in boxes]
    pooled = roi_align(feature_map.float(), scaled, CELLS, sampling_ratio=SAMPLES, aligned=True)
    return pooled.mean(dim=(2, 3))
