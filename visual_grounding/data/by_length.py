"""Items of different lengths in batches of similar ones."""

import numpy as np
from fairseq.data import FairseqDataset


class ByLength(FairseqDataset):
    """A dataset whose batches have items of similar lengths, in training in random order.

    Attributes:
        sizes: of each item, (S,); a subclass sets it.
        shuffle: whether items of a length are in random order, from fairseq's seed and epoch; a subclass sets it.
    """

    sizes: np.ndarray
    shuffle: bool

    def num_tokens(self, index: int) -> int:
        """As batches by tokens count it."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Of many, (B,) -> (B,)."""
        found: np.ndarray = self.sizes[indices]
        return found

    def size(self, index: int) -> int:
        """As filters by length count it."""
        return int(self.sizes[index])

    def ordered_indices(self) -> np.ndarray:
        """Items of a length together; where shuffled, those in random order."""
        order = np.random.permutation(len(self)) if self.shuffle else np.arange(len(self))
        return order[np.argsort(self.sizes[order], kind="stable")]

    @property
    def supports_prefetch(self) -> bool:
        """None is needed: all is in memory, or memory-mapped."""
        return False
