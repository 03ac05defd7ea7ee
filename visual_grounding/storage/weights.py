"""Weights: read from a file without running it, and put into a network that they must fit, all of them.

Backbones, checkpoints and retrievers load through here, so a file that doesn't fit says the same everywhere: how many
weights are missing, superfluous, of another shape or type, which they are, where they came from, and what to do.
"""

import hashlib
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, first_line
from .outside import open_file

SUFFIXES = (".pth", ".pt", ".bin", ".safetensors")
_SHOWN = 3  # weights named of each problem
_DTYPES = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
}


def read_weights(path: Path, name: str = "", finite: bool = False, remedy: str = "") -> dict[str, Tensor]:
    """Read a state_dict, on the CPU; a pickle is read as plain tensors, so that none of its code runs.

    Args:
        path: .safetensors, or what `torch.save` wrote (.pth, .pt, .bin).
        name: what messages call the file; its path without one.
        finite: refuse NaN and infinity.
        remedy: the next command, said at the end of a message.

    Raises:
        InputError: it isn't there, is anything else than tensors with names, or isn't finite where it should be.
    """
    name = name or str(path)
    end = f" {remedy}" if remedy else ""
    if not path.is_file():
        what = "isn't a file" if path.exists() else "doesn't exist"
        raise InputError(f"{name} should be a state_dict ({', '.join(SUFFIXES)}), but {what}.{end}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each reader has errors of its own, and torch's tell to switch the safety off
        said = first_line(error).rstrip(".")
        if isinstance(error, pickle.UnpicklingError):
            asked = re.search(r"GLOBAL (\S+)", str(error))
            whole = _first_byte(path) in (b"P", b"\x80")  # of a zip file, of a pickle
            said = f"it asks to run {asked[1]}, which wasn't done" if asked else "it is no file of torch's"
            if whole and not asked:
                said = (
                    "torch's safe loader doesn't know its kind of pickle: save it again, as torch.save does by itself"
                )
        raise InputError(f"{name} should be a state_dict of plain tensors, but can't be read: {said}.{end}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        inner = f" with {', '.join(map(repr, list(state)[:5]))}" if isinstance(state, dict) else ""
        raise InputError(
            f"{name} should be a state_dict (name -> tensor), but is a {type(state).__name__}{inner}.{end}"
        )
    check_tensors(state, name, end)
    if finite:
        broken = [key for key, value in state.items() if value.is_floating_point() and not value.isfinite().all()]
        if broken:
            raise InputError(
                f"{name} should hold finite weights, but {len(broken)} of {len(state)} have NaN or infinity "
                f"({_listed(broken)}).{end}"
            )
    return state


def _first_byte(path: Path) -> bytes:
    with open_file(path) as file:
        return file.read(1)


def check_tensors(state: Mapping[Any, Any], name: object, end: str = "") -> None:
    """Refuse tensors that no training writes and few functions take, or that claim more memory than they brought.

    Args:
        state: name -> tensor, as it was read.
        name: what messages call the file.
        end: of the message.

    Raises:
        InputError: a name that isn't text, a type that can't be computed with, or a tensor that isn't dense numbers.
    """
    odd = [key for key in state if not isinstance(key, str)]
    if odd:
        raise InputError(f"{name} should have text as names of its weights, but has {odd[0]!r:.80}.{end}")
    for key, value in state.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type == "meta":
            raise InputError(f"{name} should hold dense tensors, but {key!r:.80} is none.{end}")
        if value.dtype not in _DTYPES:
            raise InputError(f"{name} should hold plain numbers, but {key!r:.80} is of type {value.dtype}.{end}")
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise InputError(
                f"{name} should hold all numbers of its weights, but {key!r:.80} of shape {tuple(value.shape)} repeats "
                f"fewer.{end}"
            )


def check_weights_fit(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], origin: Path | str, owner: str, remedy: str = ""
) -> None:
    """Refuse weights that aren't exactly those of a network, and name the first of them.

    Args:
        own: the network's `state_dict()`.
        found: what was read.
        origin: where it was read from.
        owner: what the network is called.
        remedy: the next command, said at the end of the message.

    Raises:
        InputError: weights are missing, superfluous, of another shape, or integers where there should be fractions.
    """
    # Files from before torch 0.4.1 don't count batches; torch fills that in, and evaluation doesn't use it.
    missing = [name for name in own if name not in found and not name.endswith("num_batches_tracked")]
    superfluous = [name for name in found if name not in own]
    common = [name for name in own if name in found]
    resized = [
        f"{name} is {tuple(found[name].shape)}, not {tuple(own[name].shape)}"
        for name in common
        if found[name].shape != own[name].shape
    ]
    retyped = [
        f"{name} is {found[name].dtype}, not {own[name].dtype}"
        for name in common
        if found[name].is_floating_point() != own[name].is_floating_point()
    ]
    problems = {"missing": missing, "superfluous": superfluous, "of another shape": resized, "of another type": retyped}
    said = [f"{len(names)} {problem} ({_listed(names)})" for problem, names in problems.items() if names]
    if said:
        end = f" {remedy}" if remedy else ""
        raise InputError(f"{origin} should hold the {len(own)} weights of {owner}, but has {', '.join(said)}.{end}")


def load_strictly(
    model: nn.Module,
    state: Mapping[str, Tensor],
    origin: Path | str,
    owner: str,
    remedy: str = "",
    assign: bool = False,
) -> None:
    """Put a state_dict into a network; all of it must fit.

    Modules that weights were saved from before something was added to them bring these up to date first, by a method
    with fairseq's name and arguments: `upgrade_state_dict_named(state, name_of_the_module)`.

    Args:
        model, state, origin, owner, remedy: as `check_weights_fit`.
        assign: take the tensors themselves instead of copying their numbers.

    Raises:
        InputError: as `check_weights_fit`.
    """
    state = dict(state)
    for name, module in model.named_modules():
        if hasattr(module, "upgrade_state_dict_named"):
            module.upgrade_state_dict_named(state, name)
    own = model.state_dict()
    check_weights_fit(own, state, origin, owner, remedy)
    model.load_state_dict(state, strict=own.keys() == state.keys(), assign=assign)


def sha256_of_state(model: nn.Module, prefix: str = "") -> str:
    """Digest of a network's weights, names and shapes: the same from whatever file or place they were loaded.

    Args:
        prefix: of some names, left out, because not every version of a library has it.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted((name.removeprefix(prefix), tensor) for name, tensor in model.state_dict().items()):
        digest.update(f"{name}\t{tensor.dtype}\t{tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
