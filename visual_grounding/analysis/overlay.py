"""A heat map drawn over its picture."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw

from ..features.framing import Box
from .heat_map import stretch, upsample

_SIDE = 448  # pixels of the long side: enough for a page, and quick
_HEAT, _DARK = 0.55, 0.35  # share of the map's colour; share of the light that is left where the network saw nothing


def draw_overlay(
    image: Image.Image,
    grid: torch.Tensor,
    window: Box,
    boxes: Sequence[Box] = (),
    peak: tuple[float, float] | None = None,
) -> Image.Image:
    """Lay a map over the part of the picture that the network saw; the rest is darkened.

    Args:
        image: the picture.
        window: that part, in 0..1 of the picture.
        boxes: to be outlined, in 0..1 of the picture.
        peak: to be marked, in 0..1 of the picture.

    Shapes:
        grid: (n, n)
    """
    from matplotlib import colormaps

    small = image.copy()
    small.thumbnail((_SIDE, _SIDE))
    pixels = np.asarray(small, dtype=np.float32) / 255  # (h, w, 3)
    high, wide = pixels.shape[:2]
    left, right, top, bottom = (
        round(edge) for edge in (window.x0 * wide, window.x1 * wide, window.y0 * high, window.y1 * high)
    )
    heat = stretch(upsample(grid, max(bottom - top, 1), max(right - left, 1))).numpy()
    inside = (slice(max(top, 0), min(bottom, high)), slice(max(left, 0), min(right, wide)))
    seen = heat[inside[0].start - top : inside[0].stop - top, inside[1].start - left : inside[1].stop - left]
    drawn = pixels * _DARK
    drawn[inside] = (1 - _HEAT) * pixels[inside] + _HEAT * colormaps["turbo"](seen)[..., :3]
    result = Image.fromarray((drawn * 255).round().astype(np.uint8))
    pen = ImageDraw.Draw(result)
    for box in boxes:
        outline(pen, box, wide, high)
    if peak is not None:
        x, y = peak[0] * wide, peak[1] * high
        pen.ellipse((x - 6, y - 6, x + 6, y + 6), outline="black", width=4)
        pen.ellipse((x - 5, y - 5, x + 5, y + 5), outline="white", width=2)
    return result


def outline(pen: ImageDraw.ImageDraw, box: Box, wide: int, high: int) -> None:
    """Draw a box that is seen on light and on dark."""
    corners = (box.x0 * wide, box.y0 * high, box.x1 * wide, box.y1 * high)
    pen.rectangle(corners, outline="black", width=3)
    pen.rectangle(corners, outline="white", width=1)


def letterbox(image: Image.Image) -> Image.Image:
    """Centre a picture in a square, so that a page of squares cuts nothing off."""
    side = max(image.size)
    square = Image.new("RGB", (side, side), "white")
    square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return square
