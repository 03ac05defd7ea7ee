"""A CUDA device that isn't there: tensors say that they are on it, and are computed with on the CPU.

`FakeTensorMode` has no numbers, so nothing runs there whose shapes or branches depend on them. Here everything runs but
backward, and a CPU tensor that meets one of these is refused as a GPU refuses it. Neither makes CUDA the default
device: what a forward makes without saying where is on the CPU, as everywhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

CUDA = torch.device("cuda:0")
aten = torch.ops.aten


class PretendedTensor(Tensor):
    """A tensor that says it is on a CUDA device.

    Attributes:
        held: its numbers, on the CPU.
    """

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "PretendedTensor":
        pretended = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), held.stride(), held.storage_offset(), dtype=held.dtype, device=CUDA
        )
        pretended.held = held
        return pretended

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Only inside `pretended_cuda`."""
        raise RuntimeError(f"{func} on a tensor of a pretended device, outside of it")

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """What it is made of: tells `nn.Module.to` and its like to swap whole tensors."""
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], *_: Any) -> "PretendedTensor":
        """The inverse."""
        return PretendedTensor(parts["held"])

    def tolist(self) -> Any:
        """As a CUDA tensor's."""
        return self.held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Refused, as a CUDA tensor's."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def __repr__(self, **_: Any) -> str:
        return f"{self.held!r} (pretended to be on {CUDA})"


class _PretendedMode(TorchDispatchMode):
    """Runs every operation on the CPU, and says of its results that they are where they would be."""

    # torch leaves CUDA alone while this kind of mode is active, and begins to look for a driver otherwise.
    _mode_key = torch._C._TorchDispatchModeKey.FAKE

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        pretended = [isinstance(tensor, PretendedTensor) for tensor in tensors]
        asked = kwargs.get("device")
        moves = func in (aten.copy_.default, aten._to_copy.default)
        # Numbers without dimensions may lie on the CPU, but for results, and so may an index.
        strict = func.overloadpacket in _TAKES_NO_NUMBER_OF_THE_CPU
        strangers = [tensor for tensor, ours in zip(tensors, pretended) if not ours and (strict or tensor.dim())]
        strangers += [args[place] for place in _written(func) if not isinstance(args[place], PretendedTensor)]
        if func.overloadpacket in (aten.index, aten.index_put, aten.index_put_):
            strangers = [tensor for tensor in strangers if not any(tensor is index for index in args[1])]
            strangers += [index for index in args[1] if isinstance(index, PretendedTensor) and not pretended[0]]
        if any(pretended) and strangers and not moves:
            raise RuntimeError(f"Expected all tensors to be on the same device, but {func} found cuda:0 and cpu!")
        if asked is not None:
            kwargs["device"] = torch.device("cpu")
        on_cuda = torch.device(asked).type == "cuda" if asked is not None else self._result_on_cuda(args, pretended)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        func = _ON_THE_CPU.get(func, func)
        found = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        return _claim(found, on_cuda)

    @staticmethod
    def _result_on_cuda(args: Any, pretended: list[bool]) -> bool:
        """Where a result lies that nobody asked to be somewhere: with the first argument, where that is a tensor."""
        if args and isinstance(args[0], Tensor) and (args[0].dim() or len(pretended) == 1):
            return isinstance(args[0], PretendedTensor)
        return any(pretended)


_TAKES_NO_NUMBER_OF_THE_CPU = {aten.cat, aten.embedding, aten.gather, aten.index_select, aten.stack, aten.take}


@cache
def _written(func: Any) -> list[int]:
    """Places of the arguments that an operation changes."""
    arguments = func._schema.arguments
    return [
        at for at, each in enumerate(arguments) if not each.kwarg_only and each.alias_info and each.alias_info.is_write
    ]


def _softmax(scores: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """What only CUDA has in one: float16 in, float32 out."""
    return torch.softmax(scores.float() if half_to_float else scores, dim)


def _log_softmax(scores: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """As `_softmax`."""
    return torch.log_softmax(scores.float() if half_to_float else scores, dim)


def _batch_norm(vectors: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, *options: Any) -> tuple[Tensor, ...]:
    """cuDNN's, which gives a fourth tensor for backward."""
    return *torch.native_batch_norm(vectors, weight, bias, mean, variance, *options), torch.empty(0, dtype=torch.uint8)


_ON_THE_CPU = {
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten.cudnn_batch_norm.default: _batch_norm,
    aten._pin_memory.default: lambda tensor, device=None: tensor,
}


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, PretendedTensor) else leaf


def _claim(found: Any, on_cuda: bool) -> Any:
    return tree_map(lambda leaf: PretendedTensor(leaf) if on_cuda and isinstance(leaf, Tensor) else leaf, found)


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """`device="cuda"` works inside, autocast included."""
    lifts_cpu_only = torch._C._only_lift_cpu_tensors()
    with FakeTensorMode():
        pass  # leaves a device guard that asks no driver
    with pytest.MonkeyPatch.context() as patch, sdpa_kernel(SDPBackend.MATH):
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
        # Views of a tensor that is made up of another one can't be inference tensors.
        patch.setattr(torch._C, "_InferenceMode", lambda mode: torch.no_grad() if mode else nullcontext())
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device="cuda") is made on the CPU and moved
        try:
            with _PretendedMode():
                yield
        finally:
            torch._C._set_only_lift_cpu_tensors(lifts_cpu_only)


@contextmanager
def fake_cuda() -> Iterator[None]:
    """torch's own: shapes, types and devices without numbers."""
    with FakeTensorMode(), pytest.MonkeyPatch.context() as patch:
        # fairseq asks so for sizes, and torch looks for them in a memory that isn't there.
        patch.setattr(torch.onnx.operators, "shape_as_tensor", lambda tensor: tensor.shape)
        yield
