"""fairseq checkpoints without fairseq: load them safely, average them, count their parameters.

A checkpoint is a pickle, and a pickle can run any code. torch loads plain tensors and containers only; the classes
that fairseq's checkpoints hold beside them are allowed here by name, nothing else is.
"""

import argparse
import collections
import errno
import importlib
import re
import sys
import typing
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from .outside import open_file
from .signature import made_alike
from .weights import check_tensors

_EPOCH_CHECKPOINT = re.compile(r"checkpoint(\d+)\.pt")
_NOT_PARAMETERS = {"version", "_float_tensor", "running_mean", "running_var"}
_FOR_IMAGES = re.compile(r"(?:^|\.)(?:fusion|image_\w+|visual_\w+)\.")  # a promise of models/visual_model.py
_NUMPY_DTYPES = ("Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "Float16", "Float32", "Float64")
_OMEGACONF_NODES = (
    "AnyNode",
    "BooleanNode",
    "BytesNode",
    "EnumNode",
    "FloatNode",
    "IntegerNode",
    "PathNode",
    "StringNode",
    "UnionNode",
)
_TORCH_SAVES = (b"PK\x03\x04", b"\x80")  # what a file of torch.save begins with: a zip archive, or before 1.6 a pickle


def allow_fairseq_checkpoints() -> None:
    """Let `torch.load(weights_only=True)`, torch's default, read what fairseq's checkpoints hold.

    `Namespace` (configurations); numpy arrays and scalars (meters of `--eval-bleu`); omegaconf's containers, and
    fairseq's own placeholder for tensors where fairseq is loaded (both: resuming with several processes).
    Calling it again changes nothing.
    """
    multiarray = importlib.import_module("numpy._core.multiarray")
    allowed: list[Any] = [argparse.Namespace, collections.defaultdict, dict, int, list, typing.Any]
    allowed += [np.ndarray, np.dtype, *(getattr(np.dtypes, f"{name}DType") for name in _NUMPY_DTYPES)]
    for function in ("_reconstruct", "scalar"):  # numpy 1 called the module numpy.core
        allowed.append((getattr(multiarray, function), f"numpy._core.multiarray.{function}"))
        allowed.append((getattr(multiarray, function), f"numpy.core.multiarray.{function}"))
    try:
        from omegaconf import DictConfig, ListConfig, base, nodes
    except ImportError:
        pass
    else:
        allowed += [DictConfig, ListConfig, base.ContainerMetadata, base.Metadata]
        allowed += [getattr(nodes, name) for name in _OMEGACONF_NODES if hasattr(nodes, name)]
    if sys.modules.get("fairseq") is not None:
        allowed.append(importlib.import_module("fairseq.distributed.utils")._TensorPlaceholder)
    torch.serialization.add_safe_globals(allowed)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a fairseq checkpoint into memory. Its weights are `result["model"]`.

    Raises:
        InputError: unreadable, truncated, of another kind, or it holds classes that aren't allowed.
    """
    state = _loaded(path, mapped=False)
    model = state.get("model") if isinstance(state, dict) else None
    if (
        not isinstance(model, Mapping)
        or not model
        or not all(isinstance(value, torch.Tensor) for value in model.values())
    ):
        found = f"holds {sorted(map(str, state))[:5]}" if isinstance(state, dict) else f"is a {type(state).__name__}"
        raise InputError(f"{path} should be a fairseq checkpoint with weights under 'model', but {found}.")
    check_tensors(model, path)
    _check_choices(path, state)
    return state


def load_settings(path: str | Path) -> dict[str, Any]:
    """What a checkpoint holds beside its weights; these stay in the file, and may be missing.

    Raises:
        InputError: as `load_checkpoint`.
    """
    state = _loaded(path, mapped=zipfile.is_zipfile(path))  # torch before 1.6 wrote files that can only be read whole
    if not isinstance(state, dict):
        raise InputError(f"{path} should be a fairseq checkpoint, but is a {type(state).__name__}.")
    _check_choices(path, state)
    return state


def _loaded(path: str | Path, mapped: bool) -> Any:
    allow_fairseq_checkpoints()
    begins = b""
    try:
        with open_file(path) as file:
            begins = file.read(4)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
    try:
        with warnings.catch_warnings(action="ignore"):  # of other programs' pickles; what follows is said below
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a broken pickle can fail in any way
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # what torch says of a file that was cut off
            raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
        raise InputError(_why_not_loaded(path, error, begins)) from error


def _check_choices(path: str | Path, state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that says in another form than fairseq's how it was trained: all who ask rely on that."""
    cfg = state.get("cfg")
    said = {"cfg": cfg, "task_state": state.get("task_state"), "args": state.get("args")}
    if isinstance(cfg, Mapping):
        said["cfg.model"] = cfg.get("model")
    for name, value in said.items():
        if not isinstance(value, Mapping | argparse.Namespace | None):
            raise InputError(
                f"{path} should be a fairseq checkpoint, with names and values as {name!r}, but has {value!r:.80}."
            )


def _why_not_loaded(path: str | Path, error: Exception, begins: bytes) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):
            unsafe = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # as above: it reads the same broken file
        unsafe = []
    if unsafe:
        return (
            f"{path} should hold tensors and settings only, but it also holds {', '.join(unsafe)}, which could run "
            "code and isn't loaded. Save it again without them."
        )
    reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
    if not begins.startswith(_TORCH_SAVES):  # of these torch speaks at length
        reason = "it doesn't begin as a file of torch.save"
    return (
        f"{path} should be a fairseq checkpoint, but is truncated or of another kind: {reason}. Copy or train it again."
    )


def last_epoch_checkpoints(folder: str | Path, count: int) -> list[Path]:
    """The `count` latest `checkpoint<epoch>.pt` of a folder, by epoch number, oldest first.

    Raises:
        InputError: the folder can't be read, or holds fewer.
    """
    try:
        matches = [(_EPOCH_CHECKPOINT.fullmatch(path.name), path) for path in Path(folder).iterdir()]
    except OSError as error:
        raise InputError(f"{folder} can't be read: {error.strerror or error}.", "checkpoint_dir") from error
    epochs = sorted((int(match[1]), path) for match, path in matches if match)
    if count < 1:
        raise InputError(f"the last should be at least 1 checkpoint, but are {count}.", "last")
    if len(epochs) < count:
        raise InputError(
            f"{folder} should hold at least {count} epoch checkpoints (checkpoint<epoch>.pt), but has {len(epochs)}. "
            f"Ask for fewer, or train with --keep-last-epochs {count} or more, without --no-epoch-checkpoints.",
            "last",
        )
    return [path for _, path in epochs[-count:]]


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, Any]:
    """The last checkpoint with the mean weights of all; without the optimizer's state, which fits none of them.

    Weights are summed in float64 and go back to their own type. Weights that share memory still do. Integers must
    agree, but for batch normalisation's counters, which are the last checkpoint's.

    Raises:
        InputError: as `load_checkpoint`; a weight is not a number; checkpoints differ in the names, shapes, types, or
            integers of their weights, in how the image features that they were trained on were made, or in the words
            that they know.
    """
    if not paths:
        raise InputError("at least one checkpoint is needed to average, but none was given.")
    first: dict[str, torch.Tensor] = {}
    features: str | None = None
    origin = paths[0]  # of `features`
    words: dict[str, str] = {}
    sums: dict[str, torch.Tensor] = {}
    state: dict[str, Any] = {}
    for path in paths:
        state = load_checkpoint(path)
        first = first or state["model"]
        found = trained_on(state, path)
        if not _may_be_alike(features, found):
            raise InputError(
                f"checkpoints should be trained on image features that were made alike, but {origin} was on "
                f"{features}, and {path} on {found}."
            )
        if features is None:
            features, origin = found, path
        for name, digest in dictionaries(state).items():
            if words.setdefault(name, digest) != digest:
                raise InputError(
                    f"checkpoints should be trained with the same words in the same order, but the {name} dictionary "
                    f"of {path} has the sha256 {digest}, and that of those before it {words[name]}."
                )
        _check_same_weights(paths[0], first, path, state["model"])
        for name, weight in state["model"].items():
            if weight.is_floating_point():
                if bool(weight.isnan().any()):
                    raise InputError(f"{path} should have numbers as weights, but {name!r} holds NaN: leave it out.")
                sums[name] = sums[name] + weight.double() if name in sums else weight.double()
    shared: dict[tuple[Any, ...], torch.Tensor] = {}
    model = state["model"]
    for name, weight in model.items():
        if name in sums:
            mean = (sums[name] / len(paths)).to(weight.dtype)
            if bool(mean.isnan().any()):
                raise InputError(
                    f"checkpoints should have weights with a mean, but {name!r} is infinite with both signs."
                )
            known = shared.setdefault(_memory(weight), mean)
            model[name] = known if torch.equal(known, mean) else mean
    state.pop("last_optimizer_state", None)
    if features is not None:  # the last one needn't have said it
        state["task_state"] = {**(state.get("task_state") or {}), "image_features": features}
    if words:
        state["task_state"] = {**(state.get("task_state") or {}), "dictionaries": words}
    return state


def trained_on(state: Mapping[str, Any], path: str | Path) -> str | None:
    """Signature of the image features that a checkpoint was trained on; None where it doesn't say, or had none.

    Raises:
        InputError: it isn't text.
    """
    task = state.get("task_state") or {}
    features = task.get("image_features") if isinstance(task, Mapping) else task
    if features is not None and not isinstance(features, str):
        raise InputError(
            f"{path} should say how its features were made, in text as task_state['image_features'], but says "
            f"{features!r:.80}."
        )
    return features


def dictionaries(state: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of the symbols of each dictionary that a checkpoint was trained with, by what it is for; where it says."""
    task = state.get("task_state") or {}
    known = task.get("dictionaries") if isinstance(task, Mapping) else None
    return {str(name): str(digest) for name, digest in known.items()} if isinstance(known, Mapping) else {}


def _may_be_alike(features: str | None, other: str | None) -> bool:
    return features is None or other is None or made_alike(features, other)


def _check_same_weights(
    first_path: str | Path, first: Mapping[str, torch.Tensor], path: str | Path, model: Mapping[str, torch.Tensor]
) -> None:
    for name in [*first, *model]:
        if name not in first or name not in model:
            has, lacks = (path, first_path) if name in model else (first_path, path)
            raise InputError(f"checkpoints should have the same weights, but {has} has {name!r} and {lacks} doesn't.")
    for name, weight in model.items():
        expected = first[name]
        if (weight.shape, weight.dtype) != (expected.shape, expected.dtype):
            raise InputError(
                f"{name!r} should be {expected.dtype} of shape {tuple(expected.shape)} as in {first_path}, but is "
                f"{weight.dtype} of shape {tuple(weight.shape)} in {path}."
            )
        counter = name.endswith("num_batches_tracked")
        if not weight.is_floating_point() and not counter and not torch.equal(weight, expected):
            raise InputError(
                f"{name!r} holds {weight.dtype}, which has no mean, but {first_path} and {path} differ in it."
            )


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The same for two tensors only if they are the same part of the same memory."""
    return (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride())


def count_parameters(model: Mapping[str, torch.Tensor]) -> int:
    """Number of parameters of a model's state; each shared weight counts once, buffers with known names don't.

    A checkpoint written on a GPU stores a shared weight (an embedding that is also the output layer) several times.
    So matrices with equal values count as one, too: training never makes two of its own accord.
    """
    counted: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    total = 0
    for name, weight in model.items():
        if not weight.is_floating_point() or name.rpartition(".")[2] in _NOT_PARAMETERS:
            continue
        alike = counted.setdefault(tuple(weight.shape), [])
        if not any(
            _memory(weight) == _memory(other) or (weight.dim() > 1 and torch.equal(weight, other)) for other in alike
        ):
            alike.append(weight)
            total += weight.numel()
    return total


def weights_for_images(model: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of a model's weights that exist for images alone: its twin without images has the others."""
    return {name: weight for name, weight in model.items() if _FOR_IMAGES.search(name)}


def architecture(state: Mapping[str, Any]) -> str | None:
    """`--arch` of a checkpoint; None where it doesn't say."""
    choices = (state.get("cfg") or {}).get("model") or state.get("args")
    named = choices.get("_name") if isinstance(choices, Mapping) else None
    return next((each for each in (named, getattr(choices, "arch", None)) if isinstance(each, str) and each), None)
