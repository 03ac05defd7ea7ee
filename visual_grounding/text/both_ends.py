"""The beginning and the end of a long text file, without reading what is between them."""

import os
from pathlib import Path

from ..errors import InputError
from ..storage.outside import open_file

_BYTES = 1 << 18  # of either end


def both_ends(path: str | Path, size: int = _BYTES) -> tuple[list[str], list[str]]:
    """The first lines of a file, in their order, and the last ones, the last of all first.

    Each list ends with one that may be cut: in the first its beginning is there, in the second its end. A short file is
    in the first list as a whole, and the second is empty.

    Args:
        path: UTF-8, each line ended by a line feed.
        size: bytes of either end.

    Raises:
        InputError: it can't be read.
    """
    try:
        with open_file(path) as file:
            whole = os.fstat(file.fileno()).st_size
            begin = file.read(size if whole > 2 * size else whole)
            file.seek(max(whole - size, len(begin)))
            end = file.read()
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
    last = end.removesuffix(b"\n").split(b"\n")[::-1] if end else []
    return _decoded(begin.removesuffix(b"\n").split(b"\n") if begin else []), _decoded(last)


def _decoded(lines: list[bytes]) -> list[str]:
    return [line.decode("utf-8", errors="ignore") for line in lines]  # a letter may be cut
