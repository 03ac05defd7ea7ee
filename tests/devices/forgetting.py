"""The fault that pretended devices are there to find: a tensor that is made where a model runs, but not on its device.

The CPU lets it pass. It is put into the package while a test runs.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Forgetful(NamedTuple):
    """What forgets a device, and what runs it.

    Attributes:
        target: a function or method of the package.
        forward: in forwards.py.
        chain: in chains.py.
    """

    target: str
    forward: str
    chain: str


FORGETFUL = (
    Forgetful("visual_grounding.modules.visual_attention.VisualAttention.forward", "visual_aware_transformer",
              "translation"),
    Forgetful("visual_grounding.criterions.hardest_negative_triplet.hardest_negative_triplet_loss", "triplet_criterion",
              "retriever_training"),
    Forgetful("visual_grounding.retrieval.search._best_of_chunk", "exact_search", "retrieval"),
    Forgetful("visual_grounding.retrieval.nearest._highest_of_blocks", "nearest_image", "retrieval"),
)  # fmt: skip


def forgetting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function after a row of zeros was added to its first tensor, without a word on where the zeros are."""

    def forgetful(*args: Any, **kwargs: Any) -> Any:
        at = next(at for at, each in enumerate(args) if isinstance(each, Tensor))
        shifted = args[at] + torch.zeros(args[at].shape[-1], dtype=args[at].dtype)
        return function(*args[:at], shifted, *args[at + 1 :], **kwargs)

    return forgetful


def without_device(factory: str) -> Any:
    """`torch` for one file, whose `torch.FACTORY(…, device=…)` forgets the device."""

    def forgetful(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        return getattr(torch, factory)(*args, **kwargs)

    return SimpleNamespace(**{**vars(torch), factory: forgetful})
