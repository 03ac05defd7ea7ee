"""Tables of boxes: tab-separated lines under a header, one region a line."""

import math
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..storage.lines import iterate_lines
from .array_files import sample_digest
from .columns import NO_LABEL, Columns
from .framing import Box

CORNERS = ("x1", "y1", "x2", "y2")
SIZE = ("width", "height")
KEYS = ("image", "key")  # either
_NUMBERED = {"label": "labels", "attribute": "attributes"}  # column of the table -> of the store


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
        return _number(self.cells[name], name, self.place)


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
        box = Box(*(_number(values[name], name, place) for name in CORNERS))
        if not (box.x0 < box.x1 and box.y0 < box.y1):
            raise InputError(f"{place} should have a box with x1 < x2 and y1 < y2, but has {tuple(box)}.")
        yield BoxLine(place, values, box)
    if number == 1:
        raise InputError(f"{path} should hold boxes, but has only a header.")


def _number(text: str, name: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{place}: {name} should be a number, but is {text!r}.")
    return value


class RegionTable:
    """Boxes of a collection's images in the order of the table's lines, with labels, attributes and scores.

    The table has the columns image (or key), x1, y1, x2, y2, and maybe label, attribute, score, width and height: boxes
    are in pixels where a picture's width and height are given, else in 0..1. Kept in memory, about 30 bytes a line.

    Args:
        path: the table.
        keys: of the images, in row order; lines of others are left out.
        label_names: what label may be, in the order of their numbers; None for all that there are, sorted.
        attribute_names: likewise.

    Attributes:
        columns: what the table says.
        counts: (I,) regions of each image.
        sizes: (I, 2) width and height; None where the table has no such columns.
        left_out: images of the table that aren't among `keys`.
        images: images of the table.

    Raises:
        InputError: as `read_box_lines`; a label that isn't among the names, a size that is none or differs within an
            image, or no image that is among the keys.
    """

    def __init__(
        self,
        path: str | Path,
        keys: Sequence[str],
        label_names: Sequence[str] | None = None,
        attribute_names: Sequence[str] | None = None,
    ) -> None:
        self.path = path
        names = next(iterate_lines(path), "").split("\t")
        key_name = next((name for name in KEYS if name in names), KEYS[0])
        if sum(name in names for name in SIZE) == 1:
            raise InputError(f"{path} should have both columns {' and '.join(SIZE)}, or neither, but has one of them.")
        self._numbers = {
            "label": _Numbers("label", label_names) if "label" in names else None,
            "attribute": _Numbers("attribute", attribute_names) if "attribute" in names else None,
        }
        self.sizes = np.zeros((len(keys), 2), np.float32) if SIZE[0] in names else None
        rows, boxes, scores = array("q"), array("f"), array("f")
        row_of, other = {key: row for row, key in enumerate(keys)}, set()
        for line in read_box_lines(path, [key_name], [*_NUMBERED, "score", *SIZE]):
            row = row_of.get(line.cells[key_name])
            if row is None:
                other.add(line.cells[key_name])
                continue
            rows.append(row)
            boxes.extend(line.box)
            for name, numbers in self._numbers.items():
                if numbers is not None:
                    numbers.add(line.cells[name], line.place)
            if "score" in names:
                scores.append(line.number("score"))
            if self.sizes is not None:
                self._note_size(row, line)
        if not rows:
            raise InputError(
                f"{path} should have boxes of the collection's images, but none of its {len(other)} images is among "
                f"the {len(keys)} keys. The first of these is {keys[0]!r}; one of the table's is {min(other)!r}."
            )
        order = np.argsort(np.frombuffer(rows, np.int64), kind="stable")
        self.counts = np.bincount(np.frombuffer(rows, np.int64), minlength=len(keys))
        self._starts = np.concatenate([[0], np.cumsum(self.counts)])
        self._values: dict[str, np.ndarray] = {"boxes": np.frombuffer(boxes, np.float32).reshape(-1, 4)[order]}
        listed: dict[str, Sequence[str]] = {}
        for name, column in _NUMBERED.items():
            numbers = self._numbers[name]
            if numbers is not None:
                listed[f"{name}_names"], values = numbers.finish()
                self._values[column] = values[order]
        if "score" in names:
            self._values["scores"] = np.frombuffer(scores, np.float32)[order]
        self.columns = Columns(tuple(self._values), **listed)
        self.left_out = len(other)
        self.images = len(other) + int((self.counts > 0).sum())
        self.digest = sample_digest(Path(path))

    def _note_size(self, row: int, line: BoxLine) -> None:
        sizes = self.sizes
        if sizes is None:
            return
        size = np.array([line.number(name) for name in SIZE], np.float32)
        if (size <= 0).any():
            raise InputError(f"{line.place}: width and height should be above 0, but are {size[0]:g} and {size[1]:g}.")
        if sizes[row].any() and (sizes[row] != size).any():
            raise InputError(
                f"{line.place}: an image should have one size, but here it is {size[0]:g}x{size[1]:g}, and in an "
                f"earlier line {sizes[row][0]:g}x{sizes[row][1]:g}."
            )
        sizes[row] = size

    def block(self, start: int, stop: int, regions: int) -> dict[str, np.ndarray]:
        """Columns of some images, boxes as the table has them; an image with fewer regions has none behind them.

        Args:
            regions: R; regions of an image beyond it are left out, so compare `counts` with it.

        Shapes:
            returns: (stop - start, R, 4) for boxes, else (stop - start, R)
        """
        place = np.arange(regions)
        counts = np.minimum(self.counts[start:stop], regions)
        rows, columns = np.nonzero(place < counts[:, None])
        lines = self._starts[start:stop][rows] + columns
        found = {}
        for name, values in self._values.items():
            empty = NO_LABEL if name in _NUMBERED.values() else 0
            found[name] = np.full((stop - start, regions, *values.shape[1:]), empty, values.dtype)
            found[name][rows, columns] = values[lines]
        return found


class _Numbers:
    """Names of one column -> numbers, in the order of the lines."""

    def __init__(self, column: str, names: Sequence[str] | None) -> None:
        self._column = column
        self._given = names is not None
        self._names = {name: number for number, name in reversed([*enumerate(names or ())])}
        self._listed = list(names or ())
        self._numbers = array("i")

    def add(self, name: str, place: str) -> None:
        """Note the name of the next line; an empty one is none."""
        if not name:
            self._numbers.append(NO_LABEL)
            return
        if name not in self._names:
            if self._given:
                raise InputError(
                    f"{place}: {self._column} should be one of the {len(self._listed)} {self._column} names, such as "
                    f"{self._listed[0]!r}, or empty, but is {name!r}.",
                    f"{self._column}_names",
                )
            self._names[name] = len(self._names)
        self._numbers.append(self._names[name])

    def finish(self) -> tuple[list[str], np.ndarray]:
        """The names, and the number of each line; sorted where no order was given."""
        numbers = np.frombuffer(self._numbers, np.int32)
        if self._given:
            return self._listed, numbers
        found = list(self._names)
        rank = np.empty(len(found) + 1, np.int32)
        rank[np.array(sorted(range(len(found)), key=found.__getitem__), np.int64)] = np.arange(len(found))
        rank[NO_LABEL] = NO_LABEL  # the last one: where -1 points
        return sorted(found), rank[numbers]
