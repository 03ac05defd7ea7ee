"""Topic words of a text, and the lookup table from topic words to images.

Zhang et al. (2020), *Neural Machine Translation with Universal Visual Representation*, §3.

    TI(x, X) = (occurrences of x in X / words of X) · log(G / (1 + captions with x)),    G captions in all

The w words of a caption with the highest TI are its topic words; the lookup table lists for each topic word the images
it comes from. A sentence's topic words are found likewise; the images in the lists of all of them are sorted by the
number of lists they are in, and the first N are taken. `keyword.py` does so for sentences.

# Assumption: the frequencies of words are the captions' for sentences too, and a word that isn't in the table is no
# topic of a sentence: so a sentence's images depend on the collection and on it alone, and rare words that point
# nowhere don't take the place of others.
# Assumption: equal words, in TI, go by their place in the text; equal images by first appearance, where lists stand in
# the order of their words' TI and an image in its list in the order of rows.
# Deviation: the authors' published table keeps 5 random images of each word; this one keeps all.
"""

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..features.store import FeatureStore
from ..storage.artefact import claim_disk
from ..text.captions import iterate_captions
from ..text.words import split_words
from .image_ids import NO_IMAGE

TOPIC_WORDS = 8  # w in the paper
_CAPTIONS = 2**13  # at a time; their keys are looked up by reading the store's once
_PAIRS = 2**16


def content_words(text: str, stop_words: frozenset[str]) -> list[str]:
    """Words of a text in order, without stop words and without what has no letter.

    >>> content_words("The dog, 2 of the dogs", frozenset({"the", "of"}))
    ['dog', 'dogs']
    """
    return [word for word in split_words(text) if word not in stop_words and any(letter.isalpha() for letter in word)]


def inverse_frequency(captions: int, with_word: int) -> float:
    """The second factor of TI.

    >>> round(inverse_frequency(8, 1), 4)  # log(8 / 2)
    1.3863
    """
    return math.log(captions / (1 + with_word))


def topic_words(words: list[str], rarity: Mapping[str, float], count: int = TOPIC_WORDS) -> list[str]:
    """The `count` words with the highest TI, the highest first, equal ones by their place; unknown ones are left out.

    The length of the text divides the TI of all its words alike, so it isn't needed.

    >>> topic_words(["ball", "dog", "ball", "cat"], {"ball": 1.0, "dog": 2.0, "cat": 3.0}, count=2)
    ['cat', 'ball']

    Args:
        words: of a text, stop words removed.
        rarity: `inverse_frequency` of each known word.
        count: w.
    """
    times = Counter(word for word in words if word in rarity)  # keeps the order of first appearance
    # Rounded, so that equal ones are equal on every machine: 2·log(2) is log(4).
    return sorted(times, key=lambda word: -round(times[word] * rarity[word], 9))[:count]


def without_features(count: int, things: str) -> str:
    """What to add where nothing of a collection can be found: how much of it is of images without features.

    >>> without_features(0, "captions"), without_features(2, "captions")
    ('', ' 2 captions are of images without features.')
    """
    return f" {count} {things} are of images without features." if count else ""


class TopicTable:
    """The lookup table: the images of each topic word.

    It is built and read on disk: memory grows with the number of different words, and by one byte an image, not with
    the captions.

    Args:
        captions: file of `key<TAB>caption` lines; read twice.
        store: the images.
        stop_words: words that are no topic.
        folder: where its files go; nothing else is in there.
        count: w, topic words of a caption at most.

    Attributes:
        captions: G.
        unknown: captions whose image isn't in the store.
        absent: those whose image has no features: it couldn't be read, or nothing was found in it.
        rarity: `inverse_frequency` of the words in the table.

    Raises:
        InputError: as `iterate_captions`, or the store has none of the images.
    """

    def __init__(
        self,
        captions: Path,
        store: FeatureStore,
        stop_words: frozenset[str],
        folder: Path,
        count: int = TOPIC_WORDS,
    ) -> None:
        self._votes = np.zeros(len(store), dtype=np.uint8)
        with_word: Counter[str] = Counter()
        self.captions = self.unknown = self.absent = 0
        for _, caption in iterate_captions(captions):
            self.captions += 1
            with_word.update(set(content_words(caption, stop_words)))
        rarity = {word: inverse_frequency(self.captions, times) for word, times in with_word.items()}
        self._numbers: dict[str, int] = {}
        pairs = folder / "pairs"  # (word number, row), as they come
        with open(pairs, "wb") as file:
            lines = iterate_captions(captions)
            while batch := list(islice(lines, _CAPTIONS)):
                rows, absent = store.present_rows(key for key, _ in batch)
                found = array("i")
                for key, caption in batch:
                    if key not in rows:
                        self.absent += key in absent
                        self.unknown += key not in absent
                        continue
                    for word in topic_words(content_words(caption, stop_words), rarity, count):
                        found.extend((self._numbers.setdefault(word, len(self._numbers)), rows[key]))
                file.write(found.tobytes())
        if self.unknown + self.absent == self.captions:
            key, _ = next(iterate_captions(captions))
            raise InputError(
                f"{captions} should describe images of feature store {store.folder}, but has none of them, such as "
                f"{key!r}; the store's are like {next(iter(store.keys()), '')!r}."
                f"{without_features(self.absent, 'captions')}"
            )
        self.rarity = {word: rarity[word] for word in self._numbers}
        self._sort(pairs)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_votes": len(self._votes), "_rows": len(self._rows)}
        return state  # numpy would pickle a memory-mapped array by value

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self._votes = np.zeros(state["_votes"], dtype=np.uint8)
        if self.is_there:
            self._rows = self._open(state["_rows"])

    @property
    def is_there(self) -> bool:
        """Whether the files that it reads exist."""
        return self._sorted.is_file()

    def _open(self, size: int) -> np.ndarray:
        empty = np.zeros(0, dtype=np.int32)
        return np.memmap(self._sorted, dtype=np.int32, mode="r", shape=(size,)) if size else empty

    def _sort(self, pairs: Path) -> None:
        """Put the rows of each word together, ascending, each once."""
        size = pairs.stat().st_size // 8
        self._first = np.zeros(len(self._numbers) + 1, dtype=np.int64)
        self._sorted = pairs.with_name("rows")
        with open(self._sorted, "wb") as file:  # writing to a map of a full disk kills (SIGBUS)
            if size:
                claim_disk(file.fileno(), 0, size * np.dtype(np.int32).itemsize)
        if not size:  # nothing but stop words
            self._rows = self._open(0)
            self._last = self._first[1:].copy()
            return
        unsorted = np.memmap(pairs, dtype=np.int32, mode="r", shape=(size, 2))
        for start in range(0, size, _PAIRS):
            self._first[1:] += np.bincount(unsorted[start : start + _PAIRS, 0], minlength=len(self._numbers))
        self._first = self._first.cumsum()
        sorted_rows = np.memmap(self._sorted, dtype=np.int32, mode="r+", shape=(size,))
        free = self._first[:-1].copy()  # the next free place of each word
        for start in range(0, size, _PAIRS):
            words, rows = unsorted[start : start + _PAIRS].T
            order = words.argsort(kind="stable")
            words, rows = words[order], rows[order]
            times = np.bincount(words, minlength=len(free))
            among = np.arange(len(words)) - (times.cumsum() - times)[words]
            sorted_rows[free[words] + among] = rows
            free += times
        self._last = free
        for word, (first, last) in enumerate(zip(self._first[:-1], free)):
            distinct = np.unique(sorted_rows[first:last])
            sorted_rows[first : first + len(distinct)] = distinct
            self._last[word] = first + len(distinct)
        self._rows = self._open(size)

    def images(self, word: str) -> np.ndarray:
        """Rows of the images that a word is a topic of, ascending."""
        number = self._numbers[word]
        return self._rows[self._first[number] : self._last[number]]

    def search(self, topics: list[str], count: int, excluded: int = NO_IMAGE) -> tuple[np.ndarray, np.ndarray]:
        """The images that most of the topic words point to, and how many do; equal ones by first appearance.

        Args:
            topics: different words of the table, the highest TI first.
            count: images at most.
            excluded: a row that must not be returned.

        Shapes:
            returns: rows (up to count,), numbers of words (likewise)
        """
        listed = np.concatenate(
            [np.zeros(0, dtype=np.int32), *(self.images(word) for word in topics)]
        )  # 𝒢 in the paper
        for word in topics:
            self._votes[self.images(word)] += 1  # each row once
        votes = self._votes[listed]
        self._votes[listed] = 0
        rows: list[int] = []
        numbers: list[int] = []
        for number in range(int(votes.max(initial=0)), 0, -1):
            alike = listed[votes == number]
            if number > 1:  # each stands there so many times
                alike = alike[np.sort(np.unique(alike, return_index=True)[1])]
            chosen = list(islice((int(row) for row in alike if row != excluded), count - len(rows)))
            rows += chosen
            numbers += [number] * len(chosen)
            if len(rows) == count:
                break
        return np.array(rows, dtype=np.int32), np.array(numbers, dtype=np.float16)
