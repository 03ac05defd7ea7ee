"""Typed sentences with the images that were found for them, through a command that keeps only their tokens."""

from collections import deque
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from ..features.store import FeatureStore
from .visual_batches import TabledImages, VisualContextDataset


class TypedSentences(VisualContextDataset):
    """As `VisualContextDataset`, and it hands the images of each batch out again.

    `fairseq-interactive` takes `src_tokens` and `src_lengths` out of a batch and drops the rest; the task puts the
    images back with `images_of` right before the batch is translated.
    """

    def __init__(self, dataset: FairseqDataset, store: FeatureStore, ids: np.ndarray) -> None:
        super().__init__(dataset, store, TabledImages(ids))
        self._collated: deque[tuple[Tensor, dict[str, Tensor]]] = deque()

    def collater(self, samples: list[Any], **kwargs: Any) -> dict[str, Any]:
        """Collate, and remember the images."""
        batch = super().collater(samples, **kwargs)
        if batch:
            self._collated.append((batch["net_input"]["src_tokens"], batch["net_input"]["visual"]))
        return batch

    def images_of(self, src_tokens: Tensor) -> dict[str, Tensor]:
        """The images of the earliest batch that they weren't asked of yet, on its tokens' device.

        Shapes:
            src_tokens: (B, T)
            returns: features (B, N, R, F), padding_mask (B, N, R)

        Raises:
            RuntimeError: that batch has other tokens: batches were translated in another order than collated.
        """
        tokens, visual = self._collated.popleft()
        if not torch.equal(tokens, src_tokens.to(tokens.device)):
            raise RuntimeError("batches of typed sentences should be translated in the order of their collation")
        return {name: value.to(src_tokens.device) for name, value in visual.items()}
