"""Words: the splitter and the vocabulary of text encoders that learn their own word vectors.

A vocabulary's file is fairseq's `dict.txt` (`word count` a line) and its numbers are those of fairseq's Dictionary, but
reading it needs no fairseq: an exported retriever runs on a machine that has only torch.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import regex

from ..errors import InputError
from ..storage.lines import read_lines

DICTIONARY = "dict.txt"
SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")
PAD, UNKNOWN = 1, 3

# A run of letters, digits and combining marks (Hindi's vowels are such; Python's own \w leaves them out) is a word; any
# other visible character is one by itself.
_WORD = regex.compile(r"[\w\p{M}]+|[^\w\p{M}\s]")


def split_words(text: str) -> list[str]:
    """Lower-cased words and single punctuation marks, in order; é is the same in one code point and in two (NFC).

    >>> split_words("A dog's ball, 2 m away!")
    ['a', 'dog', "'", 's', 'ball', ',', '2', 'm', 'away', '!']
    """
    return _WORD.findall(unicodedata.normalize("NFC", text.lower()))


class Vocabulary:
    """Words and their numbers; whatever isn't among them is `<unk>`.

    Args:
        words: in the order of their numbers, without fairseq's four special symbols, which come first.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self._numbers = {word: number for number, word in enumerate(self.words, len(SPECIAL_SYMBOLS))}

    def __len__(self) -> int:
        return len(SPECIAL_SYMBOLS) + len(self.words)

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read a `dict.txt`.

        Raises:
            InputError: missing, unreadable, or a line that isn't `word count`.
        """
        words = []
        for number, line in enumerate(read_lines(path, pipes=False), 1):
            word, space, count = line.rpartition(" ")
            if not space or not word or not count.isdecimal():
                raise InputError(f"{path}:{number} should be `word count`, but is {line[:80]!r}.")
            words.append(word)
        return cls(words)

    @property
    def symbols(self) -> list[str]:
        """What stands for each number, as in fairseq's Dictionary."""
        return [*SPECIAL_SYMBOLS, *self.words]

    def encode(self, text: str) -> list[int]:
        """Numbers of the words of one sentence."""
        return [self._numbers.get(word, UNKNOWN) for word in split_words(text)]


def digest_of_symbols(symbols: Iterable[str]) -> str:
    """sha256 of a dictionary's symbols in the order of their numbers; how often each was counted doesn't matter.

    >>> digest_of_symbols(["a", "dog"])[:8], digest_of_symbols(["dog", "a"])[:8]
    ('1a702a80', 'd84ae2d2')
    """
    return hashlib.sha256("".join(f"{symbol}\n" for symbol in symbols).encode("utf-8", "surrogatepass")).hexdigest()


_DATA = "Give the data that it was trained on, or data made with the dictionary of that."


def check_same_words(
    path: str | Path, found: str, learned: str, checkpoint: str | Path, remedy: str | None = None
) -> None:
    """Refuse a dictionary with other words, or the same in another order, than what a checkpoint was trained with.

    Args:
        path: the dictionary.
        found: its digest.
        learned: the digest of what the checkpoint was trained with.
        checkpoint: what it is called.
        remedy: what to give where the words aren't the data's.

    Raises:
        InputError: the digests differ.
    """
    if found != learned:
        raise InputError(
            f"{path} should have the words that {checkpoint} was trained with, in their order, but hasn't: the sha256 "
            f"of its symbols is {found}, of theirs {learned}. A word is known by its place there, so it would get what "
            "another has learned. A word that was added since, such as <mask>, makes it another one, too. "
            f"{remedy or _DATA}",
            *(() if remedy else ("data",)),
        )


def count_words(texts: Iterable[str], min_count: int = 1) -> list[tuple[str, int]]:
    """Words that occur at least `min_count` times, with their counts: the most frequent first, ties alphabetically.

    >>> count_words(["a dog", "A cat", "a dog"], min_count=2)
    [('a', 3), ('dog', 2)]
    """
    counts = Counter(word for text in texts for word in split_words(text))
    kept = [(word, count) for word, count in counts.items() if count >= min_count]
    return sorted(kept, key=lambda item: (-item[1], item[0]))


class WordTokenizer:
    """Sentences to numbers of words.

    Args:
        vocabulary: the words.
        max_tokens: longer sentences are cut here.
    """

    pad = PAD
    around: frozenset[int] = frozenset()  # it puts nothing around a sentence

    def __init__(self, vocabulary: Vocabulary, max_tokens: int = 256) -> None:
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        known = [any(map(str.isalnum, word)) for word in vocabulary.words]
        self._is_word = np.array([False, False, False, True, *known])  # <unk> stands for a word

    def encode(self, texts: list[str]) -> tuple[list[list[int]], int]:
        """Numbers of each sentence's words, and how many sentences were cut."""
        encoded = [self.vocabulary.encode(text) for text in texts]
        return [numbers[: self.max_tokens] for numbers in encoded], sum(len(n) > self.max_tokens for n in encoded)

    def count_known(self, tokens: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """How many words each sentence has, and how many of them are known. Known punctuation marks are no words.

        Shapes:
            returns: words (S,), known words (S,)
        """
        words = np.array([int(self._is_word[sentence].sum()) for sentence in tokens], dtype=np.int64)
        return words, words - np.array([sentence.count(UNKNOWN) for sentence in tokens], dtype=np.int64)

    def save(self, folder: Path) -> None:
        """Write `dict.txt`; counts are no longer known and written as 1."""
        with open(folder / DICTIONARY, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word} 1\n" for word in self.vocabulary.words)
