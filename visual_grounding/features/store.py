"""The feature store: every image of a collection as one row of a memory-mapped array.

Nothing here reads a whole store: opening costs the same for ten images and for ten million.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..storage.artefact import META, Keys, check_array_whole, check_fields, open_array, read_meta
from ..storage.lines import read_lines
from .columns import COLUMNS, NAMES, Columns, check_values, unfit

FEATURE_STORE = "feature-store"
ARRAYS_DIGITS = 16  # of the digest of imported arrays, in a signature
AGAIN = "Delete the store, and extract or import it again."


class FeatureStore:
    """Features of I images, R regions each, F numbers a region.

    A region whose features are all zero is absent: so an unreadable image, or a detector that found fewer than R
    regions, needs no second file. `features/columns.py` says what else may be known of a region.

    Attributes:
        features: (I, R, F) float16, memory-mapped.
        columns: names of the optional columns that this store has, of boxes, labels, attributes, scores.
        label_names: what the numbers of labels stand for; empty where there are none.
        attribute_names: likewise.
        keys_sha256: digest of `keys.txt`: the identity of the collection.
        signature: how the features were made (`storage/signature.py` explains the three identities).
        plan: every choice and input that decided its bytes, such as `weights` and `pool`; empty where nothing says.
        digest: of the plan: other features of the same images differ in it.

    Raises:
        InputError: the folder isn't a whole feature store, or a column isn't what `meta.json` says.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        counts = {"images": int, "regions": int, "size": int}
        meta = read_meta(self.folder, FEATURE_STORE, **counts, keys_sha256=str, signature=str)
        self.keys_sha256: str = meta["keys_sha256"]
        self.has_absent: bool = any(
            meta.get(name) != 0 for name in ("unreadable", "zero")
        )  # also where nothing is said
        self.plan: dict[str, Any] = meta.get("plan", {})
        self._keys = Keys(self.folder / "keys.txt", meta["images"], self.keys_sha256)
        check_fields(self.folder / META, {"plan": self.plan}, {"plan": dict})
        self.signature: str = name_arrays(meta["signature"], self.plan)
        self.digest: str = hashlib.sha256(json.dumps(self.plan, sort_keys=True).encode()).hexdigest()
        shape = (meta["images"], meta["regions"], meta["size"])
        self.features = open_array(self.folder / "features.npy", shape, "float16")
        self._described = self._read_columns(meta)
        self._columns = {
            name: open_array(self.folder / f"{name}.npy", (meta["images"], *row), dtype)
            for name, (row, dtype) in self._described.arrays(meta["regions"]).items()
        }

    def _read_columns(self, meta: dict[str, Any]) -> Columns:
        """Which columns there are, by `meta.json` and by the files; they have to agree."""
        present = meta.get("columns", [])
        if not isinstance(present, list) or present != [name for name in COLUMNS if name in present]:
            raise InputError(
                f"{self.folder / META} should have some of {', '.join(COLUMNS)} as 'columns', in this order, but has "
                f"{present!r}. {AGAIN}"
            )
        for name in COLUMNS:
            files = [f"{name}.npy", *([f"{NAMES[name]}.txt"] if name in NAMES else [])]
            stray = [file for file in files if name not in present and (self.folder / file).exists()]
            if stray:
                raise InputError(
                    f"{self.folder / stray[0]} is there, but {META} names no {name}: it isn't part of this store. "
                    "Take it away, or import the features again with it."
                )
        names = {
            NAMES[name]: read_lines(self.folder / f"{NAMES[name]}.txt", pipes=False)
            for name in present
            if name in NAMES
        }
        columns = Columns(tuple(present), **names)
        for name, digest in columns.digests().items():
            if meta.get(name) != digest:
                raise InputError(
                    f"{self.folder / name.removesuffix('_sha256')}.txt was changed after the store was made: its "
                    f"sha256 isn't that in {META}. {AGAIN}"
                )
        return columns

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder}  # numpy would pickle a memory-mapped array by value

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["folder"])  # type: ignore[misc]

    def __len__(self) -> int:
        return self.features.shape[0]

    def __repr__(self) -> str:
        images, regions, size = self.features.shape
        return f"<feature store of {images} images, {regions} regions of {size} numbers each: {self.folder}>"

    @property
    def num_regions(self) -> int:
        """R, regions per image."""
        return self.features.shape[1]

    @property
    def feature_size(self) -> int:
        """F, numbers per region."""
        return self.features.shape[2]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the optional columns that there are."""
        return self._described.present

    @property
    def label_names(self) -> list[str]:
        """What the numbers of labels stand for."""
        return list(self._described.label_names)

    @property
    def attribute_names(self) -> list[str]:
        """What the numbers of attributes stand for."""
        return list(self._described.attribute_names)

    def gather(self, ids: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Look images up.

        Shapes:
            ids: (...,) integers, −1 for no image; an array or lists.
            returns: features (..., R, F) float16, zero where absent; padding mask (..., R) bool, True where absent.

        Raises:
            InputError: a row outside the store, a feature that is NaN or infinite, or a file cut short meanwhile.
        """
        ids = _rows_of(ids)
        features = self._rows("features", self.features, ids)
        features[ids < 0] = 0
        # The sum is finite only where every number is; float32, because float16 would overflow.
        with np.errstate(invalid="ignore"):  # of infinity less infinity
            total = features.sum(dtype=np.float32)
        if not np.isfinite(total):
            bad = ids[~np.isfinite(features).all(axis=(-2, -1))]
            if bad.size:
                row = int(bad.flat[0])
                raise InputError(
                    f"{self.folder}: the features of row {row} ({self.key(row)}) hold NaN or infinity; "
                    f"{bad.size} such images in this batch. {AGAIN}"
                )
        return features, ~features.any(axis=-1)

    def absent(self, rows: np.ndarray) -> np.ndarray:
        """Which images have no region at all: they couldn't be read, or nothing was found in them.

        The first region is looked at, and the others where that is absent: regions stand best first.

        Shapes:
            rows: (n,), none of them −1
            returns: (n,) bool

        Raises:
            InputError: a row outside the store, or a file cut short meanwhile.
        """
        check_array_whole(self.features)
        found = np.zeros(len(rows), dtype=bool)
        for start in range(0, len(rows), 1024):
            part = _rows_of(rows[start : start + 1024])
            empty = ~self._rows("features", self.features[:, 0], part).any(axis=-1)
            empty[empty] = ~self._rows("features", self.features, part[empty]).any(axis=(-2, -1))
            found[start : start + 1024] = empty
        return found

    def present_rows(self, keys: Iterable[str]) -> tuple[dict[str, int], set[str]]:
        """Rows of those of these keys of which there is something, and those that couldn't be read: not to be found."""
        rows = self.rows_of(keys)
        if not rows or not self.has_absent:
            return rows, set()
        absent = self.absent(np.fromiter(rows.values(), dtype=np.int64, count=len(rows)))
        gone = {key for key, none in zip(rows, absent.tolist()) if none}
        return {key: row for key, row in rows.items() if key not in gone}, gone

    def column(self, name: str) -> np.ndarray:
        """One of the optional columns, memory-mapped.

        Shapes:
            returns: (I, R, 4) for boxes, else (I, R)

        Raises:
            InputError: the store doesn't have it.
        """
        self._check_columns([name])
        return self._columns[name]

    def highest_score(self) -> float:
        """Of all regions that there are; 0 where there is none.

        Raises:
            InputError: the store has no scores.
        """
        scores = self.column("scores")  # (I, R), 0 where absent
        return float(scores.max()) if scores.size else 0.0

    def gather_columns(self, ids: ArrayLike, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Look up what the optional columns say of images.

        An absent region, and every region of no image, has a box and a score of 0 and −1 as label and attribute.

        Args:
            names: which columns; None for all that there are.

        Shapes:
            ids: (...,) integers, −1 for no image; an array or lists.
            returns: boxes (..., R, 4) float32; labels and attributes (..., R) int32; scores (..., R) float16

        Raises:
            InputError: a column that the store doesn't have, a row outside the store, a value that the column can't
                have, or a file cut short meanwhile.
        """
        self._check_columns(names or ())
        ids = _rows_of(ids)
        found = {}
        for name in self.columns if names is None else names:
            values = self._rows(name, self._columns[name], ids)
            values[ids < 0] = COLUMNS[name].absent
            bad = unfit(name, values, len(self._described.names_of(name)))
            if bad.any():
                self._refuse(name, int(ids[bad.any(axis=-1)].flat[0]))
            found[name] = values
        return found

    def _check_columns(self, names: Sequence[str]) -> None:
        lacking = [name for name in names if name not in self.columns]
        if lacking:
            has = ", ".join(self.columns) or "features alone"
            raise InputError(f"{self.folder} should have {', '.join(lacking)}, but has {has}.")

    def _rows(self, name: str, array: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """A copy of some rows of one array; those of −1 hold anything."""
        check_array_whole(array)
        if ids.size and (ids.max() >= len(self) or ids.min() < -1):
            worst = int(ids.max() if ids.max() >= len(self) else ids.min())
            raise InputError(
                f"image ids refer to row {worst}, but {self.folder} has {len(self)} images (rows 0..{len(self) - 1})."
            )
        rows = array[np.maximum(ids, 0)] if len(self) else np.zeros((*ids.shape, *array.shape[1:]), array.dtype)
        return rows if rows.flags.writeable else rows.copy()  # numpy copies no single row

    def _refuse(self, name: str, row: int) -> None:
        columns, key = {name: np.array(self._columns[name][row : row + 1])}, self.key(row)
        try:
            check_values(columns, self._described, np.ones((1, self.num_regions), dtype=bool), [key], row)
        except InputError as error:
            raise InputError(f"{self.folder}: {error} {AGAIN}") from error

    def keys(self) -> Keys:
        """Image keys in row order: read from disk one by one, or by row, `keys()[3]`.

        Raises:
            InputError: as `read_keys`.
        """
        return self._keys

    def key(self, row: int) -> str:
        """The key of one row.

        Raises:
            InputError: as `keys`.
        """
        found = [key for number, key in enumerate(self.keys()) if number == row]  # to the end: it is checked there
        return found[0] if found else "without a key"

    def rows_of(self, wanted: Iterable[str]) -> dict[str, int]:
        """Rows of the wanted keys; a key that the store doesn't have is left out.

        Raises:
            InputError: as `keys`; a single text, whose letters would be keys.
        """
        if isinstance(wanted, str):
            raise InputError(f"keys should be a list of texts, but are one: [{wanted!r}] is a list of it.")
        wanted = set(wanted)
        return {key: row for row, key in enumerate(self.keys()) if key in wanted}


def name_arrays(signed: str, plan: Mapping[str, Any]) -> str:
    """A signature that says of imported features which arrays they were.

    Version 0.1.0 wrote none of it, so that any two imports seemed to be made alike; its plan knows.

    >>> name_arrays("import|images:9|normalise:no|version:0.1.0", {"arrays": "32cc99e31f84d304ce3b79a5"})
    'import|images:9|normalise:no|arrays:32cc99e31f84d304|version:0.1.0'
    """
    stage, *fields = signed.split("|")
    said = {field.partition(":")[0] for field in fields}
    if stage != "import" or said & {"arrays", "made_by"} or "arrays" not in plan or "version" not in said:
        return signed
    return "|".join([stage, *fields[:-1], f"arrays:{str(plan['arrays'])[:ARRAYS_DIGITS]}", fields[-1]])


def _rows_of(ids: ArrayLike) -> np.ndarray:
    """Rows as an array of integers, whatever holds them.

    Raises:
        InputError: they aren't integers.
    """
    try:
        rows = np.asarray(ids)
    except ValueError as error:
        raise InputError("image ids should have as many rows for each sentence, but haven't.") from error
    if rows.size == 0:
        return rows.astype(np.int64)
    if rows.dtype.kind not in "iu":
        raise InputError(f"image ids should be rows, integers, but are {rows.dtype}: {rows.flat[0]!r}")
    return rows
