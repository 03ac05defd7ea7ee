"""Read text files line by line, and say where they are broken."""

import codecs
import hashlib
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError


def iterate_lines(path: str | Path) -> Iterator[str]:
    """Lines of a UTF-8 text file, one by one, without their line ends. Only a line feed ends a line; empty lines count.

    A byte order mark at the start, as Windows writes it, isn't part of the first line.

    Raises:
        InputError: the file is missing, unreadable, or not UTF-8.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                try:
                    decoded = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{path} should be UTF-8, but line {number} has byte 0x{line[error.start]:02x} at column "
                        f"{error.start + 1}. Convert it, e.g.: iconv -f LATIN1 -t UTF-8 {path}"
                    ) from error
                yield decoded
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error


def read_lines(path: str | Path) -> list[str]:
    """All lines of a UTF-8 text file: `iterate_lines`.

    Raises:
        InputError: as `iterate_lines`.
    """
    return list(iterate_lines(path))


def sha256_of_lines(lines: list[str]) -> str:
    """Digest of lines joined by line feeds: the identity of a text."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8") + b"\n")
    return digest.hexdigest()
