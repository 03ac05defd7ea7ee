"""What turns pictures into a feature store: a whole-image network, a grid of its map, a detector."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from PIL import Image

from .columns import Columns
from .computation import Computation

DROPPED = "dropped"


class Extractor(Protocol):
    """Turns a picture into the rows of a store's columns.

    `extraction.py` does everything else: it decodes in threads ahead of the network, forms the batches, writes shard by
    shard, shares the work among ranks, counts what is unreadable, and measures for a dry run.

    Attributes:
        shape: R and F, regions of an image at most, and numbers of each.
        columns: what it says of regions beside their features, with the names of its labels.
        computation: where and in what precision it computes; `rows` runs its network inside `computation.of`.
        plan: JSON-ready, every choice that decides what it gives, but for device, precision and batch size.
        signed: what the signature says of it, in this order; stores with other values count as made differently.
    """

    shape: tuple[int, int]
    columns: Columns
    computation: Computation
    plan: dict[str, Any]
    signed: dict[str, Any]

    def load(self, image: Image.Image) -> Any:
        """What `rows` takes of one picture, such as its pixels in the right size; called in many threads at once.

        Args:
            image: RGB, upright.

        Raises:
            UnreadableImage: the picture is of no use; it will be listed with this reason, and be absent.
        """
        ...

    def rows(self, pictures: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Rows of a batch.

        Args:
            pictures: B results of `load`, of any size each; None where an image is unreadable, whose row is left out.

        Shapes:
            returns: "features" (B, R, F), zero where a region is absent; boxes (B, R, 4), labels, attributes and scores
                (B, R), as many of them as there are columns; maybe "dropped" (B,), boxes that were left out because
                they had no area, to be counted; on any device

        Raises:
            InputError: as `Computation.of`.
        """
        ...
