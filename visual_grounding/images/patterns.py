"""Sets of files given as one word: a brace pattern `train-{0000..0099}.tar`, a glob `tars/*.tar`, or their folder."""

import glob
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError

TAR, PARQUET = "tar", "parquet"
MAX_FILES = 1_000_000
_KINDS = {  # compressed tars count as tars, so that their reader can tell what to do with them
    TAR: re.compile(r"\.(tar(\.(gz|bz2|xz|zst))?|tgz|tbz2?|txz)$", re.IGNORECASE),
    PARQUET: re.compile(r"\.parquet$", re.IGNORECASE),
}
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")


def kind_of(path: Path) -> str | None:
    """What kind of container a name promises: "tar", "parquet", or None."""
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(path.name)), None)


def containers_in(folder: Path) -> tuple[str, list[Path]] | None:
    """Kind and files of a folder that holds only containers of one kind, hidden files apart; None for any other.

    Raises:
        InputError: the folder can't be read.
    """
    kinds: set[str] = set()
    paths = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                kind = kind_of(Path(entry.name))
                if kind is None or kinds - {kind} or not entry.is_file():
                    return None
                kinds.add(kind)
                paths.append(folder / entry.name)
    except OSError as error:
        raise InputError(f"{folder} can't be read: {error.strerror or error}.") from error
    return (kinds.pop(), sorted(paths)) if kinds else None


def is_pattern(source: str) -> bool:
    """Whether a name has a brace or a sign of a glob."""
    return glob.has_magic(source) or "{" in source


def containers_of_pattern(pattern: str) -> tuple[str, list[Path]]:
    """The kind and the files of a pattern: in the order that braces say, what a glob finds sorted.

    Raises:
        InputError: it fits nothing, a file that it names doesn't exist, or the files are no containers of one kind.
    """
    paths: list[Path] = []
    for name in expand_braces(pattern):
        if glob.has_magic(name):
            paths += sorted(path for path in map(Path, glob.iglob(name, recursive=True)) if path.is_file())
        else:
            paths.append(Path(name))
    if not paths:
        raise InputError(f"{pattern} should fit tars or parquet files, but fits nothing.")
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        raise InputError(
            f"{pattern} names {len(paths)} files, but {len(missing)} of them don't exist; the first is {missing[0]}."
        )
    kinds = {kind_of(path): path for path in reversed(paths)}
    if None in kinds:
        raise InputError(
            f"{pattern} should fit tars or parquet files, but fits {kinds[None]}. "
            "Other images: give their folder, or a .txt list."
        )
    if len(kinds) > 1:
        raise InputError(f"{pattern} should fit files of one kind, but fits {kinds[TAR]} and {kinds[PARQUET]}.")
    return (TAR if TAR in kinds else PARQUET), paths


def expand_braces(pattern: str) -> Iterator[str]:
    """Write out `{first..last}` and `{one,other}`; zeros in front stay. Other braces stand for themselves.

    >>> list(expand_braces("{a,b}-{09..11}.tar"))
    ['a-09.tar', 'a-10.tar', 'a-11.tar', 'b-09.tar', 'b-10.tar', 'b-11.tar']

    Raises:
        InputError: a range runs backwards, or the whole is more than a million.
    """
    pieces: list[list[str]] = []
    total, end = 1, 0
    for match in _BRACES.finditer(pattern):
        bounds = _RANGE.fullmatch(match[1])
        if bounds and int(bounds[2]) < int(bounds[1]):
            raise InputError(f"{pattern} should count upwards, but has {match[0]}.")
        total *= int(bounds[2]) - int(bounds[1]) + 1 if bounds else match[1].count(",") + 1
        if total > MAX_FILES:
            raise InputError(f"{pattern} should name {MAX_FILES} files at most, but names more. Is a digit too many?")
        if bounds:
            choices = [f"{number:0{len(bounds[1])}}" for number in range(int(bounds[1]), int(bounds[2]) + 1)]
        else:
            choices = match[1].split(",") if "," in match[1] else [match[0]]
        pieces += [[pattern[end : match.start()]], choices]
        end = match.end()
    pieces.append([pattern[end:]])
    return ("".join(parts) for parts in itertools.product(*pieces))
