"""Features and columns that people already have, block by block: only a file of a single image is read whole.

Three forms: one `.npy` for a collection, one `.pt`/`.pth` tensor for a collection, or a folder with one `.npy`, `.npz`
or `.pt` per image. Beside one array for the collection, columns are arrays of their own; in a folder they are arrays of
the same file, by name.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..errors import InputError
from ..images.sources import check_keys
from ..storage.artefact import check_whole
from ..storage.lines import read_lines
from .array_files import (
    TORCH_SUFFIXES,
    UnreadableArray,
    as_numpy,
    check_float,
    map_array,
    read_arrays,
    sample_digest,
    stored_bytes,
)
from .columns import COLUMNS, NAMES, NO_LABEL

IMAGE_SUFFIXES = (".npy", ".npz", *TORCH_SUFFIXES)
SIZES = "box_sizes"
_SAMPLED_FILES = 64


class Block(NamedTuple):
    """Some images.

    Attributes:
        features: (images, R, F).
        columns: name -> (images, R, ...), as they were found.
        sizes: (images, 2), width and height of the pictures, 1 where unreadable; None where they weren't asked for.
        unreadable: row -> why there is nothing.
    """

    features: np.ndarray
    columns: dict[str, np.ndarray]
    sizes: np.ndarray | None
    unreadable: dict[int, str]


class ArraySource(Protocol):
    """Features of I images, and columns beside them.

    Attributes:
        keys: one per image.
        regions: R, the most that an image has.
        size: F.
        columns: names of the columns that a block has.
        plan: digests of enough of it to notice other input, and the choices of what is read.
    """

    keys: Sequence[str]
    regions: int
    size: int
    columns: tuple[str, ...]
    plan: dict[str, Any]

    def block(self, start: int, stop: int) -> Block:
        """Some rows."""
        ...


class CollectionArray:
    """One array for the whole collection, memory-mapped: (I, F), (I, R, F), or (I, F, h, w) with channels first.

    Args:
        beside: column -> file of (I, R, 4) for boxes, else (I, R); `box_sizes` -> file of (I, 2).

    Raises:
        InputError: a file can't be read, isn't such an array, or has another number of rows than there are keys.
    """

    def __init__(
        self, path: Path, keys: list[str], array_name: str | None, channels_first: bool, beside: Mapping[str, Path]
    ) -> None:
        self._files = {"features": (path, map_array(path, array_name))}
        self._channels_first = channels_first
        array = self._files["features"][1]
        shape = tuple(array.shape)
        check_float(array, path)
        if len(shape) not in ((3, 4) if channels_first else (2, 3)) or 0 in shape:
            wanted = "(I, F, h, w) or (I, F, R) with channels first" if channels_first else "(I, F) or (I, R, F)"
            hint, *choices = _four_axes(shape, channels_first)
            raise InputError(f"{path} should have shape {wanted}, none of them 0, but has {shape}.{hint}", *choices)
        if shape[0] != len(keys):
            raise InputError(
                f"{path} has {shape[0]} rows, but there are {len(keys)} keys. Which line belongs to which row?"
            )
        self.keys: Sequence[str] = keys
        _, self.regions, self.size = regions_first(array[:1], channels_first).shape
        self.columns = tuple(name for name in COLUMNS if name in beside)
        self.plan: dict[str, Any] = {"arrays": sample_digest(path), **_reading(array_name, channels_first)}
        for name, file in beside.items():
            self._files[name] = (file, map_array(file, None))
            check_kind(self._files[name][1], name, file)
            self._check_shape(name)
            self.plan[name] = sample_digest(file)

    def _check_shape(self, name: str) -> None:
        path, array = self._files[name]
        tail = (2,) if name == SIZES else (self.regions, *COLUMNS[name].shape)
        expected = (len(self.keys), *tail)
        if tuple(array.shape) != expected:
            raise InputError(
                f"{path} should have shape {expected}, since there are features of {self.regions} regions of "
                f"{len(self.keys)} images, but has {tuple(array.shape)}.",
                name,
            )

    def block(self, start: int, stop: int) -> Block:
        """Some rows; none is unreadable."""
        found = {}
        for name, (path, array) in self._files.items():
            check_whole(path, stored_bytes(array))
            rows = array[start:stop]
            found[name] = regions_first(rows, self._channels_first) if name == "features" else np.array(as_numpy(rows))
        return Block(found.pop("features"), found, found.pop(SIZES, None), {})


class ImageArrays:
    """A folder with one file per image: (F,), (R, F), or (F, h, w) with channels first.

    Args:
        folder: searched with its sub-folders; key = path relative to it, without .npy, .npz, .pt or .pth.
        keys: which images, in which order; None for all there are, sorted.
        regions: R; images with fewer are filled up with zeros, that is, absent regions. None: all must have as many
            as the first.
        beside: column -> name of an array in each file, (R, 4) for boxes, else (R,).
        sizes: names of the picture's width and height in each file; none where boxes are in 0..1 already.

    Raises:
        InputError: no file fits, or two files have the same key.
    """

    def __init__(
        self,
        folder: Path,
        keys: list[str] | None,
        array_name: str | None,
        channels_first: bool,
        regions: int | None,
        beside: Mapping[str, str],
        sizes: Sequence[str],
    ) -> None:
        paths = _files_by_key(folder)
        self.keys: Sequence[str] = sorted(paths) if keys is None else keys
        self._paths = [paths.get(key) for key in self.keys]
        present = [path for path in self._paths if path is not None]
        if not present:
            example = (
                f" A file there is {min(paths)!r} by its key, the first key wanted is {self.keys[0]!r}."
                if paths and self.keys
                else ""
            )
            raise InputError(
                f"{folder} should have one {', '.join(IMAGE_SUFFIXES)} file per image, but has none that fits.{example}"
            )
        self._array_name, self._channels_first = array_name, channels_first
        self.columns = tuple(name for name in COLUMNS if name in beside)
        self._beside, self._sizes = {name: beside[name] for name in self.columns}, tuple(sizes)
        self._first, (found, self.size) = self._first_readable(present)
        self._fixed = regions is None
        self.regions = found if regions is None else regions
        if self.regions < 1:
            raise InputError(f"{self._first} has no region. Say the most that an image has.", "regions")
        digest = hashlib.sha256()
        for key, path in zip(self.keys, self._paths, strict=True):
            digest.update(f"{key}\t{path.stat().st_size if path else -1}\n".encode())
        for path in present[:: -(-len(present) // _SAMPLED_FILES)]:
            digest.update(sample_digest(path).encode())
        self.plan: dict[str, Any] = {
            "arrays": digest.hexdigest(),
            **_reading(array_name, channels_first),
            **self._beside,
            **({SIZES: list(self._sizes)} if self._sizes else {}),
        }

    def _first_readable(self, paths: list[Path]) -> tuple[Path, tuple[int, int]]:
        for path in paths:
            try:
                features = self._read(path)[0]
                return path, (features.shape[0], features.shape[1])
            except UnreadableArray as error:
                reason = str(error)
        raise InputError(f"All {len(paths)} files are unreadable; the first is {paths[0]} ({reason}).")

    def _read(self, path: Path) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray | None]:
        """Features (R, F), columns (R, ...), and width and height (2,) of one image."""
        sizes_asked = [(SIZES, name) for name in self._sizes]
        array, *others = read_arrays(path, [("array", self._array_name), *self._beside.items(), *sizes_asked])
        check_float(array, path)
        if array.ndim not in ((2, 3) if self._channels_first else (1, 2)) or 0 in array.shape[-1:]:
            wanted = "(F, h, w) or (F, R) with channels first" if self._channels_first else "(F,) or (R, F)"
            hint, *choices = _four_axes((1, *array.shape), self._channels_first)
            raise InputError(f"{path} should have shape {wanted}, but has {array.shape}.{hint}", *choices)
        features = regions_first(array[None], self._channels_first)[0]
        columns = dict(zip(self._beside, others))
        for name, values in columns.items():
            check_kind(values, name, path)
            expected = (len(features), *COLUMNS[name].shape)
            if values.shape != expected:
                raise InputError(
                    f"{path} should hold {name} of shape {expected}, since it has features of {len(features)} regions, "
                    f"but {self._beside[name]} has {values.shape}.",
                    name,
                )
        if not self._sizes:
            return features, columns, None
        sides = [np.atleast_1d(side) for side in others[len(columns) :]]
        for side in sides:
            check_kind(side, SIZES, path)
        sizes = np.concatenate([side.ravel() for side in sides]).astype(np.float64)
        if sizes.shape != (2,):
            raise InputError(
                f"{path} should hold a width and a height, but {' and '.join(self._sizes)} are {len(sizes)} numbers.",
                SIZES,
            )
        return features, columns, sizes

    def block(self, start: int, stop: int) -> Block:
        """Some images, and which of these are unreadable."""
        count = stop - start
        block = np.zeros((count, self.regions, self.size), np.float32)
        columns = {name: _empty(name, count, self.regions) for name in self.columns}
        sizes = np.ones((count, 2)) if self._sizes else None
        unreadable: dict[int, str] = {}
        for row in range(start, stop):
            path = self._paths[row]
            try:
                if path is None:
                    raise UnreadableArray("missing")
                features, found, size = self._read(path)
            except UnreadableArray as error:
                unreadable[row] = str(error)
                continue
            self._check_shape(features.shape, path)
            place, regions = row - start, len(features)
            block[place, :regions] = features
            for name, values in found.items():
                columns[name][place, :regions] = values
            if sizes is not None and size is not None:
                sizes[place] = size
        return Block(block, columns, sizes, unreadable)

    def _check_shape(self, shape: tuple[int, ...], path: Path) -> None:
        if shape[1] != self.size:
            raise InputError(
                f"All images should have features of one size, but {self._first} has {self.size} and {path} {shape[1]}."
            )
        if self._fixed and shape[0] != self.regions:
            raise InputError(
                f"{self._first} has {self.regions} regions, but {path} has {shape[0]}. Where images differ, say the "
                "most that one has.",
                "regions",
            )
        if shape[0] > self.regions:
            raise InputError(
                f"images should have {self.regions} regions at most, as was said, but {path} has {shape[0]}.", "regions"
            )


def open_arrays(
    path: str | Path,
    keys: str | Path | None = None,
    array_name: str | None = None,
    channels_first: bool = False,
    regions: int | None = None,
    beside: Mapping[str, str] | None = None,
) -> ArraySource:
    """Open features in any of the three forms.

    Args:
        beside: column, or `box_sizes`, -> a file, or for a folder the name of an array in each image's file; there
            `box_sizes` are one name of two numbers or two names: WIDTH,HEIGHT.

    Raises:
        InputError: no such file, an unknown form, broken keys, or as the form's class.
    """
    path, beside = Path(path), dict(beside or {})
    names = None if keys is None else read_lines(keys)
    if names is not None and keys is not None:
        if not names:
            raise InputError(f"{keys} should have one image key a line, but is empty.")
        check_keys(names, keys)
    if not path.exists():
        raise InputError(
            f"{path} should be a .npy, .pt or .pth file, or a folder of one file per image, but doesn't exist."
        )
    if path.is_dir():
        if regions is not None and regions < 1:
            raise InputError(f"the most regions of an image should be at least 1, but are {regions}.", "regions")
        _refuse_files(beside, path)
        sizes = [name for name in beside.pop(SIZES, "").split(",") if name]
        source = ImageArrays(path, names, array_name, channels_first, regions, beside, sizes)
        check_keys(source.keys, path)
        return source
    if path.suffix not in (".npy", *TORCH_SUFFIXES):
        hint = " Save its array by numpy.save: a .npz can't be read piece by piece." if path.suffix == ".npz" else ""
        raise InputError(f"{path} should end in .npy, .pt or .pth, or be a folder of one file per image.{hint}")
    if regions is not None:
        raise InputError(
            f"{regions} regions at most is for a folder of one file per image, but {path} is one array.", "regions"
        )
    if names is None:
        raise InputError(f"{path} needs the image key of each row: a file with one key a line.", "keys")
    files = {name: Path(file) for name, file in beside.items()}
    for name, file in files.items():
        if not file.is_file():
            raise InputError(f"{name.replace('_', ' ')} should be a .npy file beside {path}, but {file} is none.", name)
    return CollectionArray(path, names, array_name, channels_first, files)


def regions_first(array: Any, channels_first: bool) -> np.ndarray:
    """Copy a piece of an array (numpy or torch) into the store's order.

    Shapes:
        array: (n, F), (n, R, F); with channels first (n, F, R), (n, F, h, w)
        returns: (n, R, F), regions of a map row by row from the top left
    """
    array = as_numpy(array)
    if channels_first:
        array = array.reshape(*array.shape[:2], -1).swapaxes(1, 2)
    return np.array(array[:, None] if array.ndim == 2 else array)


def check_kind(array: Any, name: str, path: Path) -> None:
    """Refuse a column of another kind of numbers, from numpy or torch.

    Raises:
        InputError: with the type found.
    """
    found = array.dtype.name if isinstance(array, np.ndarray) else str(array.dtype).removeprefix("torch.")
    whole = found.startswith(("int", "uint"))
    if not (whole or (name not in NAMES and found.startswith(("float", "bfloat")))):
        kind = "whole numbers" if name in NAMES else "numbers"
        raise InputError(f"{path} should hold {kind} as {name.replace('_', ' ')}, but holds {found}.", name)


def _empty(name: str, images: int, regions: int) -> np.ndarray:
    """A column of nothing but absent regions, wide enough for any input."""
    shape = (images, regions, *COLUMNS[name].shape)
    return np.full(shape, NO_LABEL, np.int64) if name in NAMES else np.zeros(shape)


def _reading(array_name: str | None, channels_first: bool) -> dict[str, Any]:
    """What the plan says of how the arrays are read; nothing where nothing was chosen, as plans always were."""
    return {**({"array": array_name} if array_name else {}), **({"channels_first": True} if channels_first else {})}


def _refuse_files(beside: Mapping[str, str], folder: Path) -> None:
    for name, array in beside.items():
        if Path(array).suffix in IMAGE_SUFFIXES:
            raise InputError(
                f"{name.replace('_', ' ')} should be the name of an array in each file of {folder}, since that is a "
                f"folder of one file per image, but are {array}.",
                name,
            )


def _files_by_key(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in _files_below(folder):
        key = os.path.relpath(path, folder).removesuffix(path.suffix)
        if key in found:
            raise InputError(
                f"{folder} should have one file per image, but {found[key].name} and {path.name} are both of {key}."
            )
        found[key] = path
    return found


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if name.endswith(IMAGE_SUFFIXES) and not name.startswith("."))


def _four_axes(shape: tuple[int, ...], channels_first: bool) -> tuple[str, ...]:
    """What to say, and the choice that it is about, where an array may be a map."""
    if len(shape) == 4 and not channels_first:
        return " Is it a map with channels first? Then say so.", "channels_first"
    return ("",)
