"""Sentences and their translations as one stream, some of whose words are masked: what TLM reads (VTLM §2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from ..errors import InputError
from ..shares import share
from .word_masking import WordMasking

EDGES = 1  # `</s>` before each sentence; its own is at its end


@dataclass(frozen=True)
class PairedText:
    """Sentences of one pair of languages.

    Attributes:
        source: (T,) tokens each, `</s>` at the end, with their `sizes`.
        target: likewise.
        languages: numbers of both languages.
    """

    source: Any
    target: Any
    languages: tuple[int, int]


def stream_of(sentences: Sequence[np.ndarray], languages: Sequence[int], eos: int) -> tuple[np.ndarray, ...]:
    """Sentences behind each other: each is `</s> … </s>`, and its positions begin with 0.

    Args:
        sentences: each with its `</s>` at the end.
        languages: number of each one's language.
        eos: number of `</s>`.

    Shapes:
        sentences: (T,) each
        returns: tokens, positions and languages, (L,) each

    >>> stream = stream_of([np.array([7, 2]), np.array([8, 9, 2])], languages=[0, 1], eos=2)
    >>> [each.tolist() for each in stream]
    [[2, 7, 2, 2, 8, 9, 2], [0, 1, 2, 0, 1, 2, 3], [0, 0, 0, 1, 1, 1, 1]]
    """
    opened = [np.concatenate([[eos], sentence]) for sentence in sentences]
    return (
        np.concatenate(opened),
        np.concatenate([np.arange(len(sentence)) for sentence in opened]),
        np.repeat(np.asarray(languages), [len(sentence) for sentence in opened]),
    )


class SentencePairs(FairseqDataset):
    """One item a pair of sentences; the sentences of several pairs of languages one after another.

    Batch keys:
        id: (B,);  word_targets: (B, L) the words to be predicted, padding elsewhere
        net_input: tokens, positions, languages (B, L): as the model sees them

    Args:
        texts: of each pair of languages.
        masking: of their words. All may be masked but the first `</s>`.
        pad: number of padding.
        eos: number of `</s>`.
        shuffle: a new random order, in batches of similar lengths, every epoch.
    """

    def __init__(
        self, texts: Sequence[PairedText], masking: WordMasking, pad: int, eos: int, shuffle: bool = False
    ) -> None:
        super().__init__()
        self.texts = texts
        self.masking = masking
        self.pad = pad
        self.eos = eos
        self.shuffle = shuffle
        self.epoch = 1
        self._ends = np.cumsum([len(text.source) for text in texts])
        self._lengths = np.concatenate(
            [np.stack([text.source.sizes, text.target.sizes], axis=1) + EDGES for text in texts]
        )  # (S, 2)

    def __len__(self) -> int:
        return len(self._lengths)

    def set_epoch(self, epoch: int) -> None:
        """fairseq says which epoch begins."""
        super().set_epoch(epoch)
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """False where masks change: fairseq would keep the workers, which don't hear that another epoch begins."""
        return not self.masking.masking.changes

    def sentences(self, index: int) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """Source and target of an item, (T,) each, and the numbers of their languages."""
        part = int(np.searchsorted(self._ends, index, side="right"))
        text = self.texts[part]
        place = index - (int(self._ends[part - 1]) if part else 0)
        return (text.source[place], text.target[place]), text.languages

    def __getitem__(self, index: int) -> dict[str, Any]:
        sentences, languages = self.sentences(int(index))
        tokens, positions, languages_of_words = stream_of([each.numpy() for each in sentences], languages, self.eos)
        candidates = np.arange(len(tokens)) > 0
        seen, chosen = self.masking(tokens, candidates, int(index), self.epoch)
        return {
            "id": int(index),
            "tokens": seen,
            "positions": positions,
            "languages": languages_of_words,
            "word_targets": np.where(chosen, tokens, self.pad),
        }

    @property
    def sizes(self) -> np.ndarray:
        """(S,) positions that the longer sentence of each item takes: what a model's limit is compared with."""
        return self._lengths.max(axis=1)

    def size(self, index: int) -> int:
        """Positions that the longer sentence of an item takes."""
        return int(self._lengths[index].max())

    def num_tokens(self, index: int) -> int:
        """Length of an item's stream."""
        return int(self._lengths[index].sum())

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Lengths of many items at once: (B,) -> (B,)."""
        return self._lengths[indices].sum(axis=1)

    def batch_by_size(self, indices: np.ndarray, max_tokens: int | None = None, **others: Any) -> list[np.ndarray]:
        """As fairseq's, which compares the longer sentence of each pair with `--max-tokens` beforehand, not both.

        Shapes:
            indices: (S,)

        Raises:
            InputError: a pair alone has more positions than a batch may have.
        """
        lengths = self.num_tokens_vec(indices)
        if max_tokens is not None and len(indices) and lengths.max() > max_tokens:
            beyond = int((lengths > max_tokens).sum())
            raise InputError(
                f"--max-tokens is {max_tokens}, but {share(beyond, len(indices), 'pairs of sentences')} are longer "
                f"streams, pair {indices[int(lengths.argmax())] + 1} of {lengths.max()} positions: give at least as "
                "many, or leave these pairs out of the text."
            )
        return super().batch_by_size(indices, max_tokens, **others)  # type: ignore[no-any-return]

    def ordered_indices(self) -> np.ndarray:
        """By length; equal lengths in a random order from fairseq's seed and epoch where shuffled."""
        order = np.random.permutation(len(self)) if self.shuffle else np.arange(len(self))
        return order[np.argsort(self.num_tokens_vec(order), kind="stable")]

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch; nothing from nothing."""
        if not samples:
            return {}
        lengths = [len(sample["tokens"]) for sample in samples]

        def padded(name: str, filling: int) -> Tensor:
            values = np.full((len(samples), max(lengths)), filling, np.int64)
            for row, sample in zip(values, samples):
                row[: len(sample[name])] = sample[name]
            return torch.from_numpy(values)

        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(lengths),
            "word_targets": padded("word_targets", self.pad),
            "net_input": {
                "tokens": padded("tokens", self.pad),
                "positions": padded("positions", 0),
                "languages": padded("languages", 0),
            },
        }
