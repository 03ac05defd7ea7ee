"""Text that changes every epoch, and a finder that reads it: in a module of its own, so that workers can import it."""

import argparse
from typing import Self

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, Dictionary, LanguagePairDataset

from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.finder import Finder, Found

SIZES = [3, 7, 2, 5, 4, 6, 2, 3, 5, 4, 3]


def dictionary() -> Dictionary:
    """Eight words of one letter; `a` is number 4."""
    words = Dictionary()
    for word in "abcdefgh":
        words.add_symbol(word)
    return words


def text_dataset() -> LanguagePairDataset:
    """Eleven sentences of the lengths `SIZES`, each of one letter."""
    words = dictionary()
    sentences = [torch.tensor([4 + s % 8] * (size - 1) + [words.eos()]) for s, size in enumerate(SIZES)]
    return LanguagePairDataset(sentences, SIZES, words, sentences, SIZES, words)


class MaskedText(BaseWrapperDataset):
    """Another letter stands at the beginning of a sentence in every epoch, as if the rest were masked."""

    def __init__(self, dataset: LanguagePairDataset) -> None:
        super().__init__(dataset)
        self.epoch = 1

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.epoch = epoch

    def __getitem__(self, index: int) -> dict:
        item = dict(self.dataset[index])
        item["source"] = item["source"].clone()
        item["source"][0] = 4 + (index + self.epoch) % 8
        return item


class LetterFinder(Finder):
    """For a line that begins with the n-th letter the images n and n + 8, but for the excluded one."""

    images_per_sentence = 2

    def __init__(self, collection: FeatureStore) -> None:
        self.collection = collection

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        return cls(FeatureStore(args.image_features))

    def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
        ids = np.array([[ord(line[0]) - ord("a"), ord(line[0]) - ord("a") + 8] for line in lines])
        if excluded is not None:
            ids[ids == excluded[:, None]] = -1
        return Found(ids, np.ones(ids.shape), {})


def line_of(sample: dict) -> str:
    """The text of an item."""
    return dictionary().string(sample["source"])
