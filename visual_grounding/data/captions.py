"""Captions as fairseq batches, and the image that each one describes: `--task image_text_matching` reads these."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from fairseq.data import FairseqDataset

from ..errors import InputError
from ..features.pixels import PixelSource
from ..features.store import FeatureStore
from ..text.captions import read_captions


class Tokenizer(Protocol):
    """What turns sentences into numbers: `WordTokenizer` or `PretrainedTokenizer`."""

    pad: int

    @property
    def around(self) -> Collection[int]:
        """Numbers of what it puts around a sentence, such as [CLS] and [SEP]."""

    def encode(self, texts: list[str]) -> tuple[list[list[int]], int]:
        """Numbers of each sentence, and how many sentences were cut."""


def load_captions(path: str | Path, store: FeatureStore | PixelSource) -> tuple[list[str], np.ndarray]:
    """Captions of a split and the row of each one's image in a feature store, or among the images themselves.

    Raises:
        InputError: as `read_captions`, or an image that isn't there.
    """
    captions = read_captions(path)
    rows = store.rows_of(key for key, _ in captions)
    missing = sorted({key for key, _ in captions} - rows.keys())
    if missing and isinstance(store, PixelSource):
        raise InputError(
            f"every image of {path} should be in {store.folder}, but {len(missing)} keys aren't, the first "
            f"{missing[0]!r} (there are {len(store)} images, the first {next(iter(store.keys()), '')!r}). Give the "
            "source with the images of all splits as --image-folder."
        )
    if missing:
        raise InputError(
            f"every image of {path} should be in feature store {store.folder}, but {len(missing)} keys aren't, the "
            f"first {missing[0]!r} (the store has {len(store)} images, the first {next(iter(store.keys()), '')!r}). "
            "Put the images of all splits into one store with: visual-grounding extract …, or visual-grounding import …"
        )
    return [caption for _, caption in captions], np.array([rows[key] for key, _ in captions], dtype=np.int64)


def pad_sequences(sequences: Sequence[Sequence[int]], pad: int) -> torch.Tensor:
    """(B, T), filled with `pad` on the right; T is at least 1.

    >>> pad_sequences([[5, 6], [7]], pad=1).tolist()
    [[5, 6], [7, 1]]
    """
    width = max([1, *map(len, sequences)])
    return torch.tensor([[*sequence, *[pad] * (width - len(sequence))] for sequence in sequences], dtype=torch.long)


class CaptionDataset(FairseqDataset):
    """One item a caption.

    Batch keys:
        id: (B,);  image_rows: (B,) row of each caption's image: equal rows are never each other's negatives
        special_mask: (B, T), True at what the tokenizer put around a caption
        net_input: tokens (B, T), token_padding_mask (B, T)

    Args:
        captions: the sentences.
        image_rows: (S,) which image each one describes.
        tokenizer: sentences to numbers.
        shuffle: a new random order every epoch, so that hardest negatives come from ever new batches.

    Attributes:
        truncated: captions cut at the encoder's limit.
    """

    def __init__(
        self, captions: list[str], image_rows: np.ndarray, tokenizer: Tokenizer, shuffle: bool = False
    ) -> None:
        super().__init__()
        encoded, self.truncated = tokenizer.encode(captions)
        self.offsets = np.cumsum([0, *map(len, encoded)])
        self.tokens = np.fromiter((number for numbers in encoded for number in numbers), np.int32, self.offsets[-1])
        self.image_rows = image_rows
        self.pad = tokenizer.pad
        self.around = torch.tensor(sorted(tokenizer.around), dtype=torch.long)
        self.shuffle = shuffle

    def __len__(self) -> int:
        return len(self.image_rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = self.tokens[self.offsets[index] : self.offsets[index + 1]]
        return {"id": int(index), "tokens": tokens.tolist(), "image_row": int(self.image_rows[index])}

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """False where shuffled: fairseq would otherwise keep the same batches and only reorder them."""
        return not self.shuffle

    @property
    def sizes(self) -> np.ndarray:
        """(S,) tokens of each caption."""
        return np.diff(self.offsets)

    def num_tokens(self, index: int) -> int:
        """Tokens of one caption."""
        return int(self.offsets[index + 1] - self.offsets[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of many captions at once: (B,) -> (B,)."""
        return self.sizes[indices]

    def size(self, index: int) -> int:
        """Tokens of one caption, for filtering by size."""
        return self.num_tokens(index)

    def ordered_indices(self) -> np.ndarray:
        """A random order from fairseq's seed and epoch, or the file's. Never by length: it would ease the negatives."""
        return np.random.permutation(len(self)) if self.shuffle else np.arange(len(self))

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch; nothing from nothing."""
        if not samples:
            return {}
        lengths = torch.tensor([len(sample["tokens"]) for sample in samples])
        tokens = pad_sequences([sample["tokens"] for sample in samples], self.pad)  # (B, T)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "image_rows": torch.tensor([sample["image_row"] for sample in samples]),
            "special_mask": torch.isin(tokens, self.around),
            "net_input": {
                "tokens": tokens,
                "token_padding_mask": torch.arange(tokens.shape[1]) >= lengths.unsqueeze(1),
            },
        }
