"""Regions where no detector is at hand: the cells of a grid, each classified as if it were a picture of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from ..errors import InputError, check_at_least_one
from ..images.sources import UnreadableImage
from .backbones import Backbone
from .columns import Columns
from .computation import Computation


class GridClassifier:
    """An `Extractor`: every cell of a grid is a region, its label the class that a classifier finds likeliest there.

    Features are what the network pools before its last layer, the score is the label's probability. A cell is
    stretched to what the network sees, not cropped, so that box and features speak of the same pixels.

    Args:
        backbone: with a classifier.
        grid: cells along each side; R = grid * grid, row by row from the top left.
        class_names: of its classes; None for those of its weights.

    Raises:
        InputError: the network doesn't classify, or has another number of classes than there are names.
    """

    def __init__(
        self, backbone: Backbone, grid: int | None, class_names: Sequence[str] | None, computation: Computation
    ) -> None:
        if grid is None:
            raise InputError("regions that are cells of a grid need its number of cells along a side.", "grid")
        check_at_least_one(grid=grid)
        if backbone.classifier is None:
            raise InputError(
                f"{backbone.name} has no classes to label regions with. Choose a classifier of torchvision or timm.",
                "backbone",
            )
        self.backbone = backbone
        self.grid = grid
        self.computation = computation
        self._network = backbone.classifier.to(computation.device)
        pooled, logits = self._classify(torch.zeros(1, *backbone.preprocessing.shape, 3, dtype=torch.uint8))
        names = tuple(class_names or backbone.class_names)
        if len(names) != logits.shape[1]:
            raise InputError(
                f"{backbone.name} has {logits.shape[1]} classes, but there are {len(names)} names. Give a file with "
                "the names that it was trained with, one a line.",
                "label_names",
            )
        self.columns = Columns(("boxes", "labels", "scores"), names)
        self.shape = (grid * grid, pooled.shape[1])
        height, width = backbone.preprocessing.shape
        choices = {"backbone": backbone.name, "weights": backbone.weights, "region_source": "grid", "grid": grid}
        stretched = f"stretched to {width}x{height}"
        described = f"{stretched}; by itself {backbone.preprocessing.describe()}"
        self.plan: dict[str, Any] = {**choices, "preprocessing": described}
        self.signed: dict[str, Any] = {**choices, "preprocessing": stretched}
        cells = [(x, y) for y in range(grid) for x in range(grid)]
        self._boxes = torch.tensor([[x / grid, y / grid, (x + 1) / grid, (y + 1) / grid] for x, y in cells])  # (R, 4)

    def load(self, image: Image.Image) -> np.ndarray:
        """The cells, each as the network sees it.

        Shapes:
            returns: (R, H, W, 3) uint8

        Raises:
            UnreadableImage: the picture has fewer pixels along a side than the grid has cells.
        """
        if min(image.size) < self.grid:
            raise UnreadableImage(f"{image.width}x{image.height} pixels, too small for {self.grid}x{self.grid} cells")
        sides = np.array([image.width, image.height] * 2)
        return np.stack([self._cell(image, box * sides) for box in self._boxes.double().numpy()])

    def _cell(self, image: Image.Image, place: np.ndarray) -> np.ndarray:
        """One cell, stretched.

        Shapes:
            place: (4,) in pixels
            returns: (H, W, 3) uint8
        """
        height, width = self.backbone.preprocessing.shape
        left, top = (int(side) for side in np.floor(place[:2]))
        right, bottom = (int(side) for side in np.ceil(place[2:]))
        # First cut to whole pixels: resizing alone would look beyond the cell's edges.
        x0, y0, x1, y1 = (float(side) for side in place - [left, top, left, top])
        cell = image.crop((left, top, right, bottom))
        return np.asarray(cell.resize((width, height), Image.Resampling.BILINEAR, box=(x0, y0, x1, y1)))

    def rows(self, pictures: Sequence[np.ndarray | None]) -> dict[str, torch.Tensor]:
        """Cells of a batch; those of a picture that is None are black.

        Shapes:
            pictures: B of (R, H, W, 3) uint8
            returns: features (B, R, F), boxes (B, R, 4), labels and scores (B, R), on the device
        """
        height, width = self.backbone.preprocessing.shape
        blank = np.zeros((self.shape[0], height, width, 3), dtype=np.uint8)
        cells = np.stack([blank if picture is None else picture for picture in pictures])  # (B, R, H, W, 3)
        found = [self._classify(torch.from_numpy(cells[:, place])) for place in range(self.shape[0])]  # B at once
        with torch.inference_mode():
            features = torch.stack([pooled for pooled, _ in found], dim=1)
            scores, labels = torch.stack([logits for _, logits in found], dim=1).softmax(dim=2).max(dim=2)  # (B, R)
        boxes = self._boxes.to(features.device).expand(len(pictures), -1, -1)
        return {"features": features, "boxes": boxes, "labels": labels, "scores": scores}

    def _classify(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pooled features and what comes before the softmax.

        Shapes:
            pixels: (B, H, W, 3) uint8, on the CPU
            returns: (B, F), (B, classes), float32 on the device
        """
        with self.computation.of(len(pixels)):
            images = self.backbone.preprocessing.normalise(pixels.to(self.computation.device, non_blocking=True))
            pooled, logits = self._network(images)
            return pooled.float(), logits.float()
