"""Artefacts: directories of plain arrays beside a `meta.json` that says what they are and where they came from."""

import errno
import hashlib
import io
import json
import os
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from ..errors import InputError, in_short, printable
from .outside import load_array, open_file, read_json

META = "meta.json"
PARTIAL = ".partial"  # behind the name of an output that isn't finished; `unfinished.py` says what lies there
FORMAT_VERSION = 1
_NAMES = {
    "feature-store": "a feature store",
    "image-ids": "image ids",
    "index": "an index",
    "averaged-checkpoint": "an averaged checkpoint",
    "pieces": "pieces",
    "vokens": "vokens",
    "examples": "labelled examples",
}
_LETTERS = 10_000  # of a signature, a tokenizer's name: tables and pages show them
_AGAIN = "Delete its folder, and run the command that makes it again."


def sha256_of_file(path: str | Path) -> str:
    """Hex digest of a file's bytes, read in pieces.

    Raises:
        OSError: as `open_file`.
    """
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_text(content: dict[str, Any]) -> str:
    """JSON as artefacts have it."""
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")  # a file's name may be no text


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write and flush to disk, so that a file that exists is whole: it appears under its name by one rename."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json_text(content))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush names to disk, where the file system can: what was renamed stays so when the machine goes down."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(file)


def claim_disk(file: int, start: int, size: int) -> None:
    """Take `size` bytes behind `start` of an open file from the disk: a full disk is an error now, not a crash later.

    What the disk has no room for isn't begun. `posix_fallocate` would fill it before it gives up, and whatever else is
    written in that moment, by whomever, would fail.

    Raises:
        OSError: there is no room; its `strerror` says how much is lacking.
    """
    free = shutil.disk_usage(file).free
    if size > free:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({size:,} bytes are needed, {free:,} are free)")
    os.posix_fallocate(file, start, size)


def _named(format: str) -> str:
    """An artefact's kind as a person calls it."""
    return _NAMES.get(format, f"a {format}")


def _remedy(format: str, folder: Path) -> str:
    verbs = {"feature-store": "extract", "image-ids": "retrieve", "index": "index", "vokens": "vokenize"}
    return f"Make it with: visual-grounding {verbs[format]} … --out {folder}" if format in verbs else "Make it again."


def read_meta(folder: str | Path, expected_format: str, **fields: type | UnionType) -> dict[str, Any]:
    """Read `meta.json` of an artefact.

    Args:
        fields: what it has to hold, name -> type; an `int` is a count, so 0 or more.

    Raises:
        InputError: nothing is there, it is unfinished, broken, of another kind, or of a newer version.
    """
    folder = Path(folder)
    path = folder / META
    if not path.is_file():
        place = folder if folder.name else Path(os.path.realpath(folder))  # `.` has no name, nor has `/`
        if place.parent.joinpath(place.name + PARTIAL).is_dir():
            raise InputError(
                f"{folder} should hold {_named(expected_format)}, but only {place}{PARTIAL} exists: the command "
                "that writes it was interrupted. Run that command again; it continues where it stopped."
            )
        if folder.name.endswith(PARTIAL):
            raise InputError(
                f"{folder} should hold {_named(expected_format)}, but is what an interrupted command left. Run that "
                "command again; it continues where it stopped."
            )
        wanted = f"{folder} should hold {_named(expected_format)}, but"
        if inside := _kinds_in(folder):
            raise InputError(f"{wanted} there lie {inside} in it. Is it the folder of another flag?")
        if kind := named_kind_of(folder.parent):
            raise InputError(f"{wanted} {folder.parent} is itself {kind}. Is it the folder of another flag?")
        beside = _kinds_in(folder.parent)
        beside = f"; beside it lie {beside}" if beside else ""
        if (folder / "config.json").is_file():
            raise InputError(f"{wanted} is an exported model, such as a retriever. Is it the folder of another flag?")
        if folder.is_dir() and any(folder.iterdir()):  # where nothing can be made
            raise InputError(f"{wanted} there is no {META} among its files{beside}. Is it the folder of another flag?")
        raise InputError(f"{wanted} there is no {path}{beside}. {_remedy(expected_format, folder)}")
    try:
        meta = read_json(path)
        found, version = meta["format"], meta["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}({in_short(error)})"
        raise InputError(
            f"{path} should be the JSON description of {_named(expected_format)}, but is broken: {reason}. {_AGAIN}"
        ) from error
    if not isinstance(found, str):
        raise InputError(f"{path} should have text as 'format', but has {found!r:.80}. {_AGAIN}")
    if found != expected_format:
        wanted = _named(expected_format)
        raise InputError(f"{folder} should hold {wanted}, but {path} says that it is {_named(found)}.")
    if version != FORMAT_VERSION:
        raise InputError(f"{path} has format version {version!r:.80}, but this package reads version {FORMAT_VERSION}.")
    check_fields(path, meta, fields)
    return meta


def _kinds_in(folder: Path) -> str:
    """The artefacts in a folder, such as `image ids (train, valid)`; at most six names of a kind."""
    found: dict[str, list[str]] = {}
    try:
        for path in sorted(folder.iterdir()):
            if kind := kind_of(path):
                found.setdefault(_named(kind), []).append(printable(path.name))
    except OSError:
        return ""
    lists = {kind: ", ".join(names[:6]) + (", …" if len(names) > 6 else "") for kind, names in found.items()}
    return " and ".join(f"{kind} ({names})" for kind, names in lists.items())


def kind_of(folder: str | Path) -> str:
    """The format of the artefact that a folder is, as far as this package knows it; empty otherwise."""
    try:
        content = read_json(Path(folder) / META)
    except (OSError, ValueError):
        return ""
    kind = content.get("format") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) and kind in _NAMES else ""


def named_kind_of(folder: str | Path) -> str:
    """The same as a person calls it, such as `an index`."""
    return _named(kind) if (kind := kind_of(folder)) else ""


def check_fields(path: Path, content: dict[str, Any], fields: Mapping[str, type | UnionType]) -> None:
    """Refuse a JSON file whose fields are missing or of another type, or text that nobody wrote, as long as it is.

    Raises:
        InputError: the first such field.
    """
    for name, kind in fields.items():
        if not _is_sound(content.get(name), kind):
            nouns = {int: "a count", float: "a number", list: "a list", dict: "a table"}
            wanted = next((noun for known, noun in nouns.items() if kind is known), "text")
            held = repr(content[name])[:80] if name in content else "nothing"
            if isinstance(content.get(name), str) and len(content[name]) > _LETTERS:
                held = f"{len(content[name])} letters: at most {_LETTERS} are taken"
            raise InputError(f"{path} should have {wanted} as {name!r}, but has {held}. {_AGAIN}")


def _is_sound(value: Any, kind: type | UnionType) -> bool:
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    if isinstance(value, int):
        return 0 <= value < 2**63
    if not isinstance(value, str):
        return True
    return len(value) <= _LETTERS and not any("\ud800" <= letter <= "\udfff" for letter in value)


def read_keys(path: Path, rows: int, sha256: str) -> Iterator[str]:
    """Lines of a key list, one by one from disk; read them to the end, where they are checked.

    Args:
        path: the file.
        rows: how many lines it should have.
        sha256: the digest of its bytes that the artefact was made with.

    Raises:
        InputError: it can't be read, isn't UTF-8, or at its end: it hasn't `rows` lines, or isn't what it was.
    """
    lines = 0
    digest = hashlib.sha256()
    try:
        with open_file(path) as file:
            for line in file:
                lines += 1
                digest.update(line)
                yield line.removesuffix(b"\n").decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} should hold image keys, but can't be read: {error}.") from error
    if lines != rows:
        raise InputError(f"{path} should hold {rows} image keys, one a row, but has {lines} lines. {_AGAIN}")
    check_keys_sha256(path, digest.hexdigest(), sha256)


class Keys:
    """The image keys of an artefact, in row order: to go through, which reads the file line by line, or by row.

    Args:
        path: the file.
        rows: how many lines it should have.
        sha256: the digest of its bytes that the artefact was made with.
    """

    def __init__(self, path: Path, rows: int, sha256: str) -> None:
        self._path, self._rows, self._sha256 = path, rows, sha256
        self._all: list[str] | None = None

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[str]:
        with suppress(OSError):
            if os.path.getsize(self._path) < self._rows:  # refused before anybody claims room for so many
                deque(read_keys(self._path, self._rows, self._sha256), maxlen=0)
        return read_keys(self._path, self._rows, self._sha256)

    def __getitem__(self, rows: Any) -> Any:
        """The key of one row, or lists of those of many; None for −1, which stands for no image.

        The first time all keys are read, and kept.

        Args:
            rows: a whole number, an array or lists of them, or a slice.

        Raises:
            InputError: as `read_keys`; or rows that are no whole numbers.
            IndexError: there is no such row.
        """
        wanted = np.asarray(range(self._rows)[rows] if isinstance(rows, slice) else rows)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise InputError(f"rows should be whole numbers, but are {wanted.dtype}: {rows!r:.80}")
        if wanted.size and not -1 <= wanted.min() <= wanted.max() < self._rows:
            raise IndexError(f"{self._path} has rows 0..{self._rows - 1}, but {rows!r:.80} was asked for")
        if self._all is None:
            self._all = list(self)
        return _looked_up(self._all, wanted.tolist())


def _looked_up(keys: list[str], rows: Any) -> Any:
    if isinstance(rows, list):
        return [_looked_up(keys, each) for each in rows]
    return keys[rows] if rows >= 0 else None


def check_keys_sha256(path: Path, found: str, expected: str) -> None:
    """Refuse a key list that isn't the one its artefact was made with: rows would be taken for other images.

    Raises:
        InputError: its digest is another.
    """
    if found != expected:
        raise InputError(
            f"{path} was changed after its artefact was made: its sha256 is {found[:8]}…, but {META} says "
            f"{expected[:8]}…. Rows no longer belong to their images. {_AGAIN}"
        )


def array_header(shape: tuple[int, ...], dtype: str | np.dtype) -> bytes:
    """What stands before the numbers in an array's `.npy` file."""
    header = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


def array_bytes(shape: tuple[int, ...], dtype: str | np.dtype) -> int:
    """Size of an array's `.npy` file.

    >>> array_bytes((3, 4), "float32") - array_bytes((0, 4), "float32")
    48
    """
    return len(array_header(shape, dtype)) + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def open_array(path: Path, shape: tuple[int | None, ...], dtype: str) -> np.ndarray:
    """Memory-map a `.npy` file and check it.

    Args:
        path: the file.
        shape: expected sizes, None where any size will do.
        dtype: expected dtype, e.g. "float16".

    Raises:
        InputError: missing, truncated, not a plain array, or of another shape or dtype.
    """
    try:
        array = load_array(path, mapped=True)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing. {_AGAIN}") from error
    except Exception as error:  # numpy fails in many ways on a broken header: it may claim more than any memory holds
        raise InputError(
            f"{path} should be a plain .npy array, but can't be read: {in_short(error)}. {_AGAIN}"
        ) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} should be a plain .npy array, but is a {type(array).__name__}.")
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape))
    if not fits or array.dtype != np.dtype(dtype):
        wanted = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
        raise InputError(
            f"{path} should be {dtype} of shape {wanted}, but is {array.dtype} of shape {array.shape}. {_AGAIN}"
        )
    return array


def check_whole(path: Path, mapped: int) -> None:
    """Refuse a memory-mapped file that was cut short since it was opened: reading on would kill the process (SIGBUS).

    One question to the file system; ask before each block of rows.

    Args:
        mapped: bytes up to the end of the array.

    Raises:
        InputError: it is gone or shorter than its array.
    """
    try:
        size = os.path.getsize(path)
    except OSError as error:
        raise InputError(f"{path} vanished while it was being read: {error.strerror or error}.") from error
    if size < mapped:
        raise InputError(
            f"{path} was changed while it was being read: its array ends at byte {mapped}, but the file now at "
            f"{size}. Put it back and run the same command again."
        )


def check_array_whole(array: np.ndarray) -> None:
    """As `check_whole`, of a memory-mapped array or a view of one; of an array in memory there is nothing to ask.

    Shapes:
        array: any

    Raises:
        InputError: its file is gone or shorter than the array.
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    if isinstance(array, np.memmap) and array.filename is not None:
        check_whole(Path(array.filename), array.offset + array.nbytes)
