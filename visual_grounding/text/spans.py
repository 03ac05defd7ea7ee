"""Where pieces come from in their texts, for many texts at a time: flat arrays, no Python object for each piece."""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

_SPACES = np.array([chr(code).isspace() for code in range(0x3002)])  # there is none beyond U+3000


class Spans(NamedTuple):
    """Spans of the pieces of some texts, counted in the characters of all texts behind one another.

    Attributes:
        starts: each piece's first character.
        ends: the one after its last.
        pieces: which pieces are whose: text t has those from pieces[t] to pieces[t + 1].
        texts: where each text begins, and where the last ends.

    Shapes:
        starts, ends: (P,) int64;  pieces, texts: (L + 1,) int64
    """

    starts: np.ndarray
    ends: np.ndarray
    pieces: np.ndarray
    texts: np.ndarray

    def by_text(self) -> list[list[tuple[int, int]]]:
        """Spans of each text in its own characters."""
        first = np.repeat(self.texts[:-1], np.diff(self.pieces))  # (P,)
        spans = list(zip((self.starts - first).tolist(), (self.ends - first).tolist()))
        places = self.pieces.tolist()
        return [spans[start:stop] for start, stop in pairwise(places)]


def spans_of_encodings(texts: Sequence[str], encodings: Iterable[Any]) -> Spans:
    """Spans as a tokenizer says them, white space at their ends left out; of white space alone an empty one remains.

    Args:
        texts: what was encoded.
        encodings: of `tokenizers`, one a text.
    """
    parts = []
    for each in encodings:  # one by one, so that few of their tuples are alive: an iterator is faster than an array
        parts.append(np.fromiter(chain.from_iterable(each.offsets), np.int64, 2 * len(each)))
    pieces = _places([len(part) // 2 for part in parts])
    begins = _places(map(len, texts))
    flat = np.concatenate(parts) if parts else np.zeros(0, np.int64)  # (2 P,)
    first = np.repeat(begins[:-1], np.diff(pieces))
    return Spans(*without_space("".join(texts), flat[::2] + first, flat[1::2] + first), pieces, begins)


def _places(lengths: Iterable[int]) -> np.ndarray:
    """Where each part begins when all stand behind one another, and where the last ends: (L + 1,)."""
    return np.cumsum([0, *lengths], dtype=np.int64)


def without_space(text: str, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spans of a text without the white space at their ends; of white space alone an empty one remains, at its end.

    Shapes:
        starts, ends: (P,) int64, with 0 <= start <= end <= the text's length;  returns: the same twice
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)  # (characters,)
    space = _SPACES[np.minimum(codes, len(_SPACES) - 1)]
    filled = np.flatnonzero(ends > starts)
    changed = filled[space[starts[filled]] | space[ends[filled] - 1]]
    if not len(changed):
        return starts, ends
    starts, ends = starts.copy(), ends.copy()
    visible = np.flatnonzero(~space)
    before = np.zeros(len(codes) + 1, np.int64)  # how many are visible before each character
    np.cumsum(~space, out=before[1:])
    start, end = starts[changed], ends[changed]
    # The next visible character from the start on, and the last before the end; none of them may leave the span.
    following = np.append(visible, len(codes))[before[start]]
    starts[changed] = np.minimum(following, end)
    preceding = np.append(visible, -1)[before[end] - 1] + 1  # -1 stands at the end, where an index of -1 finds it
    ends[changed] = np.maximum(preceding, starts[changed])
    return starts, ends
