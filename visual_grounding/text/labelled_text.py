"""Sentences with an answer: what readers of labelled data give, and how rows are shared out among splits."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..shares import warn_of
from .pretrained_tokenizer import composed

CLASSES, VALUES, TAGS = "classes", "values", "tags"  # what an answer is: one of several, a number, one for each word


class Example(NamedTuple):
    """One sentence, or two, and what is to be told of them.

    Attributes:
        texts: a line each.
        answer: a class's name, a number, or the tags of all words.
        words: where in the first text the words lie that are asked of, first character and the one after the last: all
            of them where they are tagged, one where a word is judged, none where whole sentences are.
    """

    texts: tuple[str, ...]
    answer: tuple[str, ...]
    words: tuple[tuple[int, int], ...] = ()


@dataclass
class LabelledText:
    """What a file, or several, held.

    Attributes:
        examples: in the file's order.
        rows: how many there were, those without an example included.
        remarks: what is said of the data, and of how many rows: left out, or changed.
        columns: which columns of a table were read, for people, a line for each way; empty where there are none.
    """

    examples: list[Example] = field(default_factory=list)
    rows: int = 0
    remarks: Counter[str] = field(default_factory=Counter)
    columns: str = ""

    def add(self, other: "LabelledText") -> None:
        """Put another file's behind these."""
        self.examples += other.examples
        self.rows += other.rows
        self.remarks.update(other.remarks)
        if other.columns and other.columns not in self.columns.split("\n"):
            self.columns = "\n".join(filter(None, (self.columns, other.columns)))

    def said(self, noun: str) -> Iterator[str]:
        """A line for each remark, with its count.

        Args:
            noun: what rows are.
        """
        for remark, count in self.remarks.items():
            yield from warn_of(count, self.rows, remark, noun)


def one_line(text: str) -> str:
    """A text with each run of white space as one space, since a file has a line for each; in NFC.

    >>> one_line(" a\\n b ")
    'a b'
    """
    return " ".join(composed(text).split())


def joined_words(words: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A sentence of words, in NFC, and where in it each lies.

    >>> joined_words(["a", "dog"])
    ('a dog', ((0, 1), (2, 5)))
    """
    words = [composed(word) for word in words]
    ends = np.cumsum([len(word) + 1 for word in words], dtype=int).tolist() if words else []
    return " ".join(words), tuple((end - 1 - len(word), end - 1) for end, word in zip(ends, words))


def share_out(examples: Sequence[Example], shares: Sequence[int], seed: int) -> list[list[Example]]:
    """Examples in parts of about these shares, each part in the order that the examples have.

    All with the same first text come into one part, or a model could learn a test's sentence by heart.

    Args:
        shares: of each part, in percent.
        seed: of who goes where.

    Raises:
        InputError: a part is left without any.
    """
    groups: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(example.texts[0], []).append(number)
    texts = list(groups)
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    ends = np.cumsum(shares) / sum(shares) * len(examples)
    parts: list[list[int]] = [[] for _ in shares]
    taken = 0
    for place in order:
        numbers = groups[texts[place]]
        # A group belongs where its middle lies.
        part = int(np.searchsorted(ends, taken + len(numbers) / 2))
        parts[min(part, len(shares) - 1)] += numbers
        taken += len(numbers)
    if not all(parts):
        raise InputError(
            f"shares of {' '.join(map(str, shares))} % should leave something for each part, but there are "
            f"{len(examples)} examples of {len(texts)} first sentences.",
            "shares",
        )
    return [[examples[number] for number in sorted(part)] for part in parts]
