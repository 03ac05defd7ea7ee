"""Boxes as others write them -> x0, y0, x1, y1 in 0..1 of the picture."""

import numpy as np

BOX_FORMATS = ("xyxy", "xywh", "yxyx")
ROUNDING = 1e-5  # a hundredth of a pixel of a picture of 1000: what float32 makes of x + width, and no more


def to_corners(boxes: np.ndarray, box_format: str = "xyxy", sizes: np.ndarray | None = None) -> np.ndarray:
    """Reorder, and scale to the picture's size. What lies outside of the picture by more than rounding stays there.

    Args:
        box_format: "xyxy" two corners, "xywh" the first corner, width and height, "yxyx" two corners, y first.
        sizes: width and height of each picture where boxes are in pixels; None where they are in 0..1 already.

    Shapes:
        boxes: (images, R, 4);  sizes: (images, 2)
        returns: (images, R, 4) float64

    >>> to_corners(np.array([[[50, 20, 100, 40]]]), "xywh", np.array([[200, 100]])).tolist()
    [[[0.25, 0.2, 0.75, 0.6]]]
    >>> to_corners(np.array([[[0.2, 0.25, 0.6, 0.75]]]), "yxyx").tolist()
    [[[0.25, 0.2, 0.75, 0.6]]]
    """
    corners = np.array(boxes, dtype=np.float64)
    if box_format == "yxyx":
        corners = corners[..., [1, 0, 3, 2]]
    with np.errstate(invalid="ignore"):  # infinity is refused where all values are checked
        if box_format == "xywh":
            corners[..., 2:] += corners[..., :2]
        if sizes is not None:
            corners /= np.tile(sizes, 2)[:, None]  # (images, 1, 4): width, height, width, height
        inside = corners.clip(0, 1)
        return np.where(np.abs(corners - inside) <= ROUNDING, inside, corners)
