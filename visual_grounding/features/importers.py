"""Feature arrays that people already have -> feature store, streamed: only a file of a single image is read whole.

Three forms: one `.npy` for a collection, one `.pt`/`.pth` tensor for a collection, or a folder with one `.npy`, `.npz`
or `.pt` per image.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import InputError
from ..images.sources import check_keys
from ..progress import progress_bar
from ..storage.artefact import check_whole
from ..storage.ranks import this_rank
from ..storage.signature import signature
from ..text.lines import read_lines
from .array_files import (
    TORCH_SUFFIXES,
    UnreadableArray,
    as_numpy,
    check_float,
    map_array,
    read_array,
    sample_digest,
    stored_bytes,
)
from .store_writer import StoreSummary, StoreWriter

IMAGE_SUFFIXES = (".npy", ".npz", *TORCH_SUFFIXES)
NORMALISATIONS = ("no", "l2")
_SAMPLED_FILES = 64


class ArraySource(Protocol):
    """Features of I images.

    Attributes:
        keys: one per image.
        regions: R, the most that an image has.
        size: F.
        digest: of enough of it to notice other input.
    """

    keys: Sequence[str]
    regions: int
    size: int
    digest: str

    def block(self, start: int, stop: int) -> tuple[np.ndarray, dict[int, str]]:
        """Features (stop - start, R, F) of some rows, and why rows among them are unreadable."""
        ...


class CollectionArray:
    """One array for the whole collection, memory-mapped: (I, F), (I, R, F), or (I, F, h, w) with channels first.

    Raises:
        InputError: it can't be read, isn't such an array, or has another number of rows than there are keys.
    """

    def __init__(self, path: Path, keys: list[str], array_name: str | None, channels_first: bool) -> None:
        self._path, self._array = path, map_array(path, array_name)
        self._channels_first = channels_first
        shape = tuple(self._array.shape)
        check_float(self._array, path)
        if len(shape) not in ((3, 4) if channels_first else (2, 3)) or 0 in shape:
            wanted = "(I, F, h, w) or (I, F, R) with --channels-first" if channels_first else "(I, F) or (I, R, F)"
            hint = _four_axes(shape, channels_first)
            raise InputError(f"{path} should have shape {wanted}, none of them 0, but has {shape}.{hint}")
        if shape[0] != len(keys):
            raise InputError(
                f"{path} has {shape[0]} rows, but there are {len(keys)} keys. Which line belongs to which row?"
            )
        self.keys: Sequence[str] = keys
        _, self.regions, self.size = regions_first(self._array[:1], channels_first).shape
        self.digest = sample_digest(path)

    def block(self, start: int, stop: int) -> tuple[np.ndarray, dict[int, str]]:
        """Features of some rows; none is unreadable."""
        check_whole(self._path, stored_bytes(self._array))
        return regions_first(self._array[start:stop], self._channels_first), {}


class ImageArrays:
    """A folder with one file per image: (F,), (R, F), or (F, h, w) with channels first.

    Args:
        folder: searched with its sub-folders; key = path relative to it, without .npy, .npz, .pt or .pth.
        keys: which images, in which order; None for all there are, sorted.
        regions: R; images with fewer are filled up with zeros, that is, absent regions. None: all must have as many
            as the first.

    Raises:
        InputError: no file fits, or two files have the same key.
    """

    def __init__(
        self, folder: Path, keys: list[str] | None, array_name: str | None, channels_first: bool, regions: int | None
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
        self._first, (found, self.size) = self._first_readable(present)
        self._fixed = regions is None
        self.regions = found if regions is None else regions
        if self.regions < 1:
            raise InputError(f"{self._first} has no region. Give the most that an image has: --regions N")
        digest = hashlib.sha256()
        for key, path in zip(self.keys, self._paths, strict=True):
            digest.update(f"{key}\t{path.stat().st_size if path else -1}\n".encode())
        for path in present[:: -(-len(present) // _SAMPLED_FILES)]:
            digest.update(sample_digest(path).encode())
        self.digest = digest.hexdigest()

    def _first_readable(self, paths: list[Path]) -> tuple[Path, tuple[int, int]]:
        for path in paths:
            try:
                return path, self._read(path).shape
            except UnreadableArray as error:
                reason = str(error)
        raise InputError(f"All {len(paths)} files are unreadable; the first is {paths[0]} ({reason}).")

    def _read(self, path: Path) -> np.ndarray:
        """(R, F) of one image."""
        array = read_array(path, self._array_name)
        check_float(array, path)
        if array.ndim not in ((2, 3) if self._channels_first else (1, 2)) or 0 in array.shape[-1:]:
            wanted = "(F, h, w) or (F, R) with --channels-first" if self._channels_first else "(F,) or (R, F)"
            hint = _four_axes((1, *array.shape), self._channels_first)
            raise InputError(f"{path} should have shape {wanted}, but has {array.shape}.{hint}")
        return regions_first(array[None], self._channels_first)[0]

    def block(self, start: int, stop: int) -> tuple[np.ndarray, dict[int, str]]:
        """Features of some images, and which of these are unreadable."""
        block = np.zeros((stop - start, self.regions, self.size), np.float32)
        unreadable: dict[int, str] = {}
        for row in range(start, stop):
            path = self._paths[row]
            try:
                if path is None:
                    raise UnreadableArray("missing")
                features = self._read(path)
            except UnreadableArray as error:
                unreadable[row] = str(error)
                continue
            self._check_shape(features.shape, path)
            block[row - start, : len(features)] = features
        return block, unreadable

    def _check_shape(self, shape: tuple[int, ...], path: Path) -> None:
        if shape[1] != self.size:
            raise InputError(
                f"All images should have features of one size, but {self._first} has {self.size} and {path} {shape[1]}."
            )
        if self._fixed and shape[0] != self.regions:
            raise InputError(
                f"{self._first} has {self.regions} regions, but {path} has {shape[0]}. "
                "Where images differ, give the most that one has: --regions N"
            )
        if shape[0] > self.regions:
            raise InputError(f"--regions is {self.regions}, but {path} has {shape[0]} regions.")


def open_arrays(
    path: str | Path,
    keys: str | Path | None = None,
    array_name: str | None = None,
    channels_first: bool = False,
    regions: int | None = None,
) -> ArraySource:
    """Open features in any of the three forms.

    Raises:
        InputError: no such file, an unknown form, broken keys, or as the form's class.
    """
    path = Path(path)
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
            raise InputError(f"--regions should be 1 or more, but is {regions}.")
        source = ImageArrays(path, names, array_name, channels_first, regions)
        check_keys(source.keys, path)
        return source
    if path.suffix not in (".npy", *TORCH_SUFFIXES):
        hint = " Save its array by numpy.save: a .npz can't be read piece by piece." if path.suffix == ".npz" else ""
        raise InputError(f"{path} should end in .npy, .pt or .pth, or be a folder of one file per image.{hint}")
    if regions is not None:
        raise InputError(f"--regions {regions} is for a folder of one file per image, but {path} is one array.")
    if names is None:
        raise InputError(f"{path} needs the image key of each row. Give a file with one key a line: --keys FILE")
    return CollectionArray(path, names, array_name, channels_first)


def import_features(
    source: ArraySource, out: str | Path, normalise: str = "no", shard_size: int = 1024, strict: bool = False
) -> StoreSummary:
    """Write a feature store.

    Args:
        normalise: "l2" scales each region's features to length 1; zero stays zero.
        strict: the first unreadable file is an error.

    Raises:
        InputError: features that are NaN, infinite or too large for float16, files that disagree, an output that exists
            or can't be written.
    """
    if normalise not in NORMALISATIONS:
        raise InputError(f"--normalise should be one of {', '.join(NORMALISATIONS)}, but is {normalise}.")
    plan = {"arrays": source.digest, "normalise": normalise}
    writer = StoreWriter(out, source.keys, source.regions, source.size, plan, shard_size, strict)
    shards = list(writer.missing())
    done = writer.share - sum(shard.stop - shard.start for shard in shards)
    with progress_bar(writer.share, done, "images", shown=bool(shards) and this_rank().leads) as progress:
        for shard in shards:
            features, unreadable = source.block(shard.start, shard.stop)
            if normalise == "l2":
                features = _unit_length(features)
            writer.write(shard, features, unreadable)
            progress.update(shard.stop - shard.start)
    return writer.publish(signature("import", images=len(source.keys), normalise=normalise))


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


def _unit_length(features: np.ndarray) -> np.ndarray:
    features = features.astype(np.float64)  # squares of large numbers would overflow
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # infinity becomes NaN, and is refused as such
        return features / np.where(lengths == 0, 1, lengths)


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


def _four_axes(shape: tuple[int, ...], channels_first: bool) -> str:
    return (
        " Is it a map with channels first? Then add --channels-first" if len(shape) == 4 and not channels_first else ""
    )
