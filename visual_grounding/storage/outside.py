"""The guard: what comes from outside is opened here, as a plain file, and what a library says of it becomes ours.

Somebody else's folder may hold anything under the name of a file. A pipe waits for ever, and a device such as
/dev/zero has no end; so neither is opened, but for text out of a pipe, as in `--text <(zcat train.en.gz)`.
"""

import errno
import io
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import InputError, in_short

_OPENED = ("/dev/fd/", "/dev/stdin", "/proc/")  # by whoever started this process
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_UNPACKED = 2**30  # bytes
_MOST_DIGITS = 300  # of a whole number, which a float still holds
_NO_FILE = "is a pipe or a device, not a file"


def check_file(path: str | Path, pipes: bool = False) -> None:
    """Refuse what is neither a plain file nor a folder; what isn't there is left to who opens it.

    Args:
        path: the file.
        pipes: take a pipe, what the shell has opened, and /dev/null.

    Raises:
        OSError: it is a pipe or a device; its `strerror` says so.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    except ValueError as error:  # NUL in a name
        raise OSError(errno.EINVAL, f"is no name of a file ({error})", str(path)) from error
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    opened = str(path).startswith(_OPENED) or os.path.realpath(path) == os.devnull
    if pipes and (stat.S_ISFIFO(mode) or opened):
        return
    raise OSError(errno.EINVAL, _NO_FILE, str(path))


def check_other_files(splits: Mapping[str, Sequence[str | Path]]) -> None:
    """Refuse a file, or a folder, that is named for two splits, by whatever name; pipes are each another.

    Args:
        splits: a split's name -> its files.

    Raises:
        InputError: one is, named with both splits.
    """
    found: dict[tuple[int, int], tuple[str, Path]] = {}
    for split, paths in splits.items():
        for path in map(Path, paths):
            try:
                status = os.stat(path)
            except (OSError, ValueError):  # left to who opens it
                continue
            other, first = found.setdefault((status.st_dev, status.st_ino), (split, path))
            if other != split:
                named = "" if path == first else f" under the name of {first}"
                raise InputError(
                    f"{split} should have another file than {other}, but {path} is given for both{named}. To score a "
                    "model on what it learned from, give a copy.",
                    split,
                    other,
                )


def walk_folder(folder: str | Path) -> Iterator[tuple[str, list[str]]]:
    """A folder and all below it, hidden ones apart: each with the names of its files, in no particular order.

    A link to a folder elsewhere is followed, as links to files are; one to a folder that is walked anyway isn't.

    Raises:
        InputError: one of them can't be listed.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename} can't be listed: {error.strerror or error}.") from error

    root = os.path.realpath(folder)
    walked = [root]
    for parent, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        kept = []
        for name in sorted(name for name in folders if not name.startswith(".")):
            path = os.path.join(parent, name)
            if os.path.islink(path):
                place = os.path.realpath(path)
                around = [os.path.commonpath([each, place]) for each in walked]
                if place == around[0] or any(common == each for common, each in zip(around, walked)):
                    continue
                walked.append(place)
            kept.append(name)
        folders[:] = kept
        yield parent, names


def open_file(path: str | Path, pipes: bool = False) -> io.BufferedReader:
    """A file's bytes, to be read.

    Raises:
        OSError: as `check_file` and `open`.
    """
    check_file(path, pipes)
    return open(path, "rb")


def open_text(path: str | Path, encoding: str = "utf-8", newline: str | None = None) -> IO[str]:
    """A file's text, to be read.

    Raises:
        OSError: as `check_file` and `open`.
    """
    check_file(path)
    return open(path, encoding=encoding, newline=newline)


def read_bytes(path: str | Path) -> bytes:
    """All of a file.

    Raises:
        OSError: as `open_file`.
    """
    with open_file(path) as file:
        return file.read()


def read_json(path: str | Path) -> Any:
    """What a JSON file holds.

    Raises:
        OSError: as `open_file`.
        ValueError: it isn't UTF-8, or as `parse_json`.
    """
    return parse_json(read_bytes(path).decode("utf-8"))


def parse_json(text: str) -> Any:
    """What JSON says.

    Raises:
        ValueError: it isn't JSON, nests too deeply, has a whole number of hundreds of digits, or half a character, such
            as "\\ud83d", in its text.
    """
    try:
        content = json.loads(text, parse_int=_whole_number)
        check_characters(content, text)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    return content


def _whole_number(digits: str) -> int:
    """A number of JSON that a float can take."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


def check_characters(content: Any, text: str) -> None:
    """Refuse what can be no text again, though JSON may escape it; two halves are one character.

    Args:
        content: what was read.
        text: from this.

    Raises:
        ValueError: there is half a character, as above.
        RecursionError: it nests too deeply.
    """
    if _HALF.search(text):
        try:
            json.dumps(content, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("it has half a character (\\ud800 to \\udfff)") from error


def load_array(path: str | Path, mapped: bool = False) -> Any:
    """What a `.npy` or `.npz` file holds; Python objects are never loaded.

    Args:
        path: the file.
        mapped: leave the numbers on disk.

    Raises:
        OSError: as `check_file` and `open`.
        Exception: numpy fails in many ways on a broken header, which may claim more than any memory holds.
    """
    check_file(path)
    return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)


def check_archive(arrays: Any) -> None:
    """Refuse an open `.npz` that would unpack to more than the arrays of an image, or of a report, ever take.

    Raises:
        ValueError: it would.
    """
    unpacked = sum(member.file_size for member in arrays.zip.infolist())
    if unpacked > _MOST_UNPACKED:
        raise ValueError(f"its arrays take {unpacked} bytes, more than {_MOST_UNPACKED}")


@contextmanager
def reading(path: str | Path, wanted: str, remedy: str = "") -> Iterator[None]:
    """Inside, whatever a library raises over a broken file is one line for whoever brought it.

    Args:
        path: what is read.
        wanted: what it should be, such as "word vectors".
        remedy: the next command.

    Raises:
        InputError: for any exception.
    """
    end = f" {remedy}" if remedy else ""
    try:
        check_file(path)
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path} should be {wanted}, but isn't there.{end}") from error
    except OSError as error:
        raise InputError(f"{path} should be {wanted}, but can't be read: {error.strerror or error}.{end}") from error
    except Exception as error:  # each library has errors of its own, and a broken file fails in any of them
        raise InputError(f"{path} should be {wanted}, but can't be read: {in_short(error)}.{end}") from error
