"""Read `.npy`, `.npz` and `.pt` files of unknown origin: only numbers, since a pickle can run its author's code."""

import hashlib
import pickle
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, in_short
from ..storage.artefact import check_array_whole, check_whole
from ..storage.outside import check_archive, check_file, load_array, open_file

TORCH_SUFFIXES = (".pt", ".pth")
FLOATS = ("float16", "bfloat16", "float32", "float64")
_SAMPLES, _SAMPLE_BYTES = 64, 4096
_REASON = 160  # letters of a reason, in a list of unreadable images


class UnreadableArray(Exception):
    """A file is missing, empty or broken; the message is the reason."""


def map_array(path: Path, name: str | None) -> Any:
    """Open one array without reading it: a numpy array of a `.npy` file, or a torch tensor.

    Raises:
        InputError: it is broken, holds anything but numbers, or which array is meant isn't clear.
    """
    try:
        if path.suffix in TORCH_SUFFIXES:
            return _pick_tensor(_load_torch(path), path, name)
        array = load_array(path, mapped=True)
        if not isinstance(array, np.ndarray):
            raise UnreadableArray("it is an archive of several arrays; name it .npz")
        return array
    except InputError:
        raise
    except Exception as error:  # numpy fails in many ways on a broken header: it may claim more than any memory holds
        raise InputError(f"{path} should hold a plain array, but can't be read: {in_short(error)}.") from error


def read_arrays(path: Path, names: Sequence[tuple[str, str | None]]) -> list[np.ndarray]:
    """Read arrays of one image's file.

    Args:
        names: of the arrays, each behind the choice that it is, for a message; None for the only one that a file has.

    Raises:
        UnreadableArray: it is missing, empty or broken.
        InputError: it holds anything but numbers, or not these arrays, or which one is meant isn't clear.
    """
    try:
        if path.stat().st_size == 0:
            raise UnreadableArray("empty file")
        if path.suffix in TORCH_SUFFIXES:
            content = _load_torch(path)
            return [as_numpy(_pick_tensor(content, path, name, choice)) for choice, name in names]
        if path.suffix == ".npy":
            if len(names) > 1:
                others = ", ".join(str(name) for _, name in names[1:])
                raise InputError(f"{path} holds one array, but {others} should be there, too: save them as one .npz.")
            array = load_array(path)
            if not isinstance(array, np.ndarray):
                raise UnreadableArray("an archive of several arrays; name it .npz")
            return [array]
        with open_file(path) as file, np.load(file, allow_pickle=False) as arrays:  # a broken one numpy leaves open
            check_archive(arrays)
            return [arrays[_pick_name(arrays.files, path, name, choice)] for choice, name in names]
    except (UnreadableArray, InputError):
        raise
    except FileNotFoundError as error:
        raise UnreadableArray("missing") from error
    except Exception as error:  # numpy and zipfile fail in many ways on a broken file
        if "Object arrays" in str(error):
            raise InputError(
                f"{path} should hold numbers, but holds Python objects: not loaded, for safety."
            ) from error
        raise UnreadableArray(f"broken or truncated: {in_short(error, _REASON)}") from error


def array_names(path: Path) -> list[str]:
    """Names of the arrays in one image's file; one that holds a single array without a name has a made-up one.

    Raises:
        UnreadableArray: it is missing, empty or broken.
        InputError: it holds anything but numbers.
    """
    if path.suffix == ".npy":
        read_arrays(path, [("array", None)])
        return ["array"]
    try:
        if path.stat().st_size == 0:
            raise UnreadableArray("empty file")
        if path.suffix in TORCH_SUFFIXES:
            content = _load_torch(path)
            return [str(name) for name in content] if isinstance(content, dict) else ["array"]
        with open_file(path) as file, np.load(file, allow_pickle=False) as arrays:
            return list(arrays.files)
    except (UnreadableArray, InputError):
        raise
    except FileNotFoundError as error:
        raise UnreadableArray("missing") from error
    except Exception as error:
        raise UnreadableArray(f"broken or truncated: {in_short(error, _REASON)}") from error


def check_float(array: Any, path: object) -> None:
    """Refuse what isn't floating-point, from numpy or torch.

    Raises:
        InputError: with the type found.
    """
    found = array.dtype.name if isinstance(array, np.ndarray) else str(array.dtype).removeprefix("torch.")
    if found not in FLOATS:
        raise InputError(f"{path} should hold features of a type among {', '.join(FLOATS)}, but holds {found}.")


def as_numpy(array: Any) -> np.ndarray:
    """A tensor as an array, without a copy where numpy knows its type."""
    if isinstance(array, np.ndarray):
        return array
    array = array.detach()
    return (array.float() if str(array.dtype) == "torch.bfloat16" else array).numpy()


def check_mapped(path: Path, array: Any) -> None:
    """Refuse a file that was cut short since its array, or the storage behind its tensor, was mapped.

    Raises:
        InputError: it was.
    """
    if isinstance(array, np.ndarray):
        check_array_whole(array)
    else:
        check_whole(path, array.untyped_storage().nbytes())


def sample_digest(path: Path) -> str:
    """Digest of a file's size and of pieces spread evenly over it: other features are noticed in no time."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with open_file(path) as file:
        for number in range(_SAMPLES):
            file.seek(number * max(size - _SAMPLE_BYTES, 0) // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _load_torch(path: Path) -> Any:
    """Load tensors and nothing else, memory-mapped where the file allows.

    Raises:
        InputError: the file wants more than tensors; nothing in it was run.
        UnreadableArray: it is broken.
    """
    import torch

    try:
        check_file(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        if wanted is None:
            raise UnreadableArray("broken or truncated: no tensors that torch can read") from error
        raise InputError(
            f"{path} should hold tensors alone, but asks to run {wanted[1]} when loaded. Nothing was run. "
            "Save only the tensor: torch.save(features, …)"
        ) from error
    except Exception as error:  # torch's readers fail in many ways on a broken file
        raise UnreadableArray(f"broken or truncated: {in_short(error, _REASON)}") from error


def _pick_tensor(content: Any, path: Path, name: str | None, choice: str = "array") -> Any:
    import torch

    if isinstance(content, dict):
        content = content[_pick_name(list(content), path, name, choice)]
    if not isinstance(content, torch.Tensor) or content.layout != torch.strided:
        kind = type(content).__name__
        raise InputError(f"{path} should hold one dense tensor, or tensors by name, but holds a {kind}.")
    from ..storage.weights import check_tensors

    check_tensors({"tensor": content}, path)
    return content


def _pick_name(names: list[Any], path: Path, name: str | None, choice: str) -> Any:
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        asked = "none was chosen" if name is None else f"not {name}"
        held = ", ".join(map(str, names[:8])) or "nothing"
        raise InputError(f"{path} holds {held}, but {asked}. Choose one by its name.", choice)
    return name
