"""Which of a detector's boxes become regions of a store, and their columns as rows.

In this order: what lies outside of the picture is cut off, boxes without area are left out and counted, then those
below the least score, then those that overlap a more confident one; the most confident of the rest are kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torchvision.ops import nms

from ...errors import InputError, check_at_least_one
from ..columns import COLUMNS
from ..extractor import DROPPED


class Selection(NamedTuple):
    """Which boxes are kept.

    Attributes:
        regions: at most so many a picture.
        min_score: the least confidence.
        nms_iou: a box that overlaps a more confident one of its class by more than this, as intersection by union, is
            left out; None for what the network does by itself.
        nms_across_classes: one of whatever class.
    """

    regions: int = 36
    min_score: float = 0.05
    nms_iou: float | None = None
    nms_across_classes: bool = False

    def check(self) -> None:
        """Refuse what selects nothing.

        Raises:
            InputError: a number out of its range, or suppression across classes without its overlap.
        """
        check_at_least_one(regions=self.regions)
        if not 0 <= self.min_score < 1:
            raise InputError(f"the least score should be from 0 to below 1, but is {self.min_score:g}.", "min_score")
        if self.nms_iou is None:
            if self.nms_across_classes:
                raise InputError(
                    "suppression across classes needs the overlap from which on a box is left out, such as 0.7.",
                    "nms_iou",
                    "nms_across_classes",
                )
        elif not 0 <= self.nms_iou <= 1:
            raise InputError(f"an overlap should be from 0 to 1, but is {self.nms_iou:g}.", "nms_iou")

    def described(self) -> dict[str, Any]:
        """For a plan and a signature."""
        suppression = {"nms_iou": self.nms_iou, "nms_across_classes": self.nms_across_classes}
        return {"regions": self.regions, "min_score": self.min_score, **suppression}

    def of(self, boxes: torch.Tensor, labels: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Places of the boxes to keep, most confident first; of equally confident ones the first.

        Shapes:
            boxes: (Q, 4) x0, y0, x1, y1;  labels: (Q,);  scores: (Q,)
            returns: (K,) int64, K <= R
        """
        order = scores.argsort(descending=True, stable=True)
        order = order[scores[order] >= self.min_score]
        if self.nms_iou is not None:
            groups = torch.zeros_like(labels) if self.nms_across_classes else labels
            # Class by class: torchvision's batched_nms moves classes apart instead, and rounds boxes by that.
            kept = torch.zeros_like(order, dtype=torch.bool)
            for group in groups[order].unique():
                own = (groups[order] == group).nonzero().squeeze(1)
                kept[own[nms(boxes[order[own]], scores[order[own]], self.nms_iou)]] = True
            order = order[kept]
        return order[: self.regions]


def cut_to_picture(boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut off what lies outside of the picture; which boxes have an area left.

    Shapes:
        boxes: (Q, 4) x0, y0, x1, y1, where the picture is 0..1
        returns: (Q, 4) in 0..1; (Q,) bool

    >>> boxes, real = cut_to_picture(torch.tensor([[-0.5, 0, 0.5, 1], [0.25, 1, 0.5, 2], [0.5, 0, 0.25, 1]]))
    >>> boxes[0].tolist(), real.tolist()
    ([0.0, 0.0, 0.5, 1.0], [True, False, False])
    """
    inside = boxes.clamp(0, 1)
    return inside, (inside[:, 2:] > inside[:, :2]).all(dim=1)


def as_rows(
    found: Sequence[Mapping[str, torch.Tensor] | None],
    dropped: Sequence[int],
    shape: tuple[int, int],
    columns: Sequence[str],
    device: torch.device,
) -> dict[str, torch.Tensor]:
    """The regions of a batch as rows of a store's columns.

    Args:
        found: of each picture its features and columns; None where there is no picture.
        dropped: boxes without area, of each picture.
        shape: R and F.
        columns: which there are.

    Shapes:
        found: features (K, F), boxes (K, 4), labels, attributes and scores (K,); K <= R
        returns: features (B, R, F), zero where there is no region; the columns (B, R, ...); dropped (B,)
    """
    regions, size = shape
    rows = {"features": torch.zeros(len(found), regions, size, device=device)}
    for name in columns:
        column = COLUMNS[name]
        kind = torch.int32 if column.dtype == "int32" else torch.float32
        rows[name] = torch.full((len(found), regions, *column.shape), column.absent, dtype=kind, device=device)
    for place, picture in enumerate(found):
        for name, values in (picture or {}).items():
            rows[name][place, : len(values)] = values.to(rows[name].dtype)
    rows[DROPPED] = torch.tensor(dropped, device=device)
    return rows
