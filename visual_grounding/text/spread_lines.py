"""Lines of a long text file from places all over it, with their numbers; those between are counted, not kept."""

import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from ..errors import InputError
from ..storage.outside import open_file

_PLACES = 64
_BYTES = 1 << 16  # at each of them
_CHUNK = 1 << 20


def spread_lines(path: str | Path, places: int = _PLACES, size: int = _BYTES) -> Iterator[tuple[int, str]]:
    """Each line that begins in one of the evenly spread places, the file's both ends among them.

    A file of at most `places` · `size` bytes comes as a whole.

    Args:
        path: UTF-8, each line ended by a line feed.
        places: how many.
        size: bytes of each.

    Returns:
        the number of a line, from 0, and the line.

    Raises:
        InputError: it can't be read.
    """
    try:
        with open_file(path) as file:
            whole = os.fstat(file.fileno()).st_size
            last = max(0, whole - size)
            number = 0
            for place in range(places):
                start = last * place // max(1, places - 1)
                if file.tell() < start:  # to the end of the line that holds the byte before
                    number += _line_feeds(file, start - 1) + 1
                    file.readline()
                while file.tell() < start + size and (line := file.readline()):
                    yield number, line.decode("utf-8", errors="ignore").removesuffix("\n")
                    number += 1
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error


def _line_feeds(file: BufferedReader, end: int) -> int:
    """Read up to a byte, and count the line feeds before it."""
    count = 0
    while part := file.read(min(end - file.tell(), _CHUNK)):
        count += part.count(b"\n")
    return count
