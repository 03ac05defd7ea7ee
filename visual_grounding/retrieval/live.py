"""Images for sentences as they come, one by one or a few at a time: `fairseq-interactive --retriever`."""

from pathlib import Path

import numpy as np
import torch

from ..errors import InputError, check_at_least_one
from ..features.store import FeatureStore
from ..text.line_index import LineIndex
from .image_ids import NO_IMAGE
from .index import KEYS, Index
from .retriever import Retriever


class LiveRetrieval:
    """A retriever, its index, and the features that a model will see of what is found (VA §2.2).

    Args:
        retriever: folder of the retriever.
        index: folder of the index that it made.
        store: features of the same images.
        images_per_sentence: N.

    Raises:
        InputError: the three don't belong together, or N is less than 1.
    """

    def __init__(self, retriever: str | Path, index: str | Path, store: FeatureStore, images_per_sentence: int) -> None:
        check_at_least_one(images_per_sentence=images_per_sentence)
        self.retriever = Retriever.load(retriever)
        self.index = Index(index)
        self.index.check_retriever(self.retriever)
        if self.index.keys_sha256 != store.keys_sha256:
            raise InputError(
                f"index {index} and feature store {store.folder} were made from different collections: keys sha256 "
                f"{self.index.keys_sha256[:8]}… ≠ {store.keys_sha256[:8]}…. Give the features of the images that the "
                f"index has, or rebuild it with: visual-grounding index --retriever {retriever} … --out DIR"
            )
        self.images_per_sentence = images_per_sentence
        self._keys = LineIndex(self.index.folder / KEYS)

    def find(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The nearest images of each sentence, best first; an empty sentence gets none.

        Shapes:
            returns: ids (S, N) int64, −1 = none; scores (S, N) float32, cosines, 0 where there is none
        """
        queries = self.retriever.encode_text(sentences)
        scores, ids = self.index.search(queries, self.images_per_sentence, self.retriever.device)  # (S, N) each
        empty = ~queries.any(dim=1) | torch.tensor([not sentence.strip() for sentence in sentences])  # (S,)
        ids[empty], scores[empty] = NO_IMAGE, 0
        return ids.numpy(), scores.numpy()

    def describe(self, ids: np.ndarray, scores: np.ndarray) -> list[str]:
        """`key:score` of each image that was found for one sentence.

        Shapes:
            ids, scores: (N,)
        """
        return [f"{self._keys[row]}:{score:.4f}" for row, score in zip(ids.tolist(), scores) if row != NO_IMAGE]
