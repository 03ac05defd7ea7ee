"""The nearest neighbour of a piece among another tokenizer's: the one that overlaps it most (VOK §3.3).

    ind(j) = argmax_i overlap(w_i, u_j)          overlap(A, B) = IoU(A, B) = |A ∩ B| / |A ∪ B|

w_i -> pieces that have a voken, u_j -> those that are to get one, A, B -> their ranges of characters in the sentence.
"""

import numpy as np

NO_PIECE = -1
_PAIRS = 2**22  # pairs of overlapping pieces looked at in one go


def most_overlapping(
    starts: np.ndarray, ends: np.ndarray, other_starts: np.ndarray, other_ends: np.ndarray
) -> np.ndarray:
    """For each of the others, the first piece of the highest IoU with it; −1 where none shares a character with it.

    Exact for any ranges: they may be empty, share characters, lie in one another, and stand in any order. Fast for
    those of tokenizers, which ascend and hardly overlap among themselves.

    # Assumption: the paper doesn't say what a piece gets that overlaps none; here it is nothing.

    Shapes:
        starts, ends: (P,) int64;  other_starts, other_ends: (U,) int64;  returns: (U,) int64
    """
    nearest = np.full(len(other_starts), NO_PIECE, dtype=np.int64)
    pieces, others = _distinct(starts, ends), _distinct(other_starts, other_ends)
    a, b = starts[pieces], ends[pieces]
    if (a[1:] < a[:-1]).any():
        order = np.argsort(a)
        pieces, a, b = pieces[order], a[order], b[order]
    c, d = other_starts[others], other_ends[others]
    # Those that begin before an end, but for the first of them, which all end before the start: what overlaps is among
    # them. Where ranges ascend it is all of them.
    first = np.searchsorted(np.maximum.accumulate(b), c, side="right")
    stop = np.searchsorted(a, d, side="left")
    found = np.full(len(others), NO_PIECE, dtype=np.int64)
    alone = stop - first == 1
    found[alone] = pieces[first[alone]]
    several = np.flatnonzero(stop - first > 1)
    for part in _parts(several, (stop - first)[several]):
        found[part] = _best(pieces, a, b, c[part], d[part], first[part], (stop - first)[part])
    # Those that were left out as copies of the one before have its neighbour; empty ones have none.
    full = np.flatnonzero(other_ends > other_starts)
    nearest[full] = found[np.searchsorted(others, full, side="right") - 1]
    return nearest


def _distinct(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Numbers of the ranges that aren't empty, of equal ones side by side the first: (n,)."""
    full = np.flatnonzero(ends > starts)
    a, b = starts[full], ends[full]
    new = np.ones(len(full), dtype=bool)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return full[new]


def _parts(numbers: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """Cut so that a part has `_PAIRS` candidates, or one piece alone has more."""
    if not len(numbers):
        return []
    return np.split(numbers, np.flatnonzero(np.diff(np.cumsum(counts) // _PAIRS)) + 1)


def _best(
    pieces: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    d: np.ndarray,
    first: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    """Of `counts` candidates from `first` on, for each range from c to d the piece of the highest IoU: (n,)."""
    begins = np.cumsum(counts) - counts
    other = np.repeat(np.arange(len(c)), counts)  # (pairs,)
    each = np.arange(len(other)) + np.repeat(first - begins, counts)  # (pairs,)
    shared = np.minimum(b[each], d[other]) - np.maximum(a[each], c[other])  # negative where they are apart: never best
    # Equal fractions are equal as floats, and below 2^26 characters others differ as floats, too: by more than 2^-52.
    overlap = shared / ((b - a)[each] + (d - c)[other] - shared)
    best = np.repeat(np.maximum.reduceat(overlap, begins), counts)
    return np.minimum.reduceat(np.where(overlap == best, pieces[each], np.iinfo(np.int64).max), begins)
