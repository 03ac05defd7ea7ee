"""Open features that people already have, whatever form they have: one `ArraySource` of blocks of images.

One array for a collection (`.npy`, `.pt`); a folder of one file per image; a table of bottom-up attention (`.tsv`),
HDF5 or LMDB of many images. Beside one array for the collection, columns are arrays of their own; elsewhere they are
arrays of the same file, by name.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..images.sources import check_keys
from .array_files import TORCH_SUFFIXES, as_numpy, check_float, check_mapped, map_array, sample_digest
from .blocks import SIZES, ArraySource, Block, check_kind, hint_of_four_axes, regions_first
from .columns import COLUMNS
from .imports.field_names import Wanted
from .imports.image_files import IMAGE_SUFFIXES, ImageFiles
from .imports.image_keys import AS_IT_IS, KeyFormat, read_key_file
from .imports.region_hdf5 import SUFFIXES, RegionHdf5
from .imports.region_lmdb import RegionLmdb, is_lmdb
from .imports.region_tsv import RegionTsv, is_tsv


class CollectionArray:
    """One array for the whole collection, memory-mapped: (I, F), (I, R, F), or (I, F, h, w) with channels first.

    Args:
        beside: column -> file of (I, R, 4) for boxes, else (I, R); `box_sizes` -> file of (I, 2).
        regions: the most that an image shall have, of those that it has here; None for all.

    Raises:
        InputError: a file can't be read, isn't such an array, or has another number of rows than there are keys.
    """

    box_format = "xyxy"
    found = ""

    def __init__(
        self,
        path: Path,
        keys: list[str],
        array_name: str | None,
        channels_first: bool,
        beside: Mapping[str, Path],
        regions: int | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._files = {"features": (path, map_array(path, array_name))}
        self._channels_first = channels_first
        array = self._files["features"][1]
        shape = tuple(array.shape)
        check_float(array, path)
        if len(shape) not in ((3, 4) if channels_first else (2, 3)) or 0 in shape:
            wanted = "(I, F, h, w) or (I, F, R) with channels first" if channels_first else "(I, F) or (I, R, F)"
            hint, *choices = hint_of_four_axes(shape, channels_first)
            raise InputError(f"{path} should have shape {wanted}, none of them 0, but has {shape}.{hint}", *choices)
        if shape[0] != len(keys):
            raise InputError(
                f"{path} has {shape[0]} rows, but there are {len(keys)} keys. Which line belongs to which row?"
            )
        self.keys: Sequence[str] = keys
        _, self._found, self.size = regions_first(array[:1], channels_first).shape
        self.regions = self._found if regions is None else min(regions, self._found)
        self.asked_regions = regions
        self.columns = tuple(name for name in COLUMNS if name in beside)
        self.plan: dict[str, Any] = {"arrays": sample_digest(path), **_reading(array_name, channels_first)}
        for name, file in beside.items():
            self._files[name] = (file, map_array(file, None))
            check_kind(self._files[name][1], name, file)
            self._check_shape(name)
            self.plan[name] = sample_digest(file)

    def _check_shape(self, name: str) -> None:
        path, array = self._files[name]
        tail = (2,) if name == SIZES else (self._found, *COLUMNS[name].shape)
        expected = (len(self.keys), *tail)
        if tuple(array.shape) != expected:
            raise InputError(
                f"{path} should have shape {expected}, since there are features of {self._found} regions of "
                f"{len(self.keys)} images, but has {tuple(array.shape)}.",
                name,
            )

    def block(self, start: int, stop: int) -> Block:
        """Some rows; none is unreadable."""
        found = {}
        for name, (path, array) in self._files.items():
            check_mapped(path, array)
            rows = array[start:stop]
            found[name] = regions_first(rows, self._channels_first) if name == "features" else np.array(as_numpy(rows))
        return Block(found.pop("features"), found, found.pop(SIZES, None), {})


def open_arrays(
    path: str | Path,
    keys: str | Path | None = None,
    array_name: str | None = None,
    channels_first: bool = False,
    regions: int | None = None,
    beside: Mapping[str, str] | None = None,
    named: Collection[str] = (),
    fields: Sequence[str] | None = None,
    key_format: str = AS_IT_IS,
    columns_elsewhere: bool = False,
) -> ArraySource:
    """Open features in any form.

    Args:
        keys: a file with one key a line, or a pickle of {id: row}.
        regions: the most that an image shall have.
        beside: column, or `box_sizes`, -> a file, or elsewhere than for one array the name of an array of each image;
            there `box_sizes` are one name of two numbers or two names: WIDTH,HEIGHT.
        named: columns of numbers whose names are known: others aren't looked for.
        fields: names of the columns of a table.
        key_format: how ids in the file become keys.
        columns_elsewhere: a table of regions has all columns: none is looked for beside the features.

    Raises:
        InputError: no such file, an unknown form, broken keys, or as the form's class.
    """
    path, beside, form = Path(path), dict(beside or {}), KeyFormat(key_format)
    names = None if keys is None else read_key_file(keys, form)
    if not path.exists():
        raise InputError(
            f"{path} should be a .npy, .pt or .pth file, a .tsv, .h5 or .lmdb file, or a folder of one file per image, "
            "but doesn't exist."
        )
    if regions is not None and regions < 1:
        raise InputError(f"the most regions of an image should be at least 1, but are {regions}.", "regions")
    if is_lmdb(path) or path.is_dir() or path.suffix in SUFFIXES or is_tsv(path):
        _refuse_files(beside, path)
        sizes = tuple(name for name in beside.pop(SIZES, "").split(",") if name)
        wanted = Wanted(array_name, beside, sizes, named, columns_elsewhere)
        if fields is not None and not is_tsv(path):
            raise InputError(f"columns are named for a table that ends in .tsv, but {path} is none.", "fields")
        if channels_first and (is_lmdb(path) or not path.is_dir()):
            raise InputError(f"maps with channels first can't be read from {path}.", "channels_first")
        if is_tsv(path):
            return RegionTsv(path, names, wanted, regions, fields, form)
        if is_lmdb(path):
            return RegionLmdb(path, names, wanted, regions, form)
        if path.suffix in SUFFIXES and path.is_file():
            return RegionHdf5(path, names, wanted, regions, form)
        source = ImageFiles(path, names, wanted, regions, channels_first, form)
        check_keys(source.keys, path)
        return source
    if path.suffix not in (".npy", *TORCH_SUFFIXES):
        hint = " Save its array by numpy.save: a .npz can't be read piece by piece." if path.suffix == ".npz" else ""
        raise InputError(
            f"{path} should end in .npy, .pt or .pth, .tsv, {', '.join(SUFFIXES)} or .lmdb, or be a folder of one file "
            f"per image.{hint}"
        )
    if fields is not None:
        raise InputError(f"columns are named for a table that ends in .tsv, but {path} is none.", "fields")
    if array_name is not None and path.suffix == ".npy":
        raise InputError(f"an array is named where a file has several, but {path} is a single one.", "array")
    if names is None:
        raise InputError(f"{path} needs the image key of each row: a file with one key a line.", "keys")
    files = {name: Path(file) for name, file in beside.items()}
    for name, file in files.items():
        if not file.is_file():
            raise InputError(f"{name.replace('_', ' ')} should be a .npy file beside {path}, but {file} is none.", name)
    return CollectionArray(path, names, array_name, channels_first, files, regions)


def _reading(array_name: str | None, channels_first: bool) -> dict[str, Any]:
    """What the plan says of how the arrays are read; nothing where nothing was chosen, as plans always were."""
    return {**({"array": array_name} if array_name else {}), **({"channels_first": True} if channels_first else {})}


def _refuse_files(beside: Mapping[str, str], path: Path) -> None:
    for name, array in beside.items():
        if Path(array).suffix in IMAGE_SUFFIXES:
            raise InputError(
                f"{name.replace('_', ' ')} should be the name of an array "
                + (
                    f"in each file of {path}, since that is a folder of one file per image"
                    if path.is_dir()
                    else f"in {path}"
                )
                + f", but are {array}.",
                name,
            )
