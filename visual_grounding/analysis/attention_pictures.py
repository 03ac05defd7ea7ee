"""Pictures of a decoder's attention on regions: its share in each layer, and a photo's boxes, token by token."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from .intervals import Interval

SIDE = 320  # pixels of a photo's long side in a panel
_COLUMNS = 6  # panels beside each other
_CLEAR, _SHADE = 0.15, 0.85  # how much of a box without attention is coloured, and how much more of the most attended


def draw_shares(path: Path, shares: Mapping[str, Sequence[Interval]], even: Mapping[str, float], title: str) -> None:
    """Share on regions by layer, a line for each way of giving images; dotted, what even attention would give.

    Args:
        path: of a PNG.
        shares: name of a line -> its intervals, layer by layer.
        even: name -> a share.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for number, (name, intervals) in enumerate(shares.items()):
        layers = np.arange(1, len(intervals) + 1)
        value, low, high = (np.array(each) for each in zip(*intervals))
        # Few draws, or rounding, may leave the value itself out of its interval; a bar has no negative length.
        bars = np.maximum([value - low, high - value], 0)
        axes.errorbar(layers, value, yerr=bars, marker="o", capsize=3, color=f"C{number}", label=name)
        axes.axhline(even[name], linestyle=":", color=f"C{number}")
    axes.set_xticks(layers)
    axes.set_xlabel("decoder layer")
    axes.set_ylabel("attention on regions")
    axes.set_ylim(0, 1)
    axes.set_title(title)
    axes.legend(title="images (dotted: even attention)", fontsize="small")
    _save(figure, path)


def draw_tokens(
    path: Path, picture: Image.Image, boxes: np.ndarray, weights: np.ndarray, tokens: Sequence[str], title: str
) -> None:
    """A photo for each target token, its boxes shaded by the token's attention; all panels have one scale.

    Args:
        path: of a PNG.
        tokens: U.

    Shapes:
        boxes: (R, 4) corners in 0..1;  weights: (U, R), 0 for a region that is absent
    """
    from matplotlib.figure import Figure

    photo = picture.convert("RGB")
    photo.thumbnail((SIDE, SIDE))
    pixels = np.asarray(photo, dtype=np.float32) / 255  # (h, w, 3)
    columns = min(_COLUMNS, len(tokens))
    rows = -(-len(tokens) // columns)
    figure = Figure(figsize=(2 * columns, 2.1 * rows * max(0.6, photo.height / photo.width) + 0.6), dpi=120)
    figure.set_layout_engine("constrained")
    figure.suptitle(title, fontsize="small", parse_math=False)
    highest = float(weights.max(initial=0)) or 1.0
    for number, token in enumerate(tokens):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.imshow(shade(pixels, boxes, weights[number] / highest))
        axes.set_title(f"{token}  {weights[number].sum():.2f}", fontsize="small", parse_math=False)
        axes.set_axis_off()
    _save(figure, path)


def shade(pixels: np.ndarray, boxes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Lay colour over boxes, the more the higher their weight; where boxes overlap, the highest counts.

    Shapes:
        pixels: (h, w, 3) in 0..1;  boxes: (R, 4) corners in 0..1;  weights: (R,) in 0..1
        returns: (h, w, 3)
    """
    from matplotlib import colormaps

    high, wide = pixels.shape[:2]
    heat = np.full((high, wide), -1.0)  # (h, w), −1 outside of all boxes
    for (x0, y0, x1, y1), weight in zip(boxes, weights):
        if weight > 0:
            inside = (
                slice(round(float(y0) * high), max(round(float(y1) * high), round(float(y0) * high) + 1)),
                slice(round(float(x0) * wide), max(round(float(x1) * wide), round(float(x0) * wide) + 1)),
            )
            heat[inside] = np.maximum(heat[inside], weight)
    strength = np.where(heat < 0, 0, _CLEAR + _SHADE * heat)[..., None] * 0.7
    colours = colormaps["inferno"](np.clip(heat, 0, 1))[..., :3]
    return (1 - strength) * pixels + strength * colours


def _save(figure: object, path: Path) -> None:
    """As a PNG, whatever the path's name ends in."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")  # type: ignore[attr-defined]
    path.write_bytes(buffer.getvalue())
