"""What happens to a picture before a network sees it, in two halves.

The first runs in the threads that decode, and keeps bytes; the second on the network's device, for a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from ...images.sources import MAX_PIXELS, UnreadableImage
from ...storage.settings import listed, number, whole_number

# What the settings of preprocessing may be, where others publish them.
LARGEST_SIDE = 8192  # pixels of a picture, for any network
SIDE = whole_number(1, LARGEST_SIDE)
MEAN = listed("three numbers from -1000 to 1000", *[number(-1000, 1000)] * 3)  # of pixels in 0..1, or in 0..255
SPREAD = listed("three numbers from 0.0001 to 1000", *[number(0.0001, 1000)] * 3)  # their deviation


class PicturePreprocessing(Protocol):
    """Both halves.

    Attributes:
        shape: (H, W) of what the network sees.
        summary: for a signature, such as 256/224: resized to, cropped to.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(H, W) of what the network sees."""
        ...

    @property
    def summary(self) -> str:
        """For a signature."""
        ...

    def pixels(self, image: Image.Image) -> np.ndarray:
        """RGB -> (H, W, 3) uint8; raises UnreadableImage."""
        ...

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """(B, H, W, 3) uint8 -> (B, 3, H, W) float32."""
        ...

    def describe(self) -> str:
        """One line that says everything."""
        ...


@dataclass(frozen=True)
class Preprocessing:
    """Short side to `resize`, centre crop, scale, normalise: what torchvision's classifiers were trained with."""

    resize: int
    crop: int
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    interpolation: str = "bilinear"

    @property
    def shape(self) -> tuple[int, int]:
        """(H, W)."""
        return self.crop, self.crop

    @property
    def summary(self) -> str:
        """For a signature."""
        return f"{self.resize}/{self.crop}"

    def pixels(self, image: Image.Image) -> np.ndarray:
        """Resize and crop.

        Shapes:
            returns: (crop, crop, 3) uint8

        Raises:
            UnreadableImage: the picture is so long and thin that its resized form would fill the memory.
        """
        refuse_thin(image, self.resize)
        image = F.resize(image, [self.resize], InterpolationMode(self.interpolation))
        return np.array(F.center_crop(image, [self.crop]))

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scale to 0..1 and normalise.

        Shapes:
            pixels: (B, crop, crop, 3) uint8
            returns: (B, 3, crop, crop) float32
        """
        return scale_and_normalise(pixels, self.mean, self.std)

    def with_crop(self, crop: int) -> "Preprocessing":
        """The same framing at another size: the cropped share of the picture stays."""
        return Preprocessing(round(self.resize * crop / self.crop), crop, self.mean, self.std, self.interpolation)

    def describe(self) -> str:
        """One line that says everything."""
        return f"resize {self.resize} {self.interpolation}, crop {self.crop}, {_normalisation(self.mean, self.std)}"


@dataclass(frozen=True)
class LibraryPreprocessing:
    """Resizing and cropping by the code of the library that a network comes from, then scale and normalise.

    Attributes:
        frame: RGB -> (3, H, W) uint8: the library's own code, so that every mode and rounding of it is kept.
        shape: (H, W) that `frame` gives.
        mean, std: of pixels in 0..1.
        short_side: what `frame` resizes the short side to, where the long side may be of any length; else None.
        summary: for a signature.
        description: of `frame`, for the plan.
    """

    frame: Callable[[Image.Image], torch.Tensor]
    shape: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    short_side: int | None
    summary: str
    description: str

    def pixels(self, image: Image.Image) -> np.ndarray:
        """Resize and crop.

        Shapes:
            returns: (H, W, 3) uint8

        Raises:
            UnreadableImage: the picture is so long and thin that its resized form would fill the memory, or vanish.
        """
        if self.short_side is not None:
            refuse_thin(image, self.short_side)
        try:
            framed = self.frame(image)
        except (ValueError, RuntimeError) as error:  # a side that is resized to nothing
            reason = " ".join(str(error).split())
            raise UnreadableImage(f"{image.width}x{image.height} pixels can't be resized: {reason}") from error
        return framed.permute(1, 2, 0).contiguous().numpy()

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scale to 0..1 and normalise.

        Shapes:
            pixels: (B, H, W, 3) uint8
            returns: (B, 3, H, W) float32
        """
        return scale_and_normalise(pixels, self.mean, self.std)

    def describe(self) -> str:
        """One line that says everything."""
        return f"{self.description}, {_normalisation(self.mean, self.std)}"


def refuse_thin(image: Image.Image, short_side: int) -> None:
    """Refuse a picture whose long side would be endless once its short side is resized.

    Raises:
        UnreadableImage: with its size.
    """
    long, short = max(image.size), min(image.size)
    if long * short_side**2 > MAX_PIXELS * short:
        raise UnreadableImage(f"{image.width}x{image.height} pixels, too thin to resize its short side to {short_side}")


def scale_and_normalise(pixels: torch.Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    """(pixels / 255 - mean) / std.

    Shapes:
        pixels: (B, H, W, 3) uint8
        returns: (B, 3, H, W) float32
    """
    images = pixels.permute(0, 3, 1, 2).to(torch.float32) / 255
    centre, spread = (images.new_tensor(values)[:, None, None] for values in (mean, std))
    return (images - centre) / spread


def _normalisation(mean: tuple[float, ...], std: tuple[float, ...]) -> str:
    return "normalise " + " ".join(f"{value:g}" for value in (*mean, *std))
