"""RoIAlign as it is explained: point by point, in Python."""

import math

import numpy as np


def interpolate(feature_map: np.ndarray, y: float, x: float) -> np.ndarray:
    """Bilinear between four places of a map (C, h, w); 0 beyond one place outside of it, its border until there."""
    height, width = feature_map.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(feature_map))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, aside = y - top, x - left
    return (
        feature_map[:, top, left] * (1 - down) * (1 - aside)
        + feature_map[:, top, right] * (1 - down) * aside
        + feature_map[:, bottom, left] * down * (1 - aside)
        + feature_map[:, bottom, right] * down * aside
    )


def naive_mean_of_roi_align(feature_map: np.ndarray, box: np.ndarray, aligned: bool) -> np.ndarray:
    """Mean over 7 x 7 cells of 2 x 2 points of a map (C, h, w); the box in places of the map, (4,); returns (C,)."""
    shift = 0.5 if aligned else 0.0
    x0, y0, x1, y1 = (float(side) - shift for side in box)
    width, height = x1 - x0, y1 - y0
    if not aligned:  # as it was before: at least one place wide
        width, height = max(width, 1.0), max(height, 1.0)
    points = 14
    total = np.zeros(len(feature_map))
    for i in range(points):
        for j in range(points):
            total += interpolate(feature_map, y0 + (i + 0.5) * height / points, x0 + (j + 0.5) * width / points)
    return total / points**2
