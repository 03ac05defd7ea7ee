"""Frozen weights stay as they are, whatever the optimizer does.

fairseq's optimizer for float16 and bfloat16 steps a float32 copy of all the weights that it began with, and writes the
copy into the model: weight decay goes on in those that were frozen since. Its others leave weights without a gradient
alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def frozen_weights_kept(optimizer: Any) -> Iterator[None]:
    """While the optimizer takes a step: put frozen weights, and its copies of them, back to what they were."""
    frozen = list(_frozen_weights(optimizer))
    before = [copy.clone() for _, copy in frozen]
    yield
    with torch.no_grad():
        for (weight, copy), kept in zip(frozen, before):
            copy.copy_(kept)
            weight.copy_(kept)


def _frozen_weights(optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Every frozen weight of the model with the optimizer's copy of it; none where the optimizer has no copies."""
    copies: Any = getattr(optimizer, "fp32_params", ())
    used: dict[int | None, int] = {}
    for number, weight in enumerate(getattr(optimizer, "fp16_params", ())):
        if isinstance(copies, dict):  # one long vector a device, with the weights behind one another
            device = weight.device.index
            start = used.get(device, 0)
            used[device] = start + weight.numel()
            copy = copies[device].data[start : used[device]].view_as(weight)
        else:
            copy = copies[number].data
        if not weight.requires_grad:
            yield weight, copy
