"""Regions drawn over their picture: a box each, with its number, its name and its score."""

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..errors import InputError
from ..features.columns import NO_LABEL
from ..features.framing import Box
from ..features.store import FeatureStore

SIDE = 448  # pixels of a picture on the page
_LETTERS = 13  # pixels high
_TURN = 0.618034  # of the circle of colours from a label to the next: neighbours differ most


class Region(NamedTuple):
    """What is known of one region.

    Attributes:
        box: in 0..1 of the picture.
        label: number of its label; -1 for none.
        name: what the label stands for, an attribute before it where there is one; empty for none.
        score: None where the store has none.
    """

    box: Box
    label: int = NO_LABEL
    name: str = ""
    score: float | None = None

    @property
    def text(self) -> str:
        """What is written at the box.

        >>> Region(Box(0, 0, 1, 1), 3, "wet dog", 0.5).text
        'wet dog 0.50'
        """
        return " ".join([*([self.name] if self.name else []), *([] if self.score is None else [f"{self.score:.2f}"])])


def check_drawable(store: FeatureStore, min_score: float | None) -> None:
    """Refuse a store whose regions can't be drawn, or not chosen by their scores.

    Raises:
        InputError: it has no boxes, no scores although they are asked for, or none that is as high.
    """
    if "boxes" not in store.columns:
        raise InputError(
            f"{store.folder} should have boxes, to be drawn, but has {', '.join(('features', *store.columns))}. "
            "docs/regions.md says how a store of regions is made."
        )
    if min_score is not None and "scores" not in store.columns:
        raise InputError(
            f"the least score is for a store with scores, but {store.folder} has {', '.join(store.columns)}.",
            "min_score",
        )
    most = float(np.finfo(np.float16).max)
    if min_score is not None and np.float16(np.clip(min_score, -most, most)) > (highest := store.highest_score()):
        raise InputError(
            f"no region of {store.folder} has a score of {min_score:g}: the highest is {highest:.3g}.", "min_score"
        )


def regions_of_images(store: FeatureStore, rows: Sequence[int], min_score: float | None = None) -> list[list[Region]]:
    """What a store knows of the regions of some images, those that are absent left out, in its order.

    Args:
        rows: of the images.
        min_score: regions below are left out, too.
    """
    ids = np.array(rows, dtype=np.int64)
    absent, columns = store.gather(ids)[1], store.gather_columns(ids)  # (I, R), (I, R, …)
    names = {"attributes": store.attribute_names, "labels": store.label_names}
    found: list[list[Region]] = []
    for image, place in np.ndindex(absent.shape):
        if place == 0:
            found.append([])
        own = {name: values[image, place] for name, values in columns.items()}
        score = float(own["scores"]) if "scores" in own else None
        if absent[image, place] or (min_score is not None and score is not None and score < min_score):
            continue
        said = [names[column][own[column]] for column in names if own.get(column, NO_LABEL) != NO_LABEL]
        label = int(own.get("labels", NO_LABEL))
        found[-1].append(Region(Box(*(float(corner) for corner in own["boxes"])), label, " ".join(said), score))
    return found


def colour_of(label: int) -> tuple[int, int, int]:
    """The same for the same label on every page; white for none."""
    if label == NO_LABEL:
        return (255, 255, 255)
    red, green, blue = colorsys.hsv_to_rgb(label * _TURN % 1, 0.75, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw_regions(image: Image.Image, regions: Sequence[Region], side: int = SIDE) -> Image.Image:
    """The picture with its regions, the first on top: it is the one that is to be seen.

    Args:
        side: pixels of its long side, whatever it was.
    """
    scale = side / max(image.size)
    drawn = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    pen, font = ImageDraw.Draw(drawn), letters(_LETTERS)
    for number, region in reversed([*enumerate(regions, 1)]):
        box, colour = region.box, colour_of(region.label)
        left, top = box.x0 * drawn.width, box.y0 * drawn.height
        corners = (left, top, max(left, box.x1 * drawn.width - 1), max(top, box.y1 * drawn.height - 1))
        pen.rectangle(corners, outline="black", width=4)
        pen.rectangle(corners, outline=colour, width=2)
        text = f"{number} {region.text}".strip()
        x0, y0, x1, y1 = pen.textbbox((0, 0), text, font=font)
        left = min(left, max(0, drawn.width - (x1 - x0) - 4))  # all of it inside
        top = min(top, max(0, drawn.height - (y1 - y0) - 4))
        pen.rectangle((left, top, left + x1 - x0 + 4, top + y1 - y0 + 4), fill=colour)
        pen.text((left + 2 - x0, top + 2 - y0), text, font=font, fill="black")
    return drawn


def letters(high: int) -> ImageFont.FreeTypeFont:
    """Matplotlib's own font, which has the letters of more languages than Pillow's, so many pixels high."""
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), high)
