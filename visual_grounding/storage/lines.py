"""Read text files line by line, and say where they are broken; compressed ones and standard input, too."""

import codecs
import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import InputError
from .outside import open_file

STANDARD_INPUT = Path("-")
LONGEST_LINE = 2**28  # bytes: what has no end of a line, such as a bomb of gzip, isn't read until the memory is full
_UTF16 = "UTF-16, as Excel and PowerShell write it. Convert it: iconv -f UTF-16 -t UTF-8"
_OTHERS = {  # first bytes of what is no text, and what to do with it
    b"PK\x03\x04": "a zip archive: unpack it",
    b"\x1f\x8b": "compressed by gzip: name it .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: name it .zst",
    b"PAR1": "a parquet file: write its columns as text",
    b"ARROW1\0\0": "an Arrow file: write its columns as text",
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"\xff\xff\xff\xff": "an Arrow stream, as datasets saves it: write its columns as text",
}


def iterate_lines(path: str | Path, pipes: bool = True) -> Iterator[str]:
    """Lines of a UTF-8 text file, one by one, without their line ends. Only a line feed ends a line; empty lines count.

    A byte order mark at the start, as Windows writes it, isn't part of the first line. Names that end in .gz or .zst
    are decompressed, and `-` is standard input.

    Args:
        path: the file.
        pipes: whether it may be a pipe, which is waited for; the files of an artefact are none.

    Raises:
        InputError: the file is missing, unreadable, or not UTF-8.
    """
    path = Path(path)
    try:
        with _opened(path, pipes) as file:
            beginning = b""
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise InputError(
                        f"{path} should be text in lines, but line {number} is longer than {LONGEST_LINE:,} bytes."
                    )
                if number == 1:
                    beginning = line[:8]
                    line = line.removeprefix(codecs.BOM_UTF8)
                    if 3 * line.count(0) > len(line):
                        check_is_text(path, beginning)
                        # Every other byte of text in UTF-16 without a mark, which is UTF-8, too.
                        raise InputError(f"{path} should be text, but is {_UTF16}.")
                try:
                    decoded = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
                except UnicodeDecodeError as error:
                    check_is_text(path, beginning)
                    raise InputError(
                        f"{path} should be UTF-8, but line {number} has byte 0x{line[error.start]:02x} at column "
                        f"{error.start + 1}. Convert it, e.g.: iconv -f LATIN1 -t UTF-8 {path}"
                    ) from error
                yield decoded
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} can't be read: {reason.rstrip('.')}.") from error


def check_read_again(*paths: str | Path | None) -> None:
    """Refuse a pipe where a file is read more than once, by its digest maybe: the second time it is empty, or waits.

    Args:
        paths: files; None for one that wasn't named.

    Raises:
        InputError: one is a pipe, a device or standard input.
    """
    for path in (Path(path) for path in paths if path is not None):
        piped = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
        if path == STANDARD_INPUT or piped:
            what = "standard input" if path == STANDARD_INPUT else "a pipe or a device"
            raise InputError(f"{path} should be a file, as it is read twice, but is {what}. Save it as a file first.")


def check_is_text(path: Path, beginning: bytes) -> None:
    """Refuse a file that begins as archives, compressed files and parquet do.

    Raises:
        InputError: it does, and what to do.
    """
    for first, what in _OTHERS.items():
        if beginning.startswith(first):
            raise InputError(f"{path} should be text, but is {what}.")


@contextmanager
def _opened(path: Path, pipes: bool) -> Iterator[BinaryIO]:
    """Lines of a file, as bytes."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with open_file(path, pipes) as opened, gzip.open(opened) if path.suffix == ".gz" else opened as file:
        if path.suffix != ".zst":
            yield cast(BinaryIO, file)
            return
        import pyarrow

        yield io.BufferedReader(pyarrow.CompressedInputStream(file, "zstd"))


def read_lines(path: str | Path, pipes: bool = True) -> list[str]:
    """All lines of a UTF-8 text file: `iterate_lines`.

    Raises:
        InputError: as `iterate_lines`.
    """
    return list(iterate_lines(path, pipes))


def sha256_of_lines(lines: list[str]) -> str:
    """Digest of lines joined by line feeds: the identity of a text."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8") + b"\n")
    return digest.hexdigest()
