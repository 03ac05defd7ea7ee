"""A detector as somebody else's package would bring it: the brightest 8x8 tiles of a picture of any size."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from visual_grounding.features.columns import Columns
from visual_grounding.features.computation import Computation
from visual_grounding.images.sources import UnreadableImage

TILE = 8


class TileDetector:
    """Up to `regions` tiles of each picture that are bright enough, with boxes, labels, attributes and scores.

    A tile's features are its mean colour times a weight; its label is the strongest colour, its attribute whether it
    lies in the left or right half (none in the middle column), its score its brightness.
    """

    def __init__(
        self, computation: Computation, regions: int = 4, weight: float = 2.0, threshold: float = 0.25
    ) -> None:
        self.computation = computation
        self.shape = (regions, 3)
        self.columns = Columns(
            ("boxes", "labels", "attributes", "scores"), ["red", "green", "blue"], ["in the left", "in the right"]
        )
        self.threshold = threshold
        self.network = nn.Linear(3, 3, bias=False).to(computation.device)
        nn.init.constant_(self.network.weight, 0.0)
        self.network.weight.data += weight * torch.eye(3, device=computation.device)
        self.plan: dict[str, Any] = {"detector": "tiles", "weights": f"{weight}", "threshold": threshold}
        self.signed = self.plan

    def load(self, image: Image.Image) -> np.ndarray:
        """(H, W, 3) uint8 in the picture's own size."""
        if min(image.size) < TILE:
            raise UnreadableImage(f"{image.width}x{image.height} pixels, smaller than a tile")
        return np.asarray(image)

    def rows(self, pictures: Sequence[np.ndarray | None]) -> dict[str, torch.Tensor]:
        """The brightest tiles first."""
        device, (regions, size) = self.computation.device, self.shape
        found = {
            "features": torch.zeros(len(pictures), regions, size, device=device),
            "boxes": torch.zeros(len(pictures), regions, 4, device=device),
            "labels": torch.full((len(pictures), regions), -1, device=device),
            "attributes": torch.full((len(pictures), regions), -1, device=device),
            "scores": torch.zeros(len(pictures), regions, device=device),
        }
        with self.computation.of(len(pictures)):
            for place, picture in enumerate(pictures):
                if picture is None:
                    continue
                down, right = picture.shape[0] // TILE, picture.shape[1] // TILE
                tiles = torch.from_numpy(picture[: down * TILE, : right * TILE].astype(np.float32) / 255)
                colours = tiles.reshape(down, TILE, right, TILE, 3).mean(dim=(1, 3)).flatten(0, 1).to(device)
                order = colours.mean(dim=1).argsort(descending=True, stable=True)[:regions]
                order = order[colours[order].mean(dim=1) > self.threshold]
                count = len(order)
                y, x = order // right, order % right
                corners = torch.stack([x, y, x + 1, y + 1], dim=1) * TILE
                sides = torch.tensor([picture.shape[1], picture.shape[0]] * 2, device=device)
                found["features"][place, :count] = self.network(colours[order]).float()
                found["boxes"][place, :count] = corners / sides
                found["labels"][place, :count] = colours[order].argmax(dim=1)
                middle = 2 * x + 1 == right
                found["attributes"][place, :count] = torch.where(middle, -1, (2 * x + 1 > right).long())
                found["scores"][place, :count] = colours[order].mean(dim=1)
        return found


def tile_detector(weights: str | None, image_size: int | None, seed: int) -> Callable[[Computation], TileDetector]:
    """For `--backbone tests.features.tile_detector:tile_detector`; `--weights` is the factor."""
    return lambda computation: TileDetector(computation, weight=float(weights or 2.0))
