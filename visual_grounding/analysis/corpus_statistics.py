"""How the language of captions differs from others (VOK §2.3, Table 1; A.7).

Sentences, tokens, token types with more than five occurrences (as Karpathy and Fei-Fei 2015 count a vocabulary), the
Jensen–Shannon divergence of 1- and 2-grams to a reference corpus, and the grounding ratio: the share of tokens whose
type is frequent in captions.

Texts are read once, in blocks; memory holds the counts of types and pairs of types, sixteen bytes each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..text.pretrained_tokenizer import composed
from ..text.sentences import sentence_starts
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import split_words
from ..vokenization.text_shards import TextReader

VOCABULARY_ABOVE = 5  # occurrences of a type that the vocabulary has
GROUNDED_ABOVE = 100  # occurrences in captions of a type that is visually grounded
_BLOCK = 4096  # sentences cut at a time
_MERGED_AT = 2**20  # codes that wait to be counted, at least
_PAIR = 2**32  # the first type of a 2-gram is multiplied by it


class Counts:
    """How often each number occurs among those that were added.

    They wait in a list until they are as many as those that were counted, so that each is sorted a few times only.
    """

    def __init__(self) -> None:
        self._codes = self._counts = np.zeros(0, np.int64)
        self._waiting: list[np.ndarray] = []
        self._many = 0

    def add(self, codes: np.ndarray) -> None:
        """Count some more.

        Shapes:
            codes: (n,) int64
        """
        self._waiting.append(codes)
        self._many += len(codes)
        if self._many >= max(_MERGED_AT, len(self._codes)):
            self._merge()

    def _merge(self) -> None:
        codes, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *self._waiting]), return_counts=True)
        both = np.concatenate([self._codes, codes])
        order = np.argsort(both, kind="stable")
        both, many = both[order], np.concatenate([self._counts, counts])[order]
        first = np.flatnonzero(np.diff(both, prepend=-1))  # codes aren't negative
        self._codes = both[first]
        self._counts = np.add.reduceat(many, first) if len(first) else many
        self._waiting, self._many = [], 0

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Each number, ascending, and how often it occurs.

        Shapes:
            returns: (types,) int64;  (types,) int64
        """
        if self._waiting:
            self._merge()
        return self._codes, self._counts


def jensen_shannon(ours: Counts, theirs: Counts) -> float | None:
    """Jensen–Shannon divergence of two distributions, in bits: 0 where they are the same, 1 where they share nothing.

        JSD(P, Q) = 1/2 KL(P | M) + 1/2 KL(Q | M)      M = (P + Q) / 2      KL(P | M) = Σ_x P(x) log2 P(x)/M(x)

    # Assumption: the paper doesn't say the logarithm's base; these are bits. Its numbers fit the decimal logarithm,
    # whose largest divergence is 0.301: COCO's captions have 0.49 bits to WikiText, which are its 0.15.

    Returns:
        None where there is nothing to compare.
    """
    (own, counts), (other, other_counts) = ours.result(), theirs.result()
    if not len(own) or not len(other):
        return None
    types = np.union1d(own, other)
    p, q = np.zeros(len(types)), np.zeros(len(types))  # (types,)
    p[np.searchsorted(types, own)] = counts / counts.sum()
    q[np.searchsorted(types, other)] = other_counts / other_counts.sum()
    m = (p + q) / 2
    return max(0.0, (_divergence(p, m) + _divergence(q, m)) / 2)


def _divergence(p: np.ndarray, m: np.ndarray) -> float:
    """Kullback–Leibler divergence in bits: 0 log 0 is 0."""
    found = p > 0
    return float((p[found] * np.log2(p[found] / m[found])).sum())


def grounding_ratio(counts: Counts, grounded: np.ndarray) -> float | None:
    """Share of tokens whose type is grounded (VOK §2.3); None where there is no token.

    Shapes:
        grounded: (n,) int64, types
    """
    types, many = counts.result()
    return float(many[np.isin(types, grounded)].sum() / many.sum()) if len(types) else None


def grounded_types(
    captions: Counts, text_of: Callable[[int], str], stop_words: frozenset[str], above: int = GROUNDED_ABOVE
) -> np.ndarray:
    """Types that are visually grounded: those that occur more than so many times in captions, without stop words.

    # Assumption: punctuation marks are no grounded types either; the paper doesn't say.

    Args:
        text_of: what a type is; empty for none.

    Shapes:
        returns: (n,) int64
    """
    types, many = captions.result()
    frequent = [(int(each), text_of(int(each)).strip().lower()) for each in types[many > above]]
    kept = [each for each, text in frequent if any(map(str.isalnum, text)) and text not in stop_words]
    return np.array(kept, dtype=np.int64)


class Words:
    """Numbers of the words of a text, as captions are split: lower-cased words and single punctuation marks."""

    description = "words"

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words: list[str] = []

    def numbers_of(self, sentences: Sequence[str]) -> list[list[int]]:
        """Numbers of each sentence's words; new ones are given as they come."""
        known = self._numbers
        return [[known.setdefault(word, len(known)) for word in split_words(sentence)] for sentence in sentences]

    def text_of(self, number: int) -> str:
        """The word."""
        if len(self._words) < len(self._numbers):
            self._words = list(self._numbers)
        return self._words[number]


class Pieces:
    """Numbers of a tokenizer's pieces, its own.

    Args:
        bridge: the tokenizer.
    """

    def __init__(self, bridge: TokenizerBridge) -> None:
        self.bridge = bridge
        self.description = f"pieces of {bridge.name}"
        self._special = {number for number in bridge.tokenizer.all_special_ids if number is not None}

    def numbers_of(self, sentences: Sequence[str]) -> list[list[int]]:
        """Numbers of each sentence's pieces.

        Raises:
            InputError: the tokenizer fails on one.
        """
        return [each.ids for each in self.bridge.encodings_of([composed(sentence) for sentence in sentences])]

    def text_of(self, number: int) -> str:
        """What a piece stands for; nothing where it is a special one."""
        return "" if number in self._special else self.bridge.tokenizer.decode([number])


@dataclass
class Corpus:
    """What was counted in a corpus.

    Attributes:
        lines: of its files.
        sentences: those with a token.
        sha256: of its lines.
        types: how often each type occurs.
        pairs: likewise each pair of types that follow each other in a sentence.
    """

    lines: int = 0
    sentences: int = 0
    sha256: str = ""
    types: Counts = field(default_factory=Counts)
    pairs: Counts = field(default_factory=Counts)


def count_corpus(paths: Sequence[Path], tokens: Words | Pieces, language: str | None = "en") -> Corpus:
    """Read a corpus once, and count.

    Args:
        paths: its files, one after the other; also .gz and .zst, and - for standard input.
        tokens: what it is cut into.
        language: decides where sentences end; None where each line is one.

    Raises:
        InputError: a file can't be read.
    """
    corpus, reader = Corpus(), TextReader(paths)
    for shard in reader.shards():
        sentences = _sentences(shard.lines, language)
        while block := list(islice(sentences, _BLOCK)):
            numbers = tokens.numbers_of(block)
            lengths = np.array([len(each) for each in numbers], dtype=np.int64)
            flat = np.fromiter((number for each in numbers for number in each), np.int64, int(lengths.sum()))
            corpus.sentences += int((lengths > 0).sum())
            corpus.types.add(flat)
            inside = np.ones(len(flat), dtype=bool)  # whether a token has one before it in its sentence
            inside[(np.cumsum(lengths) - lengths)[lengths > 0]] = False
            after = np.flatnonzero(inside)
            corpus.pairs.add(flat[after - 1] * _PAIR + flat[after])
    corpus.lines, corpus.sha256 = reader.lines, reader.sha256
    return corpus


def _sentences(lines: Sequence[str], language: str | None) -> Iterator[str]:
    for line in lines:
        if language is None:
            yield line
            continue
        starts = sentence_starts(line, language)
        # What follows a sentence would be a piece of its own in tokenizers that keep white space.
        yield from (line[start:stop].rstrip() for start, stop in zip(starts, [*starts[1:], len(line)]))


class Statistics(NamedTuple):
    """A row of Table 1; None where it can't be said.

    Attributes:
        tokens, sentences: how many.
        vocabulary: types with more than five occurrences.
        tokens_per_sentence: their mean.
        divergence_1, divergence_2: Jensen–Shannon, of 1- and 2-grams, to the reference, in bits.
        grounding_ratio: share of tokens of grounded types, 0..1.
        types: all, however rare.
        lines, text_sha256: of the files.
    """

    tokens: int
    sentences: int
    vocabulary: int
    tokens_per_sentence: float | None
    divergence_1: float | None
    divergence_2: float | None
    grounding_ratio: float | None
    types: int
    lines: int
    text_sha256: str


def statistics_of(corpus: Corpus, reference: Corpus | None, grounded: np.ndarray | None) -> Statistics:
    """The row of a corpus.

    Args:
        reference: what its language is compared with.
        grounded: types that are visually grounded.

    Shapes:
        grounded: (n,) int64
    """
    many = corpus.types.result()[1]
    tokens = int(many.sum())
    return Statistics(
        tokens,
        corpus.sentences,
        int((many > VOCABULARY_ABOVE).sum()),
        tokens / corpus.sentences if corpus.sentences else None,
        None if reference is None else jensen_shannon(corpus.types, reference.types),
        None if reference is None else jensen_shannon(corpus.pairs, reference.pairs),
        None if grounded is None else grounding_ratio(corpus.types, grounded),
        len(many),
        corpus.lines,
        corpus.sha256,
    )
