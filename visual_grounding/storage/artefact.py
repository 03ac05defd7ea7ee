"""Artefacts: directories of plain arrays beside a `meta.json` that says what they are and where they came from."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError

META = "meta.json"
FORMAT_VERSION = 1


def sha256_of_file(path: str | Path) -> str:
    """Hex digest of a file's bytes, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_text(content: dict[str, Any]) -> str:
    """JSON as artefacts have it."""
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write and flush to disk, so that a file that exists is whole: it appears under its name by one rename."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json_text(content))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_meta(folder: str | Path, expected_format: str) -> dict[str, Any]:
    """Read `meta.json` of an artefact.

    Raises:
        InputError: nothing is there, it is unfinished, broken, of another kind, or of a newer version.
    """
    folder = Path(folder)
    path = folder / META
    if not path.is_file():
        if folder.with_name(folder.name + ".partial").is_dir():
            raise InputError(
                f"{folder} should hold a finished {expected_format}, but only {folder}.partial exists: the command "
                "that writes it was interrupted. Run that command again; it continues where it stopped."
            )
        raise InputError(f"{folder} should hold a {expected_format}, but there is no {path}.")
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        found, version = meta["format"], meta["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} should be the JSON description of a {expected_format}, but is broken: {error!r}."
        ) from error
    if found != expected_format:
        raise InputError(f"{folder} should hold a {expected_format}, but {path} says that it is a {found}.")
    if version != FORMAT_VERSION:
        raise InputError(f"{path} has format version {version}, but this package reads version {FORMAT_VERSION}.")
    return meta


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
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing.") from error
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise InputError(f"{path} should be a plain .npy array, but can't be read: {error}.") from error
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape))
    if not fits or array.dtype != np.dtype(dtype):
        wanted = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
        raise InputError(f"{path} should be {dtype} of shape {wanted}, but is {array.dtype} of shape {array.shape}.")
    return array
