"""Weights: read from a file without running it, checked against the network; or random ones of a usable size."""

import hashlib
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import interpolate

from ...errors import InputError

SUFFIXES = (".pth", ".pt", ".bin", ".safetensors")


def is_file(weights: str) -> bool:
    """Whether --weights names a file, be it there or not."""
    return Path(weights).is_file() or Path(weights).suffix in SUFFIXES


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """Read a state_dict.

    Raises:
        InputError: it isn't there, or anything else than tensors with names.
    """
    if not path.is_file():
        raise InputError(f"--weights {path} should be a state_dict (.pth, .pt, .safetensors), but doesn't exist.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each reader has errors of its own, and torch's tell to switch the safety off
        raise InputError(
            f"--weights {path} should be a state_dict of plain tensors, but can't be read: {first_line(error)}"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        inner = f" with {', '.join(map(repr, list(state)[:5]))}" if isinstance(state, dict) else ""
        raise InputError(
            f"--weights {path} should be a state_dict (name -> tensor), but is a {type(state).__name__}{inner}."
        )
    return state


def load_strictly(model: nn.Module, state: dict[str, torch.Tensor], origin: Path | str, name: str) -> None:
    """Put a state_dict into a network; all of it must fit.

    Raises:
        InputError: tensors are missing, superfluous or of another shape; the first are named.
    """
    expected = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    found = {key: tuple(value.shape) for key, value in state.items()}
    # Checkpoints from before torch 0.4.1 don't count batches; torch fills that in, and evaluation doesn't use it.
    missing = [key for key in expected if key not in found and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in found if key not in expected]
    resized = [key for key in found if key in expected and found[key] != expected[key]]
    problems = []
    if missing:
        problems.append(f"{len(missing)} missing ({', '.join(missing[:3])})")
    if unexpected:
        problems.append(f"{len(unexpected)} unexpected ({', '.join(unexpected[:3])})")
    if resized:
        problems.append(
            f"{len(resized)} of another shape ({resized[0]} is {found[resized[0]]}, not {expected[resized[0]]})"
        )
    if problems:
        raise InputError(
            f"{origin} should hold the {len(expected)} tensors of {name}, but has " + ", ".join(problems) + "."
        )
    model.load_state_dict(state, strict=not any(key not in found for key in expected))


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


def first_line(error: Exception) -> str:
    """What a library says, in short."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:200]


class Scaled(nn.Module):
    """A random network with what comes out brought to a mean square of 1.

    What random weights make of a picture is 10^-13 (EfficientNet-B7) to 10^8 (ResNet-152); float16 holds neither. The
    scale comes from noise of every coarseness, as photos have it.

    Shapes:
        network: (B, 3, H, W) -> (B, …)
    """

    def __init__(self, network: nn.Module, shape: tuple[int, int] = (128, 128)) -> None:
        super().__init__()
        self.network = network.eval()
        noise = [
            interpolate(torch.randn(2, 3, side, side), shape, mode="bilinear") for side in (1, 2, 4, 8, 16, 32, 64)
        ]
        with torch.no_grad():
            exponent = network(torch.stack(noise).mean(dim=0)).double().square().mean().log2().div(-2).round()
        # A power of two: the order of a sum, different with more threads, can't show.
        self.scale = 2.0 ** float(exponent)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Run the network and scale what comes out.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, …)
        """
        return self.network(images) * self.scale
