"""Which images each sentence gets: its own, another's, or none. The probes of visual awareness."""

import numpy as np

from ..errors import InputError

IMAGE_ORDERS = ("congruent", "shuffled", "blank")
CANDIDATES = 4096  # rows that a row is tried with: all, in a table of no more rows
MOST_FAILURES = 10_000  # rows that none of them helps, until no more are tried: a table may have images in every row
MOST_IN_A_ROW = 128  # of them one after another: of Zipf-like tables, the most seen before another swap was 40


def derangement(groups: np.ndarray, seed: int) -> np.ndarray:
    """A seeded permutation of the rows in which no row gets one of its own group.

    Rows are laid side by side, group by group, groups and rows in random order; then each takes what stands one
    largest group further along. So it never lands in its own group, and every row is used once.

    >>> order = derangement(np.array([7, 7, 8, 9]), seed=1)
    >>> sorted(order.tolist()), bool((np.array([7, 7, 8, 9])[order] != np.array([7, 7, 8, 9])).all())
    ([0, 1, 2, 3], True)

    Shapes:
        groups: (S,) any integers, equal within a group.
        returns: (S,), for each row the row whose images it gets.

    Raises:
        InputError: one group has more than half of the rows, so no such permutation exists.
    """
    rng = np.random.default_rng(seed)
    size = len(groups)
    _, member, counts = np.unique(groups, return_inverse=True, return_counts=True)
    largest = int(counts.max(initial=0))
    if 2 * largest > size:
        raise InputError(
            f"images can't be shuffled so that no sentence keeps its own: {largest} of {size} sentences share one "
            "image. Use --image-order blank, or more varied data."
        )
    line = np.lexsort((rng.random(size), rng.permutation(len(counts))[member]))  # (S,) rows, group by group
    order = np.empty(size, dtype=np.int64)
    order[line] = np.roll(line, -largest)
    return order


def keep_own_images(ids: np.ndarray, arranged: np.ndarray) -> np.ndarray:
    """Which rows of a table still have an image of their own after it was arranged.

    >>> keep_own_images(np.array([[0, 1], [2, -1]]), np.array([[3, 0], [4, -1]])).tolist()
    [True, False]

    Shapes:
        ids, arranged: (S, N), −1 = none
        returns: (S,) bool
    """
    kept = np.zeros(len(ids), dtype=bool)
    for column in ids.T:
        kept |= (column >= 0) & (arranged == column[:, None]).any(axis=1)
    return kept


def share_images(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which of some rows share an image with one.

    Shapes:
        own: (N,);  others: (K, N), −1 = none
        returns: (K,) bool
    """
    return (others[:, :, None] == own[own >= 0]).any(axis=(1, 2))  # (K, N, N) -> (K,)


class Holders:
    """Which rows of a table hold an image, sorted once: `share_images` of all rows, without comparing every image.

    Shapes:
        ids: (S, N), −1 = none
    """

    def __init__(self, ids: np.ndarray) -> None:
        self.ids = ids
        flat = np.argsort(ids, axis=None, kind="stable")
        self._images, self._rows = ids.ravel()[flat], flat // ids.shape[1]  # (S·N,) each, image by image

    def share(self, own: np.ndarray) -> np.ndarray:
        """Which rows share an image with one.

        Shapes:
            own: (N,), −1 = none
            returns: (S,) bool
        """
        found = np.zeros(len(self.ids), dtype=bool)
        own = own[own >= 0]
        starts, stops = np.searchsorted(self._images, own), np.searchsorted(self._images, own, side="right")
        for start, stop in zip(starts, stops):
            found[self._rows[start:stop]] = True
        return found


def shuffle_images(ids: np.ndarray, seed: int) -> np.ndarray:
    """A seeded permutation of the rows of a table in which, as far as swaps find one, no row gets an image of its own.

    It begins with the derangement of the best images. A row that gets an image of its own then swaps what it gets with
    a row drawn at random, such that both get none of their own; if none of `CANDIDATES` is such a row, it keeps it.
    It ends where no swap is left, or where swaps are found no more. With one image a row there is nothing to swap.

    Shapes:
        ids: (S, N), −1 = none; every row has an image.
        returns: (S,), for each row the row whose images it gets.

    Raises:
        InputError: as `derangement`, of the best images.
    """
    best = ids[np.arange(len(ids)), (ids >= 0).argmax(axis=1)]
    order = derangement(best, seed)
    holders = Holders(ids)
    rng, swaps, failures, in_a_row = np.random.default_rng([seed, 1]), 1, 0, 0
    while swaps:  # a swap may make way for others
        swaps = 0
        for row in rng.permutation(np.flatnonzero(keep_own_images(ids, ids[order]))):
            if not share_images(ids[row], ids[order[[row]]])[0]:  # a partner of an earlier swap
                continue
            few = len(ids) <= CANDIDATES
            candidates = rng.permutation(len(ids)) if few else rng.integers(len(ids), size=CANDIDATES)
            partner = _first_partner(holders, order, row, candidates)
            if partner is None:
                failures, in_a_row = failures + 1, in_a_row + 1
            else:
                order[row], order[partner] = order[partner], order[row]
                swaps, in_a_row = swaps + 1, 0
            if failures == MOST_FAILURES or in_a_row == MOST_IN_A_ROW:
                return order
    return order


def _first_partner(holders: Holders, order: np.ndarray, row: int, candidates: np.ndarray) -> int | None:
    """The first row such that it and `row` get no image of their own once they swap what they get.

    Shapes:
        order: (S,);  candidates: (K,)
    """
    ids = holders.ids
    some, others = np.split(candidates, [64])  # mostly one of the first is
    takes, gives = share_images(ids[row], ids[order[some]]), share_images(ids[order[row]], ids[some])
    fitting = some[~takes & ~gives]
    if not len(fitting):
        takes, gives = holders.share(ids[row])[order[others]], holders.share(ids[order[row]])[others]
        fitting = others[~takes & ~gives]
    return int(fitting[0]) if len(fitting) else None


def arrange_images(ids: np.ndarray, order: str, seed: int) -> np.ndarray:
    """Apply an image order to a table of image ids.

    Shapes:
        ids: (S, N), −1 = none.
        returns: (S, N). "congruent": as they are. "blank": all −1. "shuffled": whole rows move to other
            sentences, whose best image is another one, and of which, if possible, no image is the same; a sentence
            without images stays without.

    Raises:
        InputError: an unknown order, or one that isn't possible.
    """
    if order == "congruent":
        return ids
    if order == "blank":
        return np.full(ids.shape, -1, dtype=np.int32)
    if order != "shuffled":
        raise InputError(f"--image-order must be one of {', '.join(IMAGE_ORDERS)}, but is {order!r}.")
    arranged = np.array(ids)
    with_image = np.flatnonzero((ids >= 0).any(axis=1))
    if len(with_image):
        arranged[with_image] = arranged[with_image][shuffle_images(arranged[with_image], seed)]
    return arranged
