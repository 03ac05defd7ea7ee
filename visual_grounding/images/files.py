"""Images that are files of their own: a folder, or a list of paths."""

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import InputError
from ..storage.lines import read_lines
from ..storage.outside import walk_folder
from .decoding import UnreadableImage
from .keys import MAX_BYTES, digest_of, is_image_name


class ImageFiles:
    """Images that are files of their own; see `ImageSource`."""

    def __init__(self, keys: list[str], paths: list[Path]) -> None:
        self.keys: Sequence[str] = keys
        self._paths = paths
        self.digest = digest_of(zip(keys, map(_size_of, paths), strict=True))

    def read(self, row: int) -> bytes:
        """The bytes of one image file.

        Raises:
            UnreadableImage: it is a pipe or a device, which may give bytes for ever or none, or it is too large.
        """
        path = self._paths[row]
        try:
            status = path.stat()
        except ValueError as error:
            raise UnreadableImage(f"no name of a file: {error}") from error
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise UnreadableImage("a pipe or a device, not a file")
        if status.st_size > MAX_BYTES:
            raise UnreadableImage(f"{status.st_size} bytes, more than {MAX_BYTES}")
        return path.read_bytes()


def images_below(folder: Path) -> ImageFiles:
    """All images of a folder and its sub-folders, hidden ones apart; key = path relative to it, sorted."""
    keys = sorted(_names_below(folder))
    return ImageFiles(keys, [folder / key for key in keys])


def listed_images(path: Path) -> ImageFiles:
    """One path a line, absolute or relative to the list's folder; key = the line, whether the file exists or not.

    Raises:
        InputError: the list can't be read, or a line is blank.
    """
    keys = read_lines(path)
    blank = next((number for number, key in enumerate(keys, 1) if not key.strip()), None)
    if blank is not None:
        raise InputError(f"{path} should have the path of an image in every line, but line {blank} is blank.")
    return ImageFiles(keys, [path.parent / key for key in keys])


def _names_below(folder: Path) -> Iterable[str]:
    for parent, names in walk_folder(folder):
        for name in names:
            if is_image_name(name):
                yield os.path.relpath(os.path.join(parent, name), folder)


def _size_of(path: Path) -> int:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1
