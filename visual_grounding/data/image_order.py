"""Which images each sentence gets: its own, another's, or none. The probes of visual awareness."""

import numpy as np

from ..errors import InputError

IMAGE_ORDERS = ("congruent", "shuffled", "blank")


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


def arrange_images(ids: np.ndarray, order: str, seed: int) -> np.ndarray:
    """Apply an image order to a table of image ids.

    Shapes:
        ids: (S, N), −1 = none.
        returns: (S, N). "congruent": as they are. "blank": all −1. "shuffled": whole rows move to other
            sentences, whose best image is another one; a sentence without images stays without.

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
    with_image = np.flatnonzero((ids >= 0).any(axis=1)) if ids.size else np.zeros(0, dtype=np.int64)
    best = np.array([row[row >= 0][0] for row in ids[with_image]], dtype=np.int64)
    arranged[with_image] = ids[with_image][derangement(best, seed)]
    return arranged
