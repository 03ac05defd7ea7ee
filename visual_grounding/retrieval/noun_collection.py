"""A collection of images by the nouns that they show (GS §3.2: ImageNet's synsets)."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..features.store import FeatureStore
from ..storage.lines import iterate_lines
from ..text.word_vectors import WordVectors, unit
from ..text.words import split_words
from .topic_table import without_features

_LINES = 2**13  # at a time; their keys are looked up by reading the store's once


class NounLine(NamedTuple):
    """A line of the collection: what an image shows, and its key.

    Attributes:
        lemmas: words for the same thing, as they are written, `dog, domestic dog`.
        definition: empty where there is none.
        key: of the image.
    """

    lemmas: str
    definition: str
    key: str


def iterate_nouns(path: str | Path) -> Iterator[NounLine]:
    """Lines of a noun collection, `noun<TAB>definition or empty<TAB>key`, one an image, one by one.

    Raises:
        InputError: as `iterate_lines`, or a line of another form, or no line at all.
    """
    number = 0
    for number, line in enumerate(iterate_lines(path), 1):
        fields = line.split("\t")
        if len(fields) != 3 or not split_words(fields[0]) or not fields[2]:
            raise InputError(f"{path}:{number} should be `noun<TAB>definition or empty<TAB>key`, but is {line[:80]!r}.")
        yield NounLine(*fields)
    if not number:
        raise InputError(f"{path} should hold nouns and their images, but is empty.")


class NounCollection:
    """The nouns of a collection with enough images, each with a vector and its images.

        key = mean of the lemmas' vectors, averaged with the definition's where there is one        (GS §3.2)

    A lemma's vector is the mean of its words', a definition's that of its words without stop words. A noun with two
    definitions is two. Memory grows with the images: a number each.

    Args:
        path: of the lines.
        store: the images.
        vectors: of words.
        stop_words: words of definitions that say nothing.
        images: a noun of fewer is left out; ImageNet's of the paper have at least 10.
        seed: of the order in which a noun's images are taken, its own for each noun.

    Attributes:
        lemmas: of all nouns that are kept.
        keys: unit vectors.
        rows: the images of each noun, in the order in which they are taken.
        lines: how many there are.
        unknown: those whose image isn't in the store.
        absent: those whose image has no features: it couldn't be read, or nothing was found in it.
        few: nouns with fewer images.
        wordless: nouns without a vector.

    Shapes:
        keys: (M, D)

    Raises:
        InputError: as `iterate_nouns`, the store has none of the images, or no noun is left.
    """

    def __init__(
        self,
        path: Path,
        store: FeatureStore,
        vectors: WordVectors,
        stop_words: frozenset[str],
        images: int = 10,
        seed: int = 1,
    ) -> None:
        found, self.lines = self._read(path, store)
        self.few = self.wordless = 0
        self.lemmas: list[list[str]] = []
        self.rows: list[np.ndarray] = []
        keys = []
        for number, ((noun, definition), rows) in enumerate(found.items()):
            if len(rows) < images:
                self.few += 1
                continue
            lemmas = [lemma.strip() for lemma in noun.split(",") if split_words(lemma)]
            vector = key_of(lemmas, definition, vectors, stop_words)
            if vector is None:
                self.wordless += 1
                continue
            self.lemmas.append(lemmas)
            keys.append(unit(vector))
            self.rows.append(np.random.default_rng([seed, number]).permutation(np.array(rows, dtype=np.int32)))
        if not keys:
            raise InputError(
                f"{path} should have nouns with at least {images} images in {store.folder}, and a vector in "
                f"{vectors.path}, but of {len(found)} {self.few} have fewer, and {self.wordless} no vector.",
                "images_per_noun",
            )
        self.keys = np.stack(keys)

    def _read(self, path: Path, store: FeatureStore) -> tuple[dict[tuple[str, str], list[int]], int]:
        """The rows of each noun, once each, in the order of lines; and how many lines there are."""
        found: dict[tuple[str, str], dict[int, None]] = {}
        lines, count, first = iterate_nouns(path), 0, ""
        self.unknown = self.absent = 0
        while batch := list(islice(lines, _LINES)):
            known, absent = store.present_rows(line.key for line in batch)
            count, first = count + len(batch), first or batch[0].key
            for line in batch:
                rows = found.setdefault((line.lemmas.strip().lower(), line.definition.strip()), {})
                if line.key in known:
                    rows[known[line.key]] = None
                else:
                    self.absent += line.key in absent
                    self.unknown += line.key not in absent
        if self.unknown + self.absent == count:
            raise InputError(
                f"{path} should name images of feature store {store.folder}, but names none of them, such as "
                f"{first!r}; the store's are like {next(iter(store.keys()), '')!r}."
                f"{without_features(self.absent, 'lines')}"
            )
        return {noun: list(rows) for noun, rows in found.items()}, count


def key_of(lemmas: list[str], definition: str, vectors: WordVectors, stop_words: frozenset[str]) -> np.ndarray | None:
    """A noun's vector: the mean of its lemmas', averaged with its definition's; None where there is neither.

    Shapes:
        returns: (D,)
    """
    of_lemmas = [vector for lemma in lemmas if (vector := vectors.mean_of(split_words(lemma))) is not None]
    of_definition = vectors.of_text(definition, stop_words)
    parts = [np.mean(of_lemmas, axis=0)] if of_lemmas else []
    if of_definition is not None:
        parts.append(of_definition)
    key = np.mean(parts, axis=0) if parts else None
    return key if key is not None and key.any() else None
