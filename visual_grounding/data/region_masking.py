"""Regions of a batch whose labels a model learns to predict: masked region classification (VTLM §2.2)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..features.columns import NO_LABEL
from ..modules.masking import LEFT, MASKED, RANDOM, swap_regions
from .changing_batches import ChangingBatches
from .visual_batches import VisualContextDataset
from .word_masking import REGIONS, Masking


def without_answers(visual: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a model may see of the images of a batch whose labels it is to predict: no label, and nothing beside it.

    An attribute (`furry`) and a score tell of the label that the detector gave with them.
    """
    return {name: value for name, value in visual.items() if name not in ("labels", "attributes", "scores")}


class RegionMasking(ChangingBatches):
    """Chooses regions of every batch, and hides them. Those that are absent or have no label are never chosen.

    Batch keys, beside those of the dataset:
        label_targets: (B, N, R), −1 where nothing is predicted
        net_input["visual"]["masked"]: (B, N, R) bool, where the embedding of `<mask>` stands for the feature
        net_input["visual"]: without what would tell the labels (`without_answers`)

    A random feature is that of any region of the batch; the region's own box and label stay with it.

    Args:
        dataset: with images whose labels are known.
        masking: how often, and by what.
        hides: whether the features of chosen regions are replaced; else their labels are predicted from what they are
            (VTLM's "0 % visual masking").
    """

    def __init__(self, dataset: VisualContextDataset, masking: Masking, hides: bool = True) -> None:
        super().__init__(dataset)
        self.masking = masking
        self.hides = hides

    @property
    def changes(self) -> bool:
        """Whether other regions are chosen in another epoch."""
        return self.masking.changes

    def collater(self, samples: list[Any], **kwargs: Any) -> Any:
        """Collate, then choose."""
        batch = super().collater(samples, **kwargs)
        if not batch:
            return batch
        visual = batch["net_input"]["visual"]
        labels = visual["labels"].numpy()  # (B, N, R)
        batch["net_input"]["visual"] = visual = without_answers(visual)
        absent = visual["padding_mask"].numpy()  # (B, N, R)
        candidates = ~absent & (labels != NO_LABEL)
        fates, draws = np.empty(labels.shape, np.int8), np.empty(labels.shape)
        for row, item in enumerate(batch["id"].tolist()):
            rng = self.masking.generator(item, self.epoch, REGIONS)
            fates[row], draws[row] = self.masking.fates(candidates[row], rng), rng.random(labels.shape[1:])
        targets = np.where(fates != LEFT, labels, NO_LABEL).astype(np.int64)
        if self.hides and (fates == RANDOM).any():
            flat = (len(labels), -1)  # (B, M)
            features = visual["features"].numpy()  # (B, N, R, F)
            swapped = swap_regions(
                features.reshape(*flat, features.shape[-1]),
                ~absent.reshape(flat),
                (fates == RANDOM).reshape(flat),
                draws.reshape(flat),
            )
            visual["features"] = torch.from_numpy(swapped.reshape(features.shape))
        visual["masked"] = torch.from_numpy((fates == MASKED) & self.hides)
        batch["label_targets"] = torch.from_numpy(targets)
        return batch
