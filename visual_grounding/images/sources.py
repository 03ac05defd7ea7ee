"""Pictures by key: open whatever they lie in, and read one by its row.

A source only knows keys and bytes; nothing is unpacked to disk. Each kind has a file of its own: `files.py`, `tars.py`,
`zips.py`, `parquet.py`; `decoding.py` makes pixels of bytes.
"""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from PIL import Image

from ..errors import InputError
from ..storage.outside import check_file
from .decoding import MAX_PIXELS, UnreadableImage, decode
from .files import images_below, listed_images
from .keys import SUFFIXES, check_keys
from .patterns import PARQUET, TAR, containers_in, containers_of_pattern, is_pattern, kind_of
from .several import SeveralSources
from .tars import images_of_tar, images_of_webdataset
from .zips import ZippedImages

__all__ = [
    "MAX_PIXELS",
    "SUFFIXES",
    "ImageSource",
    "UnreadableImage",
    "check_keys",
    "decode",
    "open_images",
    "read_image",
]
SOURCES = "a folder, a tar, a zip, a parquet file, a .txt list, or a pattern of tars or parquet files"


class ImageSource(Protocol):
    """Images in a fixed order.

    Attributes:
        keys: one name per image, unique.
        digest: of keys and file sizes (parquet: of its footers): enough to notice another collection
            without reading it.
    """

    keys: Sequence[str]
    digest: str

    def read(self, row: int) -> bytes:
        """The bytes of one image file; any thread may call it.

        Raises:
            OSError: the file is missing or can't be read.
            UnreadableImage: it is broken inside the file that contains it.
            InputError: the file that contains it is gone, and all images with it.
        """
        ...


def open_images(
    source: str | Path | Sequence[str | Path], image_column: str | None = None, key_column: str | None = None
) -> ImageSource:
    """Find the images of a folder, tar, zip, list, of webdataset tars, or of parquet files; several sources add up.

    A folder is searched with its sub-folders; key = path relative to it. A tar's or zip's keys are its member names.
    All are sorted by key, and only names with an image suffix that aren't hidden count. A list (.txt) has one path a
    line, absolute or relative to the list's own folder; key = the line, in the list's order, whether the file exists or
    not.

    A brace pattern (`train-{0000..0099}.tar`), a glob, or a folder that holds only tars is a webdataset: one image a
    sample, key = its member name. The same with parquet files, or one of them: one image a row; see `ParquetImages`.

    Args:
        image_column: for parquet: which column holds the images; None where only one can.
        key_column: for parquet: which column holds the keys; None for the images' paths, or FILE:ROW.

    Raises:
        InputError: there is no such source, it holds no image, two images share a key, or a key doesn't fit on a line.
        ValueError: no source at all.
    """
    if not isinstance(source, str | Path) and not source:
        raise ValueError("there must be a source at least")
    if isinstance(source, str | Path):
        return _open_one(Path(source), image_column, key_column)
    opened = {name: _open_one(Path(name), image_column, key_column) for name in dict.fromkeys(map(str, source))}
    return SeveralSources(opened) if len(opened) > 1 else next(iter(opened.values()))


def _open_one(path: Path, image_column: str | None, key_column: str | None) -> ImageSource:
    images: ImageSource
    kind, paths, root = _containers(path)
    if kind == PARQUET:
        from .parquet import ParquetImages  # pyarrow takes a while to load

        images = ParquetImages(paths, root, image_column, key_column)
    else:
        for choice, column in (("image_column", image_column), ("key_column", key_column)):
            if column is not None:
                name = choice.replace("_", " ")
                raise InputError(f"{name} {column} is for parquet, but {path} isn't.", choice)
        if kind == TAR:
            images = images_of_webdataset(paths)
        elif path.is_dir():
            images = images_below(path)
        elif path.suffix.lower() == ".txt":
            images = listed_images(path)
        elif path.suffix.lower() == ".zip" or (kind_of(path) != TAR and zipfile.is_zipfile(path)):
            images = ZippedImages(path)
        else:
            images = images_of_tar(path)
    if not images.keys:
        raise InputError(_nothing_in(path, kind))
    check_keys(images.keys, path)
    return images


def _containers(path: Path) -> tuple[str | None, list[Path], Path]:
    """Kind and files of a set of tars or parquet files, and the folder they are in; kind None for any other source."""
    if os.path.isdir(path):  # pathlib's own raise where a long pattern is no name that a file could have
        found = containers_in(path)
        return (*found, path) if found else (None, [], path)
    if os.path.exists(path):
        try:
            check_file(path, pipes=path.suffix.lower() == ".txt")
        except OSError as error:
            raise InputError(f"{path} should be {SOURCES}, but {error.strerror}.") from error
        return (PARQUET if kind_of(path) == PARQUET else None), [path], path.parent
    if not is_pattern(str(path)):
        raise InputError(f"{path} should be {SOURCES}, but doesn't exist.")
    kind, paths = containers_of_pattern(str(path))
    return kind, paths, Path(os.path.commonpath([path.parent for path in paths]))


def _nothing_in(path: Path, kind: str | None) -> str:
    """What to say of a source without images."""
    hint = ""
    if kind == PARQUET:
        wanted = "one a row"
    elif path.suffix.lower() == ".txt":
        wanted = "one path a line"
    else:
        wanted = "files ending in " + " ".join(sorted(SUFFIXES))
        if path.is_dir():
            endings = (ending for ending in (TAR, PARQUET) if next(path.rglob(f"*.{ending}"), None))
            hint = "".join(f" For its {ending} files say: '{path}/**/*.{ending}'" for ending in endings)
    return f"{path} should hold images ({wanted}), but there are none.{hint}"


def read_image(images: ImageSource, row: int) -> Image.Image:
    """Read and decode one image.

    Raises:
        UnreadableImage: it is missing, or as `decode`.
        InputError: as `ImageSource.read`.
    """
    try:
        content = images.read(row)
    except FileNotFoundError as error:
        raise UnreadableImage("missing") from error
    except OSError as error:
        raise UnreadableImage(f"can't be read: {error.strerror or error}") from error
    return decode(content)
