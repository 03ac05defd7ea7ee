"""HDF5 of region features, in the forms in which they were published.

Tables: features (I, R, F) with boxes (I, R, 4) and maybe num_boxes (I,); or features (N, F) of the regions of all
images one behind the other, with pos_boxes (I, 2), where each image's begin and end. One image each: a group with its
arrays, arrays named ID_features, ID_boxes …, or an array of features alone.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import InputError, in_short
from ...storage.outside import check_file
from ..array_files import UnreadableArray, sample_digest
from .field_names import FEATURES, KEYS, KNOWN, Wanted
from .image_files import as_numbers
from .image_keys import KeyFormat, find_wanted, keys_of
from .records import Records, the_only

SUFFIXES = (".h5", ".hdf5", ".hdf")
POSITIONS = "pos_boxes"
_ENDING = "_features"
_MOST_PACKED = 2000  # bytes that a stored one may stand for: deflate reaches 1032


class _Form(Protocol):
    """How images lie in the file: ids of its images (None where it doesn't say), and arrays of one of them."""

    ids: list[Any] | None
    most: int | None

    def names(self, place: int) -> list[str]:
        """Arrays that there are of an image."""

    def read(self, place: int, name: str) -> Any:
        """One of them."""


class _Inside:
    """A group of a file, of which nothing leads out of the file, and no array is larger than what is stored of it.

    Raises:
        InputError: on access to what does: a link, an array whose numbers lie elsewhere, or were never written.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self.name: str = group.name
        self.attrs = group.attrs
        self.filename: str = group.file.filename

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)

    def __contains__(self, name: str) -> bool:
        return name in self._group

    def keys(self) -> list[str]:
        return list(self._group)

    def __getitem__(self, name: str) -> Any:
        import h5py

        if not isinstance(self._group.get(name, getlink=True), h5py.HardLink):
            raise InputError(f"{self.filename} should hold its arrays itself, but {name} is a link to another place.")
        found = self._group[name]
        if isinstance(found, h5py.Group):
            return _Inside(found)
        if isinstance(found, h5py.Dataset):
            if found.external or found.is_virtual:
                raise InputError(
                    f"{self.filename} should hold its arrays itself, but the numbers of {name} lie in other files."
                )
            size, stored = (found.size or 0) * found.dtype.itemsize, found.id.get_storage_size()
            if size > _MOST_PACKED * (stored + 8):
                raise InputError(
                    f"{self.filename} should hold what it says, but of {name}, {size} bytes, there are {stored}."
                )
        return found


class _Tables:
    """Rows of arrays of all images."""

    def __init__(self, file: _Inside, features: str, path: Path) -> None:
        import h5py

        self._file = file
        arrays, refused = {}, []
        for name in file:
            try:
                value = file[name]
            except InputError:
                if name in (features, POSITIONS, *KEYS):
                    raise
                refused.append(name)  # it may be of no interest; who reads it is told
                continue
            if isinstance(value, h5py.Dataset) and value.ndim:
                arrays[name] = value
        table = arrays[features]
        self._positions: np.ndarray | None = None
        self.images = table.shape[0]
        self.most: int | None = table.shape[1] if table.ndim == 3 else 1
        if POSITIONS in arrays:
            self._positions = positions = _checked(arrays.pop(POSITIONS)[:], table.shape[0], path)
            self.images, self.most = len(positions), int((positions[:, 1] - positions[:, 0]).max())
        self._rows = {self.images, table.shape[0]}
        self._arrays = arrays  # checked: HDF5 looks through all parts of an array to say how much is stored
        self._names = [*(name for name in arrays if name not in KEYS), *refused]
        listed = next((name for name in KEYS if name in arrays), None)
        if listed is not None and len(arrays[listed]) != self.images:
            raise InputError(f"{path} has features of {self.images} images, but {len(arrays[listed])} {listed}.")
        self.ids = None if listed is None else list(arrays[listed][:])

    def names(self, place: int) -> list[str]:
        return self._names

    def read(self, place: int, name: str) -> Any:
        array = self._arrays[name] if name in self._arrays else self._file[name]
        if len(array) not in self._rows:
            rows = " or ".join(map(str, sorted(self._rows)))
            raise InputError(
                f"{self._file.filename} should have {rows} rows in each of its tables, as its features have, but "
                f"{name} has {len(array)}."
            )
        if self._positions is None or (len(array) == self.images and array.ndim == 1):
            return array[place]
        begin, end = self._positions[place]
        return array[begin:end]


def _checked(found: np.ndarray, regions: int, path: Path) -> np.ndarray:
    fits = found.ndim == 2 and found.shape[1] == 2 and found.dtype.kind in "iu" and bool(len(found))
    if not fits or (found[:, 0] > found[:, 1]).any() or found.min() < 0 or found.max() > regions:
        raise InputError(
            f"{path}: {POSITIONS} should be (I, 2), where each image's regions begin and end among {regions}, but are "
            f"{found.shape}, {found.dtype}{f', from {found.min()} to {found.max()}' if found.size else ''}."
        )
    return found


class _Groups:
    """A group for each image, its sizes maybe as attributes."""

    most: int | None = None

    def __init__(self, file: _Inside) -> None:
        self._file = file
        self.ids: list[Any] | None = list(file)

    def names(self, place: int) -> list[str]:
        group = self._group(place)
        return [*group, *group.attrs]

    def read(self, place: int, name: str) -> Any:
        group = self._group(place)
        return group[name][()] if name in group else group.attrs[name]

    def _group(self, place: int) -> Any:
        group = self._file[(self.ids or [])[place]]
        if not hasattr(group, "keys"):
            raise InputError(f"{self._file.filename} should have a group for each image, but {group.name} is none.")
        return group


class _Named:
    """Arrays named ID_features, ID_boxes …"""

    most: int | None = None

    def __init__(self, file: _Inside) -> None:
        self._file = file
        everything = list(file)
        self.ids: list[Any] | None = [name.removesuffix(_ENDING) for name in everything if name.endswith(_ENDING)]
        # An id may have underscores, too: what arrays are called is what follows one of an image.
        start = f"{self.ids[0]}_"
        self._endings = [name.removeprefix(start) for name in everything if name.startswith(start)]

    def names(self, place: int) -> list[str]:
        return [ending for ending in self._endings if f"{(self.ids or [])[place]}_{ending}" in self._file]

    def read(self, place: int, name: str) -> Any:
        return self._file[f"{(self.ids or [])[place]}_{name}"][()]


class _FeaturesAlone:
    """An array for each image."""

    most: int | None = None

    def __init__(self, file: _Inside) -> None:
        self._file = file
        self.ids: list[Any] | None = list(file)

    def names(self, place: int) -> list[str]:
        return ["features"]

    def read(self, place: int, name: str) -> Any:
        return self._file[(self.ids or [])[place]][()]


class RegionHdf5(Records):
    """Such a file.

    Args:
        path: the file.
        keys: which images, in which order, or None for all; of tables without ids, the key of each row.
        wanted: which arrays are what.
        regions: the most that an image shall have; None for as many as tables say, else as `Records`.
        key_format: how ids become keys.

    Raises:
        InputError: it is no HDF5, h5py isn't installed, its tables disagree, nothing says which image a row is, or as
            `Records`.
    """

    def __init__(
        self, path: Path, keys: list[str] | None, wanted: Wanted, regions: int | None, key_format: KeyFormat
    ) -> None:
        try:
            import h5py
        except ImportError as error:
            raise InputError(
                f"{path} is read with h5py, which isn't installed. Install it: pip install 'visual_grounding[imports]'"
            ) from error
        self._path = path
        try:
            check_file(path)
            self._form = _form_of(_Inside(h5py.File(path, "r")), wanted, path)
        except InputError:
            raise
        except Exception as error:  # h5py fails in many ways on a broken file
            raise InputError(f"{path} should be HDF5, but can't be read: {in_short(error)}.") from error
        if self._form.ids is None and isinstance(self._form, _Tables):
            found = _rows(keys, self._form.images, path)
            chosen = found
            self._places: list[int | None] = list(range(len(found)))
        else:
            chosen, self._places = find_wanted(keys_of(self._form.ids or [], key_format, path), keys, path)
        most = self._form.most if regions is None else regions
        super().__init__(chosen, wanted, most, {"arrays": sample_digest(path)})

    def place(self, row: int) -> object:
        """The file and the image."""
        return f"{self._path} ({self.keys[row]})"

    def names(self, row: int) -> list[str]:
        """What is known of an image."""
        try:
            return self._form.names(self._place(row))
        except (InputError, UnreadableArray):
            raise
        except Exception as error:
            raise UnreadableArray(f"broken or truncated: {in_short(error)}") from error

    def read(self, row: int, names: Sequence[tuple[str, str | None]]) -> list[np.ndarray]:
        """Arrays of an image."""
        place, where = self._place(row), self.place(row)
        there = self.names(row)
        try:
            return [
                as_numbers(self._form.read(place, the_only(there, name, where, choice)), where)
                for choice, name in names
            ]
        except (InputError, UnreadableArray):
            raise
        except Exception as error:  # a broken chunk, a filter that isn't there
            raise UnreadableArray(f"broken or truncated: {in_short(error)}") from error

    def _place(self, row: int) -> int:
        place = self._places[row]
        if place is None:
            raise UnreadableArray("missing")
        return place


def _form_of(file: _Inside, wanted: Wanted, path: Path) -> _Form:
    names = list(file)
    if not names:
        raise InputError(f"{path} should hold features of images, but is empty.")
    known = KNOWN[FEATURES] if wanted.features is None else (wanted.features,)
    features = next((name for name in known if name in file), None)
    if features is not None and not hasattr(file[features], "keys"):
        if getattr(file[features], "ndim", 0) not in (2, 3):
            raise InputError(
                f"{path}: {features} should have shape (I, F), (I, R, F) or (N, F), but has {file[features].shape}.",
                FEATURES,
            )
        return _Tables(file, features, path)
    if hasattr(file[names[0]], "keys"):
        return _Groups(file)
    return _Named(file) if any(name.endswith(_ENDING) for name in names) else _FeaturesAlone(file)


def _rows(keys: list[str] | None, images: int, path: Path) -> list[str]:
    if keys is None:
        raise InputError(
            f"{path} doesn't say which image each of its {images} rows is (none of {', '.join(KEYS)} is there). Give "
            "a file with a key a line, or the pickle of ids and rows that came with it.",
            "keys",
        )
    if len(keys) != images:
        raise InputError(
            f"{path} has {images} rows, but there are {len(keys)} keys. Which line belongs to which row?", "keys"
        )
    return keys
