"""A folder with one file per image: `.npy`, `.npz`, `.pt`, or a pickle as VTLM has them."""

import bz2
import gzip
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, in_short
from ...images.keys import MAX_BYTES
from ...storage.outside import open_file, walk_folder
from ..array_files import TORCH_SUFFIXES, UnreadableArray, array_names, read_arrays, sample_digest
from .field_names import Wanted
from .image_keys import KeyFormat
from .records import Records, the_only
from .safe_pickle import load_numbers

_COMPRESSED: dict[str, Callable[..., Any]] = {".pgz": gzip.open, ".pbz2": bz2.open}
PICKLES = (".pkl", ".pickle", *_COMPRESSED)
IMAGE_SUFFIXES = (".npy", ".npz", *TORCH_SUFFIXES, *PICKLES)
_SAMPLED_FILES = 64
_MOST_NUMBERS, _DEEPEST = 2**26, 8  # in lists of a pickle


class ImageFiles(Records):
    """A folder with one file per image: (F,), (R, F), or (F, h, w) with channels first.

    Args:
        folder: searched with its sub-folders; key = path relative to it, without .npy, .npz, .pt, .pth, .pkl, .pickle,
            .pgz or .pbz2.
        keys: which images, in which order; None for all there are, sorted.
        wanted: which arrays of each file are what.
        regions: as for `Records`.
        key_format: how those names become keys.

    Raises:
        InputError: no file fits, two files have the same key, or as `Records`.
    """

    def __init__(
        self,
        folder: Path,
        keys: list[str] | None,
        wanted: Wanted,
        regions: int | None,
        channels_first: bool,
        key_format: KeyFormat,
    ) -> None:
        paths = {key_format.key(name): path for name, path in files_by_key(folder).items()}
        keys = sorted(paths) if keys is None else keys
        self._paths = [paths.get(key) for key in keys]
        present = [path for path in self._paths if path is not None]
        if not present:
            example = (
                f" A file there is {min(paths)!r} by its key, the first key wanted is {keys[0]!r}."
                if paths and keys
                else ""
            )
            raise InputError(
                f"{folder} should have one {', '.join(IMAGE_SUFFIXES)} file per image, but has none that fits.{example}"
            )
        digest = hashlib.sha256()
        for key, path in zip(keys, self._paths, strict=True):
            digest.update(f"{key}\t{_size_of(path)}\n".encode("utf-8", "surrogateescape"))
        for path in present[:: -(-len(present) // _SAMPLED_FILES)]:
            digest.update(_digest_of(path).encode())
        super().__init__(keys, wanted, regions, {"arrays": digest.hexdigest()}, channels_first)

    def place(self, row: int) -> object:
        """The file, or the key where there is none."""
        return self._paths[row] or self.keys[row]

    def names(self, row: int) -> list[str]:
        """Names of a file's arrays."""
        path = self._path(row)
        return list(_load_pickle(path)) if path.suffix in PICKLES else array_names(path)

    def read(self, row: int, names: Sequence[tuple[str, str | None]]) -> list[np.ndarray]:
        """Arrays of a file."""
        path = self._path(row)
        if path.suffix not in PICKLES:
            return read_arrays(path, names)
        content = _load_pickle(path)
        return [as_numbers(content[the_only(list(content), name, path, choice)], path) for choice, name in names]

    def _path(self, row: int) -> Path:
        path = self._paths[row]
        if path is None:
            raise UnreadableArray("missing")
        return path


def as_numbers(value: Any, place: object) -> np.ndarray:
    """An array of what a pickle holds: an array already, a number, or a list of them.

    Raises:
        InputError: it holds no numbers.
    """
    _check_lists(value, place)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{place} should hold arrays of numbers, but one has lists of several lengths.") from error
    if array.dtype.kind not in "iuf":
        raise InputError(f"{place} should hold arrays of numbers, but one is of type {array.dtype}.")
    return array


def _check_lists(value: Any, place: object) -> None:
    """Refuse lists that no memory holds as an array: a pickle may name one twice, and so double it with each level."""
    counted: dict[int, int] = {}

    def count(each: Any, depth: int) -> int:
        if not isinstance(each, list | tuple):
            return each.size if isinstance(each, np.ndarray) else 1
        if depth > _DEEPEST:
            raise InputError(f"{place} should hold arrays of numbers, but one has lists {_DEEPEST} deep and more.")
        if id(each) not in counted:
            counted[id(each)] = sum(count(part, depth + 1) for part in each)
        return counted[id(each)]

    if count(value, 0) > _MOST_NUMBERS:
        raise InputError(f"{place} should hold arrays of numbers, but one has lists of more than {_MOST_NUMBERS}.")


def _size_of(path: Path | None) -> int:
    """In bytes; −1 where it can't be told, as that of a link to nowhere."""
    try:
        return path.stat().st_size if path else -1
    except OSError:
        return -1


def _digest_of(path: Path) -> str:
    """Of a sample of a file; empty where it can't be read, which `read` says of its image."""
    try:
        return sample_digest(path)
    except OSError:
        return ""


def _load_pickle(path: Path) -> dict[str, Any]:
    """A pickle of arrays by their names.

    Raises:
        UnreadableArray: it is missing, empty or broken.
        InputError: it asks for anything but arrays, or is none by name.
    """
    try:
        if path.stat().st_size == 0:
            raise UnreadableArray("empty file")
        with open_file(path) as opened, _COMPRESSED.get(path.suffix, nullcontext)(opened) as file:
            packed = file.read(MAX_BYTES + 1)  # to the end, where compression keeps its checksum
        if len(packed) > MAX_BYTES:
            raise UnreadableArray(f"more than {MAX_BYTES} bytes")
        content = load_numbers(packed, str(path))
    except FileNotFoundError as error:
        raise UnreadableArray("missing") from error
    except (OSError, EOFError) as error:  # gzip and bz2 of broken files
        raise UnreadableArray(f"broken or truncated: {in_short(error)}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InputError(
            f"{path} should hold arrays by name, such as detection_features, but holds a {type(content).__name__}. Is "
            "it a feature file?"
        )
    return content


def files_by_key(folder: Path) -> dict[str, Path]:
    """Files of a folder and its sub-folders; key = path without the ending.

    Raises:
        InputError: two files have the same key.
    """
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
    for parent, names in walk_folder(folder):
        yield from (Path(parent, name) for name in names if name.endswith(IMAGE_SUFFIXES) and not name.startswith("."))
