"""Where a network computes, and in what numbers: shared by everything that turns pictures into features."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..devices import choose_device
from ..errors import InputError

PRECISIONS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Computation:
    """A device and a precision.

    Attributes:
        device: where.
        precision: "float32" as torch does it by default (on CUDA, convolutions take TF32), or "bfloat16" or, on CUDA,
            "float16" where torch's autocast finds that they do.
    """

    device: torch.device
    precision: str = "float32"

    @contextmanager
    def of(self, images: int) -> Iterator[None]:
        """Inside, a network sees so many images at once, and gives the same numbers every time that it sees them.

        Raises:
            InputError: they don't fit into the device's memory.
        """
        dtype = getattr(torch, self.precision)
        mixed = torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32)
        # The same algorithm every time: a rerun after an interruption must give the same bytes.
        same = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
        try:
            with torch.inference_mode(), same, mixed:
                yield
        except torch.cuda.OutOfMemoryError as error:
            raise InputError(
                f"{images} images at once don't fit into the memory of {self.device}. Choose a smaller batch size.",
                "batch_size",
            ) from error


def choose_computation(device: str | None = None, precision: str = "float32") -> Computation:
    """Check both choices.

    Args:
        device: "cpu", "cuda", "cuda:1"; None for CUDA where there is one.
        precision: one of `PRECISIONS`.

    Raises:
        InputError: no such device here, or a precision that it doesn't have.
    """
    place = choose_device(device)
    if precision not in PRECISIONS:
        raise InputError(f"the precision should be one of {', '.join(PRECISIONS)}, but is {precision}.", "precision")
    if precision == "float16" and place.type == "cpu":
        raise InputError(
            "the precision float16 needs a CUDA device; on cpu choose bfloat16 or float32.", "precision", "device"
        )
    return Computation(place, precision)
