"""Captions as bags of words on disk, and the images whose captions are nearest to a text (GS §2.4.1)."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..features.store import FeatureStore
from ..text.captions import iterate_captions
from ..text.word_vectors import WordVectors, unit
from .image_ids import NO_IMAGE
from .topic_table import without_features

if TYPE_CHECKING:  # torch is imported when it is needed: the help of a command line does without
    from torch import Tensor

_CAPTIONS = 2**13  # at a time; their keys are looked up by reading the store's once


class CaptionVectors:
    """The captions' bags of words, as unit vectors, and the images that they are of.

    They are built and read on disk: memory doesn't grow with the captions.

    Args:
        captions: file of `key<TAB>caption` lines.
        store: the images.
        vectors: of words.
        stop_words: words that say nothing.
        folder: where its files go; nothing else is in there.

    Attributes:
        captions: how many there are.
        unknown: those whose image isn't in the store.
        absent: those whose image has no features: it couldn't be read, or nothing was found in it.
        wordless: of the others those that have no word with a vector.

    Raises:
        InputError: as `iterate_captions`, or the store has none of the images, or no caption has a word with a vector.
    """

    def __init__(
        self, captions: Path, store: FeatureStore, vectors: WordVectors, stop_words: frozenset[str], folder: Path
    ) -> None:
        self._vectors_file, self._rows_file = folder / "vectors", folder / "rows"
        self._size = vectors.size
        self.captions = self.unknown = self.absent = self.wordless = 0
        lines = iterate_captions(captions)
        with open(self._vectors_file, "wb") as vectors_file, open(self._rows_file, "wb") as rows_file:
            while batch := list(islice(lines, _CAPTIONS)):
                self.captions += len(batch)
                rows, absent = store.present_rows(key for key, _ in batch)
                for key, caption in batch:
                    if key not in rows:
                        self.absent += key in absent
                        self.unknown += key not in absent
                        continue
                    found = vectors.of_text(caption, stop_words)
                    if found is None:
                        self.wordless += 1
                        continue
                    vectors_file.write(unit(found).tobytes())
                    rows_file.write(np.int32(rows[key]).tobytes())
        if self.unknown + self.absent == self.captions:
            key, _ = next(iterate_captions(captions))
            raise InputError(
                f"{captions} should describe images of feature store {store.folder}, but has none of them, such as "
                f"{key!r}; the store's are like {next(iter(store.keys()), '')!r}."
                f"{without_features(self.absent, 'captions')}"
            )
        if self.unknown + self.absent + self.wordless == self.captions:
            raise InputError(
                f"{captions} should have words that {vectors.path} has vectors of, but has none. Are they of another "
                "language?"
            )
        self._open()

    def _open(self) -> None:
        self._rows = np.fromfile(self._rows_file, dtype=np.int32)
        shape = (len(self._rows), self._size)
        self._vectors = np.memmap(self._vectors_file, dtype=np.float32, mode="r", shape=shape)
        self._most = int(np.bincount(self._rows).max())  # captions of one image

    def __getstate__(self) -> dict[str, Any]:
        own = ("_rows", "_vectors")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        if self.is_there:
            self._open()

    @property
    def is_there(self) -> bool:
        """Whether the files that it reads exist."""
        return self._vectors_file.is_file() and self._rows_file.is_file()

    def search(self, queries: np.ndarray, count: int, excluded: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The images of the captions with the highest cosine, each image once, by its best; equal ones by caption.

        Args:
            queries: unit vectors.
            count: N.
            excluded: a row that each mustn't get, −1 for none.

        Shapes:
            queries: (Q, D);  excluded: (Q,)
            returns: rows (Q, N) int32, −1 where there is none; cosines (Q, N) float32
        """
        import torch

        from .search import exact_search

        ids = np.full((len(queries), count), NO_IMAGE, dtype=np.int32)
        scores = np.zeros(ids.shape, dtype=np.float32)
        asked = np.arange(len(queries))
        wanted = count + (excluded is not None)
        # Captions of `wanted` images at least: more are asked for only where one image has many.
        captions = min(len(self._rows), wanted * min(self._most, 8))
        while len(asked):
            found = exact_search(torch.from_numpy(queries[asked]), self._vectors, captions)
            left = []
            for query, similarity, caption in zip(asked, *found):
                apart = NO_IMAGE if excluded is None else int(excluded[query])
                chosen = list(islice(self._images(similarity, caption, apart), count))
                if len(chosen) < count and captions < len(self._rows):
                    left.append(query)
                    continue
                for place, (row, score) in enumerate(chosen):
                    ids[query, place], scores[query, place] = row, score
            asked = np.array(left, dtype=np.int64)
            captions = min(len(self._rows), 4 * captions)
        return ids, scores

    def _images(self, similarity: "Tensor", caption: "Tensor", excluded: int) -> Iterator[tuple[int, float]]:
        """Each image once, with its best caption's cosine.

        Shapes:
            similarity: (C,);  caption: (C,)
        """
        seen = {excluded}
        for score, number in zip(similarity.tolist(), caption.tolist()):
            row = NO_IMAGE if number < 0 else int(self._rows[number])
            if row not in seen and row >= 0:
                seen.add(row)
                yield row, score
