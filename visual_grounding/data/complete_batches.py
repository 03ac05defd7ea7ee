"""Batches that hold every sentence: fairseq's own lose some."""

from typing import Any

import numpy as np
from fairseq.data import BaseWrapperDataset


class CompleteBatches(BaseWrapperDataset):
    """A dataset wrapper that adds the last batch which fairseq drops.

    `fairseq.data.data_utils.batch_by_size` throws the last batch away when its size isn't a multiple of
    `--required-batch-size-multiple`, 8 by default: of 1,000 test sentences `fairseq-generate` may translate 996 and
    score those, without a word. Every dataset of this package is wrapped in this.
    """

    def batch_by_size(
        self,
        indices: np.ndarray,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        required_batch_size_multiple: int = 1,
    ) -> list[np.ndarray]:
        """Batches of the given indices (S,), in their order, none left out."""
        if len(indices) == 0:
            return []
        batches = list(
            self.dataset.batch_by_size(
                indices,
                max_tokens=max_tokens,
                max_sentences=max_sentences,
                required_batch_size_multiple=required_batch_size_multiple,
            )
        )
        kept = sum(len(batch) for batch in batches)
        return batches if kept == len(indices) else [*batches, indices[kept:]]

    def collater(self, samples: list[Any], **kwargs: Any) -> Any:
        """As the dataset's own."""
        return self.dataset.collater(samples, **kwargs)

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Sizes of many items at once, (B,) -> (B,); fairseq's wrapper forgets to pass this on."""
        return self.dataset.num_tokens_vec(indices)

    @property
    def src(self) -> Any:
        """The source side, which `fairseq-generate --replace-unk` asks for."""
        return self.dataset.src

    @property
    def tgt(self) -> Any:
        """The target side."""
        return self.dataset.tgt
