"""Word vectors that others trained, and texts as bags of them (GS §3.3: the queries and keys of associative grounding).

Files of fastText (`.bin`, which has a vector for any word, by its letters) and of fastText's or word2vec's plain
formats (`.vec`, `.txt`, `.bin`: those of its words), read by gensim. What a file is shows in its first bytes: its name
may be any.
"""

import mmap
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, in_short
from ..storage.artefact import sha256_of_file
from ..storage.outside import open_file
from .words import split_words

_FASTTEXT = (793712314).to_bytes(4, "little")  # the first bytes of a fastText model
_FASTTEXT_COUNT = 8 + 12 * 4 + 8  # behind its magic, twelve choices and a threshold: how many words there are
_GZIP = b"\x1f\x8b"
_FASTTEXT_WORDS = _FASTTEXT_COUNT + 3 * 4 + 2 * 8  # behind five counts


class WordVectors:
    """A vector for each word of a file.

    Args:
        path: the file.

    Attributes:
        size: D.
        sha256: of the file.

    Raises:
        InputError: there is no such file, or it isn't one of word vectors, or it is broken or holds NaN or infinity.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._vectors = _load(self.path)
        self.size = int(self._vectors.vector_size)
        if not np.isfinite(self._vectors.vectors).all():
            raise InputError(f"{path} should hold word vectors, but holds NaN or infinity.")
        self.sha256 = sha256_of_file(self.path)

    def of(self, word: str) -> np.ndarray | None:
        """A word's vector; None where it has none, or nothing but zeros.

        Shapes:
            returns: (D,) float32
        """
        try:
            vector = np.asarray(self._vectors[word], dtype=np.float32)
        except KeyError:
            return None
        return vector if vector.any() else None

    def mean_of(self, words: list[str]) -> np.ndarray | None:
        """The mean of the vectors of some words, those without one left out; None where none has one, or it is 0.

        Shapes:
            returns: (D,) float32
        """
        found = [vector for word in words if (vector := self.of(word)) is not None]
        mean = np.mean(found, axis=0, dtype=np.float32) if found else None
        return mean if mean is not None and mean.any() else None

    def of_text(self, text: str, stop_words: frozenset[str]) -> np.ndarray | None:
        """A text as a bag of words: the mean of their vectors, in small letters, stop words left out.

        Shapes:
            returns: (D,) float32
        """
        return self.mean_of([word for word in split_words(text) if word not in stop_words and _has_letter(word)])


def unit(vector: np.ndarray) -> np.ndarray:
    """A vector of length 1 of the same direction; zeros stay.

    Shapes:
        vector: (D,);  returns: (D,)
    """
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length else vector


def _has_letter(word: str) -> bool:
    return any(letter.isalpha() for letter in word)


def _load(path: Path) -> Any:
    from gensim.models.fasttext import load_facebook_vectors
    from gensim.models.keyedvectors import KeyedVectors

    try:
        with open_file(path) as file:
            start = file.read(2**16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of empty files, which are refused below
            if start.startswith(_FASTTEXT):
                _check_words(path)
                return load_facebook_vectors(str(path))
            if start.startswith(_GZIP):
                raise InputError(f"{path} should hold word vectors as they are, but is compressed: gunzip it first.")
            words, size, binary = _header(path, start)
            if not binary:
                _check_lines(path, words, size)
            return KeyedVectors.load_word2vec_format(str(path), binary=binary)
    except OSError as error:
        raise InputError(f"{path} should be a file of word vectors, but can't be read: {error}.") from error
    except InputError:
        raise
    except Exception as error:  # a broken file fails in many ways
        raise InputError(
            f"{path} should hold word vectors of fastText or word2vec, but reading failed: {in_short(error)}. It may "
            "have been cut short."
        ) from error


def _check_words(path: Path) -> None:
    """Refuse a fastText model whose words end too early: gensim would look for the end of one for ever.

    Raises:
        InputError: there are fewer words than it says.
    """
    with open_file(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if len(content) < _FASTTEXT_WORDS:
            return  # gensim says so
        (said,) = struct.unpack_from("<i", content, _FASTTEXT_COUNT)
        at, found = _FASTTEXT_WORDS, 0
        while found < said and (end := content.find(b"\0", at)) >= 0:
            at, found = end + 1 + 9, found + 1  # behind each word, how often it was seen and its type
        if found < said or at > len(content) or said < 1:
            raise InputError(f"{path} should have {said} words, as its beginning says, but ends after {found}.")


def _header(path: Path, start: bytes) -> tuple[int, int, bool]:
    """How many words and numbers the first line says, and whether the numbers are written in four bytes each.

    gensim would read text as such, in silence.

    Raises:
        InputError: the first line isn't `words size`.
    """
    first, _, rest = start.partition(b"\n")
    counts = first.split()
    if len(counts) != 2 or not all(count.isdigit() and int(count) for count in counts):
        raise InputError(
            f"{path} should be a file of word vectors: a fastText model, or one whose first line says how many words "
            f"and numbers follow, such as `2000000 300`, but that line is {first[:40]!r}."
        )
    try:
        numbers = [float(number) for number in rest.split(b"\n", 1)[0].decode().split(" ")[1:] if number.strip()]
    except ValueError:
        numbers = []
    return int(counts[0]), int(counts[1]), not numbers


def _check_lines(path: Path, words: int, size: int) -> None:
    """Refuse text that isn't what its first line says: gensim would leave lines out, in silence.

    Raises:
        InputError: there are more words or fewer, or a line has other numbers of them.
    """
    with open_file(path) as file:
        next(file)
        number = 0
        for number, line in enumerate(file, 1):
            found = len(line.rstrip(b" \r\n").split(b" ")) - 1
            if found != size:
                raise InputError(
                    f"{path}:{number + 1} should have {size} numbers behind a word, as the first line says, but has "
                    f"{found}."
                )
    if number != words:
        raise InputError(f"{path} should have {words} words, as its first line says, but has {number}.")
