"""Which device computes."""

import torch

from .errors import InputError


def choose_device(name: str | None) -> torch.device:
    """Check a device before anything is spent on it.

    Raises:
        InputError: no such device here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = torch.cuda.device_count()
    here = ", ".join(["cpu", *(f"cuda:{number}" for number in range(found))])
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"--device should be cpu, cuda or cuda:N, but is {name}; here: {here}.") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and (device.index or 0) >= found):
        raise InputError(f"--device {name} doesn't exist here; there is: {here}.")
    return device
