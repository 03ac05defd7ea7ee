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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from .outside import open_file, parse_json
from .signature import made_alike
from .weights import check_tensors

# Choices of a model that its weights have the same shapes with, whatever they are.
_WITHOUT_SHAPE = (
    "encoder_attention_heads", "decoder_attention_heads", "visual_attention_heads", "activation_fn",
    "encoder_normalize_before", "decoder_normalize_before", "no_decoder_final_norm", "no_scale_embedding",
    "no_token_positional_embeddings", "sentence_level", "visual_gate",
)  # fmt: skip
_ENCODERS = ("bert_config", "grounded_config")  # JSON of the encoders that a model begins with
# What says how they learned, or where they are from.
_OF_TRAINING = re.compile(r"dropout|initializer|checkpointing|label|_name_or_path|architectures|dtype|_version")
_MOST_COUNTED = 2**31  # of anything that a task remembers the number of
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
    state = _loaded(path, mapped=True)
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
            mapped = mapped and zipfile.is_zipfile(path)  # torch before 1.6 wrote files that can only be read whole
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a broken pickle can fail in any way
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # what torch says of a file that was cut off
            raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
        raise InputError(_why_not_loaded(path, error, begins)) from error


def _check_choices(path: str | Path, state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that says in another form than fairseq's how it was trained: all who ask rely on that.

    Raises:
        InputError: it is one, or as `check_task_state`.
    """
    cfg = state.get("cfg")
    said = {"cfg": cfg, "args": state.get("args")}
    if isinstance(cfg, Mapping):
        said["cfg.model"] = cfg.get("model")
    for name, value in said.items():
        if not isinstance(value, Mapping | argparse.Namespace | None):
            raise InputError(
                f"{path} should be a fairseq checkpoint, with names and values as {name!r}, but has {value!r:.80}."
            )
    check_task_state(state.get("task_state"), path)


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


def check_task_state(state: Any, place: object) -> dict[str, Any]:
    """What a task remembered in a checkpoint, whose kinds all that this package makes of it relies on.

    Args:
        state: checkpoint["task_state"]; what isn't there, or is None, isn't known.
        place: what messages call the checkpoint.

    Raises:
        InputError: it has another form than the tasks write.
    """
    if not isinstance(state, Mapping | None):
        raise InputError(
            f"{place} should be a fairseq checkpoint, with names and values as 'task_state', but has {state!r:.80}."
        )
    remembered = dict(state or {})
    for name, (wanted, fits) in _REMEMBERED.items():
        value = remembered.get(name)
        if value is not None and not fits(value):
            raise InputError(f"{place} should say {wanted} as task_state[{name!r}], but says {value!r:.80}.")
    return remembered


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_COUNTED


def _has_digests(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value, *value.values())))


def _knows_vokens(value: Any) -> bool:
    if not isinstance(value, Mapping) or not {"keys_sha256", "count"} <= value.keys():
        return False
    return _is_count(value["count"]) and all(_is_text(value.get(name, "")) for name in _IN_TEXT)


_IN_TEXT = ("keys_sha256", "tokenizer_sha256", "made")
# What tasks of this package remember (data/*_memory.py): what it says, for a message, and whether it does.
_REMEMBERED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "dictionaries": ("the sha256 of each dictionary, by its name,", _has_digests),
    "image_features": ("how its features were made, in text", _is_text),
    "images_per_sentence": ("how many images a sentence had, in a whole number", _is_count),
    "asked": ("what was asked of its examples, in text", _is_text),
    "image_sentence": ("whose images it saw, in text", _is_text),
    "image_tags": ("which tags it read, in text", _is_text),
    "vokens": ("of which vokens it knows, in text and by their count,", _knows_vokens),
    "voken_labels": ("what it told of pieces, in text", _is_text),
}


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
            integers of their weights, in choices that these fit with any, such as heads, in how the image features that
            they were trained on were made, or in the words or vokens that they know.
    """
    if not paths:
        raise InputError("at least one checkpoint is needed to average, but none was given.")
    first: dict[str, torch.Tensor] = {}
    features: str | None = None
    origin = paths[0]  # of `features`
    words: dict[str, str] = {}
    vokens: dict[str, tuple[Any, str | Path]] = {}
    choices: dict[str, tuple[Any, str | Path]] = {}
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
        _check_same_vokens(vokens, path, state)
        _check_same_choices(choices, path, state)
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
    if vokens:
        remembered = state.get("task_state") or {}
        before = {name: value for name, (value, _) in vokens.items()}
        state["task_state"] = {**remembered, "vokens": {**before, **(remembered.get("vokens") or {})}}
    return state


def trained_on(state: Mapping[str, Any], path: str | Path) -> str | None:
    """Signature of the image features that a checkpoint was trained on; None where it doesn't say, or had none.

    Raises:
        InputError: as `check_task_state`.
    """
    features: str | None = check_task_state(state.get("task_state"), path).get("image_features")
    return features


def dictionaries(state: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of the symbols of each dictionary that a checkpoint was trained with, by what it is for; where it says."""
    task = state.get("task_state") or {}
    known = task.get("dictionaries") if isinstance(task, Mapping) else None
    return {str(name): str(digest) for name, digest in known.items()} if isinstance(known, Mapping) else {}


def choices_without_shape(state: Mapping[str, Any]) -> dict[str, Any]:
    """Choices of a checkpoint's model that its weights fit with any, such as heads; those that it says.

    Those of encoders that it began with have names such as `bert_config.num_attention_heads`.
    """
    said = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    known = said if isinstance(said, Mapping) else vars(said)  # as the model's flags are a dataclass or not
    choices = {name: known[name] for name in _WITHOUT_SHAPE if known.get(name) is not None}
    for name in _ENCODERS:
        try:
            choices |= _choices_within(name, parse_json(known.get(name) or "{}"))
        except (TypeError, ValueError):
            continue  # which whoever builds the model refuses
    return choices


def _choices_within(name: str, content: Any) -> dict[str, Any]:
    """What JSON says that decides what a model computes, by the path to it.

    >>> _choices_within("bert_config", {"num_attention_heads": 4, "hidden_dropout_prob": 0.1, "layers": ["gelu"]})
    {'bert_config.num_attention_heads': 4, 'bert_config.layers.0': 'gelu'}
    """
    if isinstance(content, Mapping):
        parts = [(key, value) for key, value in content.items() if not _OF_TRAINING.search(key)]
    elif isinstance(content, list):
        parts = [(str(place), value) for place, value in enumerate(content)]
    else:
        return {name: content}
    return {inner: choice for key, value in parts for inner, choice in _choices_within(f"{name}.{key}", value).items()}


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


def _check_same_vokens(known: dict[str, tuple[Any, str | Path]], path: str | Path, state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose vokens are numbers of other images than before, or of text that was cut otherwise.

    Args:
        known: what checkpoints before said of their vokens, each with the first that did; this one's is added.
    """
    found = (state.get("task_state") or {}).get("vokens") or {}
    known |= {name: (value, path) for name, value in found.items() if name not in known}
    for name in ("keys_sha256", "count", "tokenizer_sha256"):
        if name in found and found[name] != known[name][0]:
            raise InputError(
                f"checkpoints should be trained on vokens of the same images, and of text that the same tokenizer cut, "
                f"but {known[name][1]} was on those with the {name} {known[name][0]}, and {path} {found[name]}."
            )


def _check_same_choices(known: dict[str, tuple[Any, str | Path]], path: str | Path, state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose weights fit those before, but mean something else.

    Args:
        known: choices of the checkpoints before, each with the first that said it; this one's are added.
    """
    for name, choice in choices_without_shape(state).items():
        before, origin = known.setdefault(name, (choice, path))
        if str(choice) != str(before):
            named = name if "." in name else f"--{name.replace('_', '-')}"
            raise InputError(
                f"checkpoints should be trained with the same {named}, but {origin} was with "
                f"{before}, and {path} with {choice}: their weights have the same shapes, but mean something else."
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
