"""Weights as `--weights` names them: a file or not; and random ones of a usable size."""

from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import interpolate

from ...storage.weights import SUFFIXES


def is_file(weights: str) -> bool:
    """Whether --weights names a file, be it there or not."""
    return Path(weights).is_file() or Path(weights).suffix in SUFFIXES


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
        with torch.no_grad():
            self.scale = scale_of(network(photo_like_noise(shape)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Run the network and scale what comes out.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, …)
        """
        return self.network(images) * self.scale


def photo_like_noise(shape: tuple[int, int]) -> torch.Tensor:
    """Noise of every coarseness.

    Shapes:
        returns: (2, 3, H, W)
    """
    sides = (1, 2, 4, 8, 16, 32, 64)
    noise = [interpolate(torch.randn(2, 3, side, side), shape, mode="bilinear") for side in sides]
    return torch.stack(noise).mean(dim=0)


def scale_of(features: torch.Tensor) -> float:
    """What brings features to a mean square of about 1.

    Shapes:
        features: any
    """
    # A power of two: the order of a sum, different with more threads, can't show.
    return 2.0 ** float(features.double().square().mean().log2().div(-2).round())
