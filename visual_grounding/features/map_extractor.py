"""A network's map as regions: one for the whole image, or a grid of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import adaptive_avg_pool2d

from ..errors import InputError
from .backbones import Backbone
from .columns import NO_COLUMNS
from .computation import Computation

POOLS = ("mean", "max", "grid", "own")


class Pooling(NamedTuple):
    """How a network's map becomes regions: `mean` or `max` over all of it, or the means of `grid` x `grid` cells.

    `grid` is None for the network's own map: each of its places is a region. `own` is the network's own pooling and
    projection instead of its map: one region.
    """

    kind: str = "mean"
    grid: int | None = None

    def regions(self, feature_map: torch.Tensor) -> torch.Tensor:
        """Pool.

        Shapes:
            feature_map: (B, F, h, w); for own (B, F), pooled already
            returns: (B, R, F), cells row by row from the top left; R = 1 for mean, max and own.
        """
        if self.kind == "own":
            return feature_map.unsqueeze(1)
        if self.kind == "max":
            return feature_map.amax(dim=(2, 3)).unsqueeze(1)
        if self.kind == "mean":
            return feature_map.mean(dim=(2, 3)).unsqueeze(1)
        cells = feature_map if self.grid is None else adaptive_avg_pool2d(feature_map, self.grid)
        return cells.flatten(2).transpose(1, 2)


MEAN = Pooling()


class MapExtractor:
    """An `Extractor` that sees every picture in one size, and pools the map of a network in float32.

    Attributes:
        map_size: h and w of the network's map; 1 and 1 where it pools by itself.

    Raises:
        InputError: the pooling doesn't fit the network.
    """

    columns = NO_COLUMNS

    def __init__(self, backbone: Backbone, pooling: Pooling, computation: Computation) -> None:
        self.backbone = backbone
        self.pooling = pooling
        self.computation = computation
        self._network = _network(backbone, pooling).to(computation.device)
        size, height, width = self._measure()
        self.map_size = (height, width)
        self.shape = (_count_regions(pooling, height, width, backbone.name), size)
        preprocessing = backbone.preprocessing
        choices = {"backbone": backbone.name, "weights": backbone.weights}
        pooled = {"pool": pooling.kind, "grid": pooling.grid}
        self.plan: dict[str, Any] = {**choices, "preprocessing": preprocessing.describe(), **pooled}
        self.signed: dict[str, Any] = {**choices, "preprocessing": preprocessing.summary, **pooled}

    def load(self, image: Image.Image) -> np.ndarray:
        """Resize and crop.

        Shapes:
            returns: (H, W, 3) uint8

        Raises:
            UnreadableImage: as the network's preprocessing.
        """
        return self.backbone.preprocessing.pixels(image)

    def rows(self, pictures: Sequence[np.ndarray | None]) -> dict[str, torch.Tensor]:
        """Features of a batch; a picture that is None is black.

        Shapes:
            pictures: B of (H, W, 3) uint8
            returns: features (B, R, F) float32, on the device
        """
        pin = self.computation.device.type == "cuda"
        pixels = torch.zeros(
            len(pictures), *self.backbone.preprocessing.shape, 3, dtype=torch.uint8, pin_memory=pin
        )  # (B, H, W, 3)
        for place, picture in enumerate(pictures):
            if picture is not None:
                pixels[place] = torch.from_numpy(picture)
        with torch.inference_mode():  # without autocast: pooled in float32
            return {"features": self.pooling.regions(self._forward(pixels))}

    def _forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """What the network makes of a batch.

        Shapes:
            pixels: (B, H, W, 3) uint8, on the CPU
            returns: (B, F, h, w), or (B, F) where it pools by itself; float32 on the device
        """
        with self.computation.of(len(pixels)):
            images = self.backbone.preprocessing.normalise(pixels.to(self.computation.device, non_blocking=True))
            return self._network(images).float()

    def _measure(self) -> tuple[int, int, int]:
        """F, h and w, by one blank image; h = w = 1 where the network pools by itself."""
        blank = self._forward(torch.zeros(1, *self.backbone.preprocessing.shape, 3, dtype=torch.uint8))
        wanted, form = (2, "(B, E)") if self.pooling.kind == "own" else (4, "(B, F, h, w)")
        if blank.dim() != wanted:
            raise InputError(
                f"the network of {self.backbone.name} should turn a batch into {form}, but one image became "
                f"{tuple(blank.shape)}."
            )
        return (blank.shape[1], *blank.shape[2:]) if blank.dim() == 4 else (blank.shape[1], 1, 1)


def _network(backbone: Backbone, pooling: Pooling) -> nn.Module:
    """The part of a backbone that a pooling needs."""
    if pooling.kind not in POOLS:
        raise InputError(f"the pooling should be one of {', '.join(POOLS)}, but is {pooling.kind}.", "pool")
    if pooling.kind != "own":
        return backbone.network
    if backbone.own is None:
        raise InputError(f"{backbone.name} has no pooling of its own. Choose mean, max or grid.", "pool")
    return backbone.own


def _count_regions(pooling: Pooling, height: int, width: int, name: str) -> int:
    if pooling.kind != "grid":
        if pooling.grid is not None:
            raise InputError(
                f"a grid of {pooling.grid} needs the pooling grid, but the pooling is {pooling.kind}.", "pool", "grid"
            )
        return 1
    if pooling.grid is None:
        return height * width
    if not 1 <= pooling.grid <= min(height, width):
        raise InputError(
            f"the grid should be 1 to {min(height, width)}, because the map of {name} is {height}x{width} here, but is "
            f"{pooling.grid}. A larger image size gives a larger map.",
            "grid",
            "image_size",
        )
    return pooling.grid**2
