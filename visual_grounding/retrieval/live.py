"""Images for sentences as they come, one by one or a few at a time: `fairseq-interactive --retriever`."""

from pathlib import Path

import numpy as np

from ..features.store import FeatureStore
from .dense import DenseFinder
from .image_names import ImageNames
from .index import Index
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
        self.finder = DenseFinder(Retriever.load(retriever), Index(index), images_per_sentence)
        self.finder.check_store(store)
        self._names = ImageNames(self.finder.collection)

    def find(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The nearest images of each sentence, best first.

        Shapes:
            returns: ids (S, N), −1 = none; scores (S, N) float32, cosines, 0 where there is none
        """
        found = self.finder.find(sentences)
        return found.ids, found.scores

    def describe(self, ids: np.ndarray, scores: np.ndarray) -> list[str]:
        """`key:score` of each image that was found for one sentence.

        Shapes:
            ids, scores: (N,)
        """
        return self._names.describe(ids, scores)
