"""LMDB of region features, as ViLBERT's and VOLTA's readers have it: id -> a pickled dict of one image.

The arrays in it are numpy's or base64; `keys`, where it is there, is a pickled list of the ids. Read without running
anything (`safe_pickle.py`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, in_short
from ...storage.outside import check_file
from ..array_files import UnreadableArray, sample_digest
from .encoded import count_regions, decode
from .field_names import KEYS, Wanted
from .image_keys import KeyFormat, find_wanted, keys_of
from .records import Records, the_only
from .safe_pickle import load_numbers

_LIST = b"keys"
_DATA = "data.mdb"


def is_lmdb(path: Path) -> bool:
    """Whether a path is an LMDB: its folder, or its one file."""
    return (path / _DATA).is_file() or (path.is_file() and path.suffix in (".lmdb", ".mdb"))


class RegionLmdb(Records):
    """Such a database.

    Args:
        path: its folder or file.
        keys: which images, in which order; None for all, in its own order.
        wanted: which arrays of an image are what.
        regions: as for `Records`.
        key_format: how ids become keys.

    Raises:
        InputError: it can't be opened, lmdb isn't installed, it has none of the images wanted, or as `Records`.
    """

    def __init__(
        self, path: Path, keys: list[str] | None, wanted: Wanted, regions: int | None, key_format: KeyFormat
    ) -> None:
        try:
            import lmdb
        except ImportError as error:
            raise InputError(
                f"{path} is read with lmdb, which isn't installed. Install it: pip install 'visual_grounding[imports]'"
            ) from error
        self._path = path
        try:
            check_file(path / _DATA if path.is_dir() else path)
            self._database = lmdb.open(
                str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, create=False
            )
            _check_whole(self._database, path / _DATA if path.is_dir() else path)
            with self._database.begin() as transaction:
                listed = transaction.get(_LIST)
                ids = None if listed is None else load_numbers(listed, f"{path}, keys")
                if ids is None:
                    ids = list(transaction.cursor().iternext(values=False))
        except (lmdb.Error, UnreadableArray) as error:
            raise InputError(f"{path} should be an LMDB, but can't be read: {in_short(error)}.") from error
        if not isinstance(ids, list) or not all(isinstance(each, str | bytes | int) for each in ids):
            raise InputError(f"{path} should list its images' ids as 'keys', but that is something else.")
        chosen, places = find_wanted(keys_of(ids, key_format, path), keys, path)
        self._ids = [None if place is None else _as_bytes(ids[place]) for place in places]
        super().__init__(chosen, wanted, regions, {"arrays": sample_digest(path / _DATA if path.is_dir() else path)})

    def place(self, row: int) -> object:
        """The database and the image."""
        return f"{self._path} ({self.keys[row]})"

    def names(self, row: int) -> list[str]:
        """What is known of an image."""
        return [name for name in self._load(row) if name not in KEYS]

    def read(self, row: int, names: Sequence[tuple[str, str | None]]) -> list[np.ndarray]:
        """Arrays of an image."""
        record, place = self._load(row), self.place(row)
        count = count_regions(record, place)
        return [
            decode(record[the_only(list(record), name, place, choice)], choice, count, place) for choice, name in names
        ]

    def _load(self, row: int) -> dict[str, Any]:
        import lmdb

        identity = self._ids[row]
        try:
            with self._database.begin() as transaction:
                value = None if identity is None else transaction.get(identity)
        except lmdb.Error as error:  # a page of it is no page
            raise UnreadableArray(f"broken: {in_short(error)}") from error
        if value is None:
            raise UnreadableArray("missing")
        record = load_numbers(value, str(self.place(row)))
        if not isinstance(record, dict) or not all(isinstance(name, str) for name in record):
            raise InputError(
                f"{self.place(row)} should hold arrays by name, such as features, but holds a {type(record).__name__}. "
                "Is it a file of features?"
            )
        return record


def _check_whole(database: Any, file: Path) -> None:
    """Refuse a database whose end is missing: reading what isn't there would end the process by a signal.

    Raises:
        InputError: its file is shorter than its pages.
    """
    pages, size = database.info()["last_pgno"] + 1, file.stat().st_size
    needed = pages * database.stat()["psize"]
    if size < needed:
        raise InputError(
            f"{file} should have the {needed} bytes of its {pages} pages, but has {size}: it was cut off. Copy it "
            "again. If it is as short where it comes from, make it whole there: "
            "python -m lmdb rewrite -e FROM -E TO"
        )


def _as_bytes(identity: Any) -> bytes:
    return identity if isinstance(identity, bytes) else str(identity).encode()
