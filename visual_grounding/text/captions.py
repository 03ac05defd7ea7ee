"""Captions of a collection, one `key<TAB>caption` a line."""

from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError
from ..storage.artefact import sha256_of_file
from ..storage.lines import check_read_again, iterate_lines
from ..storage.outside import open_file

_LETTERS = 100_000
_ARROW = (b"ARROW1\0\0", b"\xff\xff\xff\xff")  # a file; a stream, as datasets saves it


def iterate_captions(path: str | Path) -> Iterator[tuple[str, str]]:
    """Captions of a collection, one `key<TAB>caption` a line, one by one; several lines may share a key.

    Raises:
        InputError: as `iterate_lines`, or it is a table of parquet or Arrow, a folder, or a line without a tab, or with
            an empty key or caption, or no line at all.
    """
    what = "parquet" if is_parquet(path) else "Arrow" if _begins(path, *_ARROW) else "a folder"
    if what != "a folder" or Path(path).is_dir():
        raise InputError(
            f"{path} should be lines of `key<TAB>caption`, but is {what}. Make lines of its tables: visual-grounding "
            f"prepare captions --train {path} --key-column NAME --caption-column NAME --out DIR writes "
            "DIR/train.tsv."
        )
    number = 0
    for number, line in enumerate(iterate_lines(path), 1):
        key, tab, caption = line.partition("\t")
        if not tab or not key or not caption.strip():
            raise InputError(f"{path}:{number} should be `key<TAB>caption`, but is {line[:80]!r}.")
        if "\0" in key or len(caption) > _LETTERS:
            what = f"its caption has {len(caption)} letters" if "\0" not in key else f"its key is {key[:80]!r}"
            raise InputError(f"{path}:{number} should be the caption of an image, but {what}. Is it another file?")
        yield key, caption
    if not number:
        raise InputError(f"{path} should hold captions, but is empty.")


def is_parquet(path: str | Path) -> bool:
    """Whether a file begins as parquet does."""
    return _begins(path, b"PAR1")


def _begins(path: str | Path, *beginnings: bytes) -> bool:
    """Whether a file begins so; asked of files alone: what is read from a pipe is gone."""
    if not Path(path).is_file():
        return False
    try:
        with open_file(path) as file:
            return file.read(8).startswith(beginnings)
    except OSError:  # it is said where it is read
        return False


def read_captions(path: str | Path) -> list[tuple[str, str]]:
    """All captions of a collection: `iterate_captions`.

    Raises:
        InputError: as `iterate_captions`.
    """
    return list(iterate_captions(path))


def digest_of_captions(path: str | Path) -> str:
    """sha256 of a file of captions.

    Raises:
        InputError: it can't be read, or is a pipe, which is empty afterwards.
    """
    check_read_again(path)
    try:
        return sha256_of_file(Path(path))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
