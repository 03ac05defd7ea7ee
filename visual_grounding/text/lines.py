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


def iterate_captions(path: str | Path) -> Iterator[tuple[str, str]]:
    """Captions of a collection, one `key<TAB>caption` a line, one by one; several lines may share a key.

    Raises:
        InputError: as `iterate_lines`, or a line without a tab, or with an empty key or caption, or no line at all.
    """
    number = 0
    for number, line in enumerate(iterate_lines(path), 1):
        key, tab, caption = line.partition("\t")
        if not tab or not key or not caption.strip():
            raise InputError(f"{path}:{number} should be `key<TAB>caption`, but is {line[:80]!r}.")
        yield key, caption
    if not number:
        raise InputError(f"{path} should hold captions, but is empty.")


def read_captions(path: str | Path) -> list[tuple[str, str]]:
    """All captions of a collection: `iterate_captions`.

    Raises:
        InputError: as `iterate_captions`.
    """
    return list(iterate_captions(path))
