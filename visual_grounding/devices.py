"""What computes: devices and cores."""

import os

import torch

from .errors import InputError
from .storage.ranks import local_rank, ranks_here


def cores() -> int:
    """CPU cores of this process: those it may run on, shared among the ranks of its job on this machine."""
    return max(1, len(os.sched_getaffinity(0)) // ranks_here())


def choose_device(name: str | None) -> torch.device:
    """Check a device before anything is spent on it. Where torchrun started several processes, each has its own card.

    Raises:
        InputError: no such device here.
    """
    found = torch.cuda.device_count()
    local = local_rank()
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and local is not None and found:
        if local >= found:
            raise InputError(
                f"each rank should have a CUDA device of its own, but LOCAL_RANK is {local} and there are {found} "
                f"devices here. Start with --nproc-per-node {found}, or choose the cpu.",
                "device",
            )
        name = f"cuda:{local}"
    here = ", ".join(["cpu", *(f"cuda:{number}" for number in range(found))])
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"the device should be cpu, cuda or cuda:N, but is {name}; here: {here}.", "device") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and (device.index or 0) >= found):
        raise InputError(f"device {name} doesn't exist here; there is: {here}.", "device")
    return device
