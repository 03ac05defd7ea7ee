"""The tables of bottom-up attention: a line for each image, its arrays in base64.

https://github.com/peteanderson80/bottom-up-attention has six columns without a header; LXMERT's, with labels, ten. A
line is some 400 kB, so opening the file is one pass that keeps where each line begins.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ...errors import InputError
from ...storage.outside import open_file
from ..array_files import UnreadableArray, sample_digest
from .encoded import count_regions, decode
from .field_names import COUNT, KEYS, KNOWN, Wanted
from .image_keys import KeyFormat, find_wanted, keys_of
from .records import Records, the_only

BOTTOM_UP = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
LXMERT = (
    "img_id",
    "img_h",
    "img_w",
    "objects_id",
    "objects_conf",
    "attrs_id",
    "attrs_conf",
    "num_boxes",
    "boxes",
    "features",
)
_ENDING = re.compile(r"\.tsv(\.\d+)?$")  # bottom-up attention's come in parts: .tsv.0, .tsv.1
_LAYOUTS = {len(layout): layout for layout in (BOTTOM_UP, LXMERT)}


def is_tsv(path: Path) -> bool:
    """Whether a path is called like such a table."""
    return path.is_file() and _ENDING.search(path.name) is not None


class RegionTsv(Records):
    """Such a table.

    Args:
        path: the file.
        keys: which images, in which order; None for all, in the order of the lines.
        wanted: which of its columns are what.
        regions: the most that an image shall have; None for the most that one has.
        fields: names of the columns; None where its first line has them, or it is one of the two known forms.
        key_format: how ids become keys.

    Raises:
        InputError: it has other columns, an image twice, or none that is wanted.
    """

    def __init__(
        self,
        path: Path,
        keys: list[str] | None,
        wanted: Wanted,
        regions: int | None,
        fields: Sequence[str] | None,
        key_format: KeyFormat,
    ) -> None:
        self._path = path
        starts = array("q")
        ids: list[bytes] = []
        most = 0
        for number, start, line in _lines(path):
            cells = line.split(b"\t")
            if number == 1:
                names, is_header = _header(cells, fields, path)
                key, count = _columns(names, path)
                if is_header:
                    continue
            if len(cells) != len(names):
                raise InputError(
                    f"{path}:{number} should have {len(names)} columns, {', '.join(names)}, but has {len(cells)}. Is "
                    "the file cut off?"
                )
            starts.append(start)
            ids.append(cells[key])
            most = max(most, _plausible(cells[count], line))
        if not ids:
            raise InputError(f"{path} should hold features of images, but holds none.")
        self._names = names
        chosen, places = find_wanted(keys_of(ids, key_format, path), keys, path)
        self._starts = [None if place is None else starts[place] for place in places]
        plan = {"arrays": sample_digest(path), "fields": list(names)}
        super().__init__(chosen, wanted, most if regions is None else regions, plan)

    def place(self, row: int) -> object:
        """The file and the image."""
        return f"{self._path} ({self.keys[row]})"

    def names(self, row: int) -> list[str]:
        """The columns."""
        return [name for name in self._names if name not in KEYS]

    def read(self, row: int, names: Sequence[tuple[str, str | None]]) -> list[np.ndarray]:
        """Arrays of one line."""
        start = self._starts[row]
        if start is None:
            raise UnreadableArray("missing")
        with open_file(self._path) as file:
            file.seek(start)
            cells = dict(zip(self._names, file.readline().rstrip(b"\r\n").split(b"\t")))
        place = self.place(row)
        count = count_regions(cells, place)
        return [
            decode(cells[the_only(list(cells), name, place, choice)], choice, count, place) for choice, name in names
        ]


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, start and content of each line."""
    try:
        with open_file(path) as file:
            start = 0
            for number, line in enumerate(file, 1):
                yield number, start, line.rstrip(b"\r\n")
                start += len(line)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error


def _plausible(cell: bytes, line: bytes) -> int:
    """The number of regions in a cell, or 0 where it can't be one: each takes some bytes of its line."""
    number = int(cell) if cell.isdigit() and len(cell) <= len(str(len(line))) else 0
    return number if number <= len(line) else 0


def _header(cells: list[bytes], fields: Sequence[str] | None, path: Path) -> tuple[list[str], bool]:
    """Names of the columns, and whether the first line has them."""
    first = [cell.decode("utf-8", "replace") for cell in cells]
    is_header = any(cell in KNOWN["array"] for cell in first)
    if fields is not None:
        names = list(fields)
    elif is_header:
        names = first
    elif len(cells) in _LAYOUTS:
        names = list(_LAYOUTS[len(cells)])
    else:
        known = " or ".join(f"{len(layout)} ({', '.join(layout)})" for layout in _LAYOUTS.values())
        raise InputError(
            f"{path} should have a first line with the names of its columns, or {known}, but has {len(cells)}. "
            "Name them.",
            "fields",
        )
    if len(set(names)) < len(names):
        raise InputError(f"columns of {path} should have a name each, but are {', '.join(names)}.", "fields")
    return names, is_header


def _columns(names: list[str], path: Path) -> tuple[int, int]:
    """Where the image's id and the number of its regions stand."""
    places = []
    for what, known in (("an image's id", KEYS), ("the number of its regions", KNOWN[COUNT])):
        place = next((names.index(name) for name in known if name in names), None)
        if place is None:
            raise InputError(
                f"{path} should have a column with {what}, named {' or '.join(known)}, but has {', '.join(names)}.",
                "fields",
            )
        places.append(place)
    return places[0], places[1]
