"""Boxes of a collection's images, from a table, or from annotations as they were published."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..storage.lines import iterate_lines
from .array_files import sample_digest
from .box_lines import KEYS, SIZE, BoxLine, read_box_lines
from .columns import NO_LABEL, Columns
from .imports.annotations import entities_lines, genome_lines
from .imports.image_keys import KeyFormat

_NUMBERED = {"label": "labels", "attribute": "attributes"}  # column of the table -> of the store
PHRASE = "phrase"  # what Flickr30k Entities' tables call a label


class RegionTable:
    """Boxes of a collection's images in the order of the table's lines, with labels, attributes and scores.

    The table has the columns image (or key), x1, y1, x2, y2, and maybe label (or phrase), attribute, score, width and
    height: boxes are in pixels where a picture's width and height are given, else in 0..1. Kept in memory, about 30
    bytes a line. Or it is Visual Genome's `objects.json`, or the folder of Flickr30k Entities.

    Args:
        path: the table.
        keys: of the images, in row order; lines of others are left out.
        label_names: what label may be, in the order of their numbers; None for all that there are, sorted.
        attribute_names: likewise.
        key_format: how ids of Visual Genome become keys.
        unknown_as_none: a label that isn't among the names is none, and counted, instead of an error.

    Attributes:
        columns: what the table says.
        unknown: lines with a label or an attribute that isn't among the names.
        lines: of the collection's images.
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
        key_format: KeyFormat | None = None,
        unknown_as_none: bool = False,
    ) -> None:
        self.path = path
        names, key_name, lines = _open(Path(path), key_format or KeyFormat())
        label = PHRASE if PHRASE in names and "label" not in names else "label"
        if sum(name in names for name in SIZE) == 1:
            raise InputError(f"{path} should have both columns {' and '.join(SIZE)}, or neither, but has one of them.")
        self._numbers = {
            "label": _Numbers("label", label_names, unknown_as_none) if label in names else None,
            "attribute": _Numbers("attribute", attribute_names, unknown_as_none) if "attribute" in names else None,
        }
        self.sizes = np.zeros((len(keys), 2), np.float32) if SIZE[0] in names else None
        rows, boxes, scores, other = self._read(lines, keys, key_name, label, "score" in names)
        if not len(rows):
            raise InputError(
                f"{path} should have boxes of the collection's images, but none of its {len(other)} images is among "
                f"the {len(keys)} keys. The first of these is {keys[0]!r}; one of the table's is "
                f"{min(other, default='none')!r}."
            )
        order = np.argsort(rows, kind="stable")
        self.counts = np.bincount(rows, minlength=len(keys))
        self._starts = np.concatenate([[0], np.cumsum(self.counts)])
        self._values: dict[str, np.ndarray] = {"boxes": boxes[order]}
        listed: dict[str, Sequence[str]] = {}
        for name, column in _NUMBERED.items():
            numbers = self._numbers[name]
            if numbers is not None:
                listed[f"{name}_names"], values = numbers.finish()
                self._values[column] = values[order]
        if "score" in names:
            self._values["scores"] = scores[order]
        self.columns = Columns(tuple(self._values), **listed)
        self.left_out = len(other)
        self.images = len(other) + int((self.counts > 0).sum())
        self.lines = len(rows)
        self.unknown = sum(numbers.unknown for numbers in self._numbers.values() if numbers is not None)
        self.digest = self._digest_of(Path(path))

    def _read(
        self, lines: Iterator[BoxLine], keys: Sequence[str], key_name: str, label: str, scored: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, set[str]]:
        """Rows, boxes and scores of all lines of the collection's images, and the table's other images.

        Labels, attributes and sizes are noted on the way.

        Shapes:
            returns: (L,), (L, 4), (L,), empty unless `scored`
        """
        rows, boxes, scores = array("q"), array("f"), array("f")  # which grow by themselves
        row_of, other = {key: row for row, key in enumerate(keys)}, set()
        for line in lines:
            row = row_of.get(line.cells[key_name])
            if row is None:
                other.add(line.cells[key_name])
                continue
            rows.append(row)
            boxes.extend(line.box)
            for name, numbers in self._numbers.items():
                if numbers is not None:
                    numbers.add(line.cells[label if name == "label" else name], line.place)
            if scored:
                scores.append(line.number("score"))
            if self.sizes is not None:
                self._note_size(row, line)
        placed = np.frombuffer(boxes, np.float32).reshape(-1, 4)
        return np.frombuffer(rows, np.int64), placed, np.frombuffer(scores, np.float32), other

    def _digest_of(self, path: Path) -> str:
        """Of the file; of a folder's files, of what was read from them."""
        if path.is_file():
            return sample_digest(path)
        digest = hashlib.sha256(self.counts.tobytes())
        for values in self._values.values():
            digest.update(values.tobytes())
        return digest.hexdigest()

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


def _open(path: Path, key_format: KeyFormat) -> tuple[list[str], str, Iterator[BoxLine]]:
    """Names of the columns, that of the images' keys, and the lines."""
    if path.is_dir():
        return [*KEYS[:1], "label", *SIZE], KEYS[0], entities_lines(path)
    if path.suffix == ".json":
        return [*KEYS[:1], "label"], KEYS[0], genome_lines(path, key_format)
    names = next(iterate_lines(path), "").split("\t")
    key_name = next((name for name in KEYS if name in names), KEYS[0])
    return names, key_name, read_box_lines(path, [key_name], [*_NUMBERED, "score", *SIZE])


class _Numbers:
    """Names of one column -> numbers, in the order of the lines."""

    def __init__(self, column: str, names: Sequence[str] | None, unknown_as_none: bool) -> None:
        self._column = column
        self._unknown_as_none = unknown_as_none
        self.unknown = 0
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
            if self._given and self._unknown_as_none:
                self.unknown += 1
                self._numbers.append(NO_LABEL)
                return
            if self._given:
                raise InputError(
                    f"{place}: {self._column} should be one of the {len(self._listed)} {self._column} names, such as "
                    f"{self._listed[0]!r}, or empty, but is {name!r}.",
                    f"{self._column}_names",
                    "unknown_labels",
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
