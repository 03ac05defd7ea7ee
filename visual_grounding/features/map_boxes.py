"""Regions of a network's map with their boxes: which part of the whole picture each of them was pooled from."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image

from ..errors import InputError
from .backbones import Backbone
from .columns import Columns
from .computation import Computation
from .framing import framing_of_plan
from .map_extractor import MapExtractor, Pooling


def cells_of_map(pooling: Pooling, height: int, width: int) -> np.ndarray:
    """The parts of a map that `Pooling.regions` takes the mean or the largest of.

    Where a grid doesn't divide the map, neighbouring cells share places, as they do in adaptive pooling: cell i of n
    along h places is from floor(i h / n) to ceil((i + 1) h / n).

    Shapes:
        returns: (R, 4) float64, x0 y0 x1 y1 in 0..1 of the map, row by row from the top left

    >>> cells_of_map(Pooling("grid", 2), 3, 4).tolist()[2]  # the lower two of three rows, the left half
    [0.0, 0.3333333333333333, 0.5, 1.0]
    """
    if pooling.kind != "grid":
        return np.array([[0.0, 0.0, 1.0, 1.0]])
    rows, columns = _edges(pooling.grid or height, height), _edges(pooling.grid or width, width)
    return np.array([[x0, y0, x1, y1] for y0, y1 in rows for x0, x1 in columns])


def _edges(cells: int, places: int) -> list[tuple[float, float]]:
    """Begin and end of each cell along one side of the map, in 0..1."""
    return [(cell * places // cells / places, -(-(cell + 1) * places // cells) / places) for cell in range(cells)]


class BoxedMapExtractor:
    """An `Extractor`: what a `MapExtractor` gives, and boxes, its cells laid over what the network saw of each picture.

    Features and signature are those without boxes, since both stores are made the same way. What the network knows of
    a cell comes from around it, too: a box says where a region is, not how far it has looked.

    Raises:
        InputError: as `MapExtractor`; or the backbone's preprocessing doesn't say what it leaves of a picture.
    """

    columns = Columns(("boxes",))

    def __init__(self, backbone: Backbone, pooling: Pooling, computation: Computation) -> None:
        preprocessing = backbone.preprocessing.describe()
        framing = framing_of_plan(preprocessing)
        if framing is None:
            raise InputError(
                "boxes are in 0..1 of the whole picture, so they need a preprocessing that is known to resize the "
                f"short side and to crop the centre, but that of {backbone.name} is: {preprocessing}. Choose a "
                "backbone of torchvision or scattering, or leave the boxes out.",
                "boxes",
                "backbone",
            )
        self._framing = framing
        self._of_map = MapExtractor(backbone, pooling, computation)
        self._cells = cells_of_map(pooling, *self._of_map.map_size)  # (R, 4)
        self.computation, self.shape = computation, self._of_map.shape
        self.plan, self.signed = self._of_map.plan, self._of_map.signed

    def load(self, image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
        """Resize and crop; where the cells lie in the whole picture.

        A crop that is larger than the resized picture has a margin, which is no part of any box.

        Shapes:
            returns: (H, W, 3) uint8, (R, 4) float32

        Raises:
            UnreadableImage: as the network's preprocessing.
        """
        seen = np.array(self._framing.window(*image.size))
        corner, sides = np.tile(seen[:2], 2), np.tile(seen[2:] - seen[:2], 2)
        return self._of_map.load(image), (corner + self._cells * sides).clip(0, 1).astype(np.float32)

    def rows(self, pictures: Sequence[tuple[np.ndarray, np.ndarray] | None]) -> dict[str, torch.Tensor]:
        """Features and boxes of a batch; of a picture that is None, those of a black one, and nowhere.

        Shapes:
            pictures: B of (H, W, 3) uint8 with (R, 4)
            returns: features (B, R, F) float32 and boxes (B, R, 4), on the device
        """
        features = self._of_map.rows([None if picture is None else picture[0] for picture in pictures])["features"]
        nowhere = np.zeros(self._cells.shape, dtype=np.float32)
        boxes = np.stack([nowhere if picture is None else picture[1] for picture in pictures])  # (B, R, 4)
        return {"features": features, "boxes": torch.from_numpy(boxes).to(features.device)}
