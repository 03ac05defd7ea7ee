"""Text in blocks of as many pieces each, masked, with the voken of each piece: what VOK's language models read (§4.2).

A block goes on where the one before it ended, whatever line that is in; only the last of a text is shorter.
"""

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from ..modules.linear_cross_entropy import UNASKED
from ..text.tokenizer_bridge import BOS, EOS
from ..text.words import PAD
from .voken_labels import VokenLabels
from .voken_text import VokenText
from .word_masking import WordMasking

ENDS = 2  # [CLS] and [SEP] around a block


class VokenBlocks(FairseqDataset):
    """One item a block; the blocks of several texts one after another, none across two of them.

    Batch keys:
        id: (B,);  word_targets: (B, T) the pieces to be told, −1 elsewhere
        voken_targets: (B, T) the vokens, −1 where there is none; only where there are vokens
        net_input: src_tokens (B, T), as the model sees them; padding_mask (B, T), only where a block is shorter

    Assumption: the last block of a text may be shorter than the others (the paper's code drops it).

    Args:
        texts: the parts of a split.
        size: T, positions of a block with both ends.
        masking: of its pieces.
        labels: of its pieces; None for masked words alone.
        shuffle: a new random order in every epoch.
    """

    def __init__(
        self,
        texts: Sequence[VokenText],
        size: int,
        masking: WordMasking,
        labels: Optional[VokenLabels] = None,
        shuffle: bool = False,
    ) -> None:
        super().__init__()
        self.texts, self.masking, self.labels, self.shuffle = texts, masking, labels, shuffle
        self.size_of_block = size
        self.epoch = 1
        self._pieces = size - ENDS
        self._ends = np.cumsum([-(-text.pieces // self._pieces) for text in texts])  # blocks of the texts so far
        # Lengths of all blocks; only the last of each text has another.
        self._lengths = np.full(len(self), size, np.int32)
        self._lengths[self._ends - 1] = [(text.pieces - 1) % self._pieces + 1 + ENDS for text in texts]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def set_epoch(self, epoch: int) -> None:
        """fairseq says which epoch begins."""
        super().set_epoch(epoch)
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """False where masks change: fairseq would keep the workers, which don't hear that another epoch begins."""
        return not self.masking.masking.changes

    def place(self, block: int) -> tuple[VokenText, int, int]:
        """The text of a block, and from which piece to which it goes there."""
        part = int(np.searchsorted(self._ends, block, side="right"))
        start = (block - (int(self._ends[part - 1]) if part else 0)) * self._pieces
        text = self.texts[part]
        return text, start, min(start + self._pieces, text.pieces)

    def __getitem__(self, index: int) -> dict[str, Any]:
        block = int(index)
        text, start, end = self.place(block)
        tokens = np.concatenate([[BOS], text.numbers(start, end), [EOS]])  # (T,)
        candidates = np.ones(len(tokens), bool)
        candidates[[0, -1]] = False
        seen, chosen = self.masking(tokens, candidates, block, self.epoch)
        item = {"id": block, "tokens": seen, "word_targets": np.where(chosen, tokens, UNASKED)}
        if self.labels is None:
            return item
        return {**item, "voken_targets": self.labels.of_block(text, start, end, block, self.epoch)}

    @property
    def sizes(self) -> np.ndarray:
        """(S,) positions of each block."""
        return self._lengths

    def size(self, index: int) -> int:
        """Positions of a block."""
        return int(self._lengths[index])

    def num_tokens(self, index: int) -> int:
        """The same."""
        return int(self._lengths[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Positions of many blocks at once: (B,) -> (B,)."""
        return self._lengths[indices]

    def ordered_indices(self) -> np.ndarray:
        """The order of the text, or a random one from fairseq's seed and epoch."""
        return np.random.permutation(len(self)) if self.shuffle else np.arange(len(self))

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch; nothing from nothing."""
        if not samples:
            return {}
        lengths = [len(sample["tokens"]) for sample in samples]

        def padded(name: str, filling: int) -> np.ndarray:
            values = np.full((len(samples), max(lengths)), filling, np.int64)
            for row, sample in zip(values, samples):
                row[: len(sample[name])] = sample[name]
            return values

        net_input: dict[str, Tensor] = {"src_tokens": torch.from_numpy(padded("tokens", PAD))}
        if min(lengths) < max(lengths):
            places = np.arange(max(lengths)) >= np.array(lengths)[:, None]  # (B, T)
            net_input["padding_mask"] = torch.from_numpy(places)
        batch = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(lengths),
            "word_targets": torch.from_numpy(padded("word_targets", UNASKED)),
            "net_input": net_input,
        }
        if self.labels is not None:
            labels = self.labels.of_batch(padded("voken_targets", UNASKED), samples[0]["id"], self.epoch)
            batch["voken_targets"] = torch.from_numpy(labels)
        return batch
