"""The pointing game: is a heat map's peak in a box of what the text names? Beside it, the centre of the picture.

Zhang et al., Top-down Neural Attention by Excitation Backprop, ECCV 2016; with texts: Engilberge et al., CVPR 2018.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..features.box_lines import SIZE, read_box_lines
from ..features.framing import Box, Framing


@dataclass
class Phrase:
    """What is looked for in one picture.

    Attributes:
        key: the picture.
        text: the phrase.
        boxes: where it is, in pixels; any of them counts.
        size: width and height of the picture that the boxes were drawn on; None where the file doesn't say.
    """

    key: str
    text: str
    boxes: list[Box] = field(default_factory=list)
    size: tuple[int, int] | None = None


class Pointing(NamedTuple):
    """One phrase's outcome; `point` in pixels of its picture. `outside`: the network saw nothing of its boxes."""

    phrase: Phrase
    point: tuple[float, float]
    hit: bool
    centre_hit: bool
    outside: bool


class PointingScore(NamedTuple):
    """Counts over phrases; the shares are of `phrases`."""

    phrases: int
    hits: int
    centre_hits: int
    outside: int

    @property
    def rate(self) -> float:
        """Share of phrases that the maps point at."""
        return self.hits / self.phrases

    @property
    def centre_rate(self) -> float:
        """Share of phrases that the middle of the picture points at."""
        return self.centre_hits / self.phrases


def read_boxes(path: str | Path) -> list[Phrase]:
    """Read a table with a header: image, x1, y1, x2, y2 (pixels), phrase, and, if they are known, width and height.

    Lines with the same picture and phrase are boxes of one phrase: they ask the same question.

    Raises:
        InputError: as `read_box_lines`.
    """
    phrases: dict[tuple[str, str], Phrase] = {}
    for line in read_box_lines(path, ["image", "phrase"], SIZE):
        key, text = line.cells["image"], line.cells["phrase"]
        phrase = phrases.setdefault((key, text), Phrase(key, text, [], None))
        phrase.boxes.append(line.box)
        if all(line.cells.get(name) for name in SIZE):
            width, height = (round(line.number(name)) for name in SIZE)
            phrase.size = width, height
    return list(phrases.values())


def point(phrase: Phrase, peak: tuple[float, float], size: tuple[int, int], framing: Framing) -> Pointing:
    """Carry a map's peak from the network's square back to the picture, and see what it hits.

    Args:
        peak: x and y in 0..1 of the square that the network saw.
        size: width and height of the picture that the boxes were drawn on.

    Raises:
        InputError: a box reaches beyond the picture, so it was drawn on another size of it.
    """
    width, height = size
    for box in phrase.boxes:
        if box.x1 > width + 1 or box.y1 > height + 1:  # + 1: some count pixels from 1
            raise InputError(
                f"{phrase.key}: a box of {phrase.text!r} reaches to {box.x1:g}, {box.y1:g}, but the picture has "
                f"{width}x{height} pixels. If boxes were drawn on another size of it, give that size in columns "
                f"{' and '.join(SIZE)} of --boxes."
            )
    window = framing.window(width, height)
    seen = Box(window.x0 * width, window.y0 * height, window.x1 * width, window.y1 * height)
    x, y = seen.x0 + peak[0] * (seen.x1 - seen.x0), seen.y0 + peak[1] * (seen.y1 - seen.y0)
    return Pointing(
        phrase,
        (x, y),
        hit=any(box.holds(x, y) for box in phrase.boxes),
        centre_hit=any(box.holds(width / 2, height / 2) for box in phrase.boxes),
        outside=not any(box.overlaps(seen) for box in phrase.boxes),
    )


def score_pointing(results: Iterable[Pointing]) -> PointingScore:
    """Count. A phrase that lies wholly outside of what the network saw can't be hit, and counts as missed."""
    results = list(results)
    return PointingScore(
        len(results),
        sum(result.hit for result in results),
        sum(result.centre_hit for result in results),
        sum(result.outside for result in results),
    )
