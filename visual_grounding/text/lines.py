"""Read text files line by line, and say where they are broken."""

import codecs
import hashlib
from pathlib import Path

from ..errors import InputError


def read_lines(path: str | Path) -> list[str]:
    """All lines of a UTF-8 text file, without their line ends. Only a line feed ends a line; empty lines count.

    A byte order mark at the start, as Windows writes it, isn't part of the first line.

    Raises:
        InputError: the file is missing, unreadable, or not UTF-8.
    """
    path = Path(path)
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    decoded = []
    for number, line in enumerate(lines, 1):
        try:
            decoded.append(line.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} should be UTF-8, but line {number} has byte 0x{line[error.start]:02x} at column "
                f"{error.start + 1}. Convert it, e.g.: iconv -f LATIN1 -t UTF-8 {path}"
            ) from error
    return decoded


def sha256_of_lines(lines: list[str]) -> str:
    """Digest of lines joined by line feeds: the identity of a text."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8") + b"\n")
    return digest.hexdigest()


def read_captions(path: str | Path) -> list[tuple[str, str]]:
    """Captions of a collection, one `key<TAB>caption` a line; several lines may share a key.

    Raises:
        InputError: as `read_lines`, or a line without a tab, or with an empty key or caption.
    """
    captions = []
    for number, line in enumerate(read_lines(path), 1):
        key, tab, caption = line.partition("\t")
        if not tab or not key or not caption.strip():
            raise InputError(f"{path}:{number} should be `key<TAB>caption`, but is {line[:80]!r}.")
        captions.append((key, caption))
    if not captions:
        raise InputError(f"{path} should hold captions, but is empty.")
    return captions
