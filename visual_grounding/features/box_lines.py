"""Lines of boxes: one region each, of whatever file."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..storage.lines import iterate_lines
from .framing import Box

CORNERS = ("x1", "y1", "x2", "y2")
SIZE = ("width", "height")
KEYS = ("image", "key")  # either


class BoxLine(NamedTuple):
    """One line. `cells` by the header's names, `place` for a message."""

    place: str
    cells: dict[str, str]
    box: Box

    def number(self, name: str) -> float:
        """A cell that holds a number.

        Raises:
            InputError: it doesn't.
        """
        return parse_finite(self.cells[name], name, self.place)


def read_box_lines(path: str | Path, wanted: Sequence[str], optional: Sequence[str] = ()) -> Iterator[BoxLine]:
    """Lines of a table with a header that names at least `wanted`, x1, y1, x2 and y2, in any order.

    Args:
        optional: named in the message beside them.

    Raises:
        InputError: a column is missing or there twice, a line has other columns, a number is none, a box is empty, or
            there is no line at all.
    """
    lines = iterate_lines(path)
    header = next(lines, "")
    names = header.split("\t") if header else []
    wanted = [*wanted[:1], *CORNERS, *wanted[1:]]
    missing = [name for name in wanted if name not in names]
    if missing or len(set(names)) < len(names):
        what = f"{', '.join(missing)} is missing" if missing else f"has a column twice: {', '.join(names)}"
        raise InputError(
            f"{path} should begin with the columns {', '.join(wanted)} (and maybe {', '.join(optional)}), separated by "
            f"tabs, but {what}."
        )
    number = 1
    for number, line in enumerate(lines, 2):
        cells, place = line.split("\t"), f"{path}:{number}"
        if len(cells) != len(names):
            raise InputError(f"{place} should have {len(names)} columns, as its header, but has {len(cells)}.")
        values = dict(zip(names, cells))
        box = check_box([parse_finite(values[name], name, place) for name in CORNERS], place)
        yield BoxLine(place, values, box)
    if number == 1:
        raise InputError(f"{path} should hold boxes, but has only a header.")


def check_box(corners: Sequence[float], place: str) -> Box:
    """A box whose corners are the right way round.

    Raises:
        InputError: they aren't.
    """
    box = Box(*corners)
    if not (box.x0 < box.x1 and box.y0 < box.y1):
        raise InputError(f"{place} should have a box with x1 < x2 and y1 < y2, but has {tuple(box)}.")
    return box


def parse_finite(text: Any, name: str, place: str) -> float:
    """A number.

    Raises:
        InputError: it is none, or not finite.
    """
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):  # a whole number of 400 digits, in JSON
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{place}: {name} should be a number, but is {text!r}.")
    return value
