"""What is hidden from a model that learns to predict it: words, and regions of images (VTLM §2.2, VLP §3.2).

Every place of an item has one fate, by one draw:

    LEFT    not chosen, with 1 - p, and where there is no candidate
    MASKED  chosen, and replaced by the mask          p · masked
    RANDOM  chosen, and replaced by a random one      p · random
    KEPT    chosen, and left as it is                 the rest of p

What is chosen is predicted. All draws come from the caller's generator; `generator_of` makes one of its own for every
item, so that masks are the same in any batch, in any of a data loader's workers and in any process.
"""

from dataclasses import dataclass

import numpy as np

LEFT, MASKED, RANDOM, KEPT = range(4)


@dataclass(frozen=True)
class Replacement:
    """What happens to the places that are chosen; those that are neither masked nor random are kept.

    Attributes:
        masked: share of them that the mask replaces.
        random: share of them that a random other one replaces.

    Raises:
        ValueError: these are no shares.
    """

    masked: float
    random: float

    def __post_init__(self) -> None:
        if min(self.masked, self.random) < 0 or self.masked + self.random > 1:
            raise ValueError(f"masked and random should be shares of 1, but are {self.masked} and {self.random}")


BERT_REPLACEMENT = Replacement(masked=0.8, random=0.1)
MASK_ALONE = Replacement(masked=1.0, random=0.0)


def generator_of(*key: int) -> np.random.Generator:
    """Random numbers of one item: of (seed, epoch, item, what they are for), for instance; no key shares its numbers.

    Args:
        key: integers from 0.

    >>> [int(generator_of(1, 2, item).integers(100)) for item in (3, 4, 3)]
    [73, 7, 73]
    """
    # The length counts, too: numpy takes [1, 2] and [1, 2, 0] for the same.
    return np.random.default_rng([len(key), *key])


def draw_fates(
    candidates: np.ndarray, probability: float, replacement: Replacement, rng: np.random.Generator
) -> np.ndarray:
    """The fate of every place, independently of all others.

    Args:
        candidates: where something may be chosen.
        probability: p, that a candidate is.
        replacement: what happens to it then.

    Shapes:
        candidates: (...,) bool
        returns: (...,) int8, one of LEFT, MASKED, RANDOM, KEPT

    Raises:
        ValueError: p is no probability.
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"probability should be in 0..1, but is {probability}")
    draws = rng.random(candidates.shape)  # for all places, so that none shifts the draws of others
    masked = probability * replacement.masked
    ends = [masked, masked + probability * replacement.random, probability]
    if replacement.masked + replacement.random == 1:
        ends[1] = probability  # rounding would keep a place now and then
    fates = np.array([MASKED, RANDOM, KEPT, LEFT], np.int8)[np.searchsorted(ends, draws, side="right")]
    return np.where(candidates, fates, np.int8(LEFT))


def mask_words(tokens: np.ndarray, fates: np.ndarray, mask: int, words: range, rng: np.random.Generator) -> np.ndarray:
    """A sentence as the model sees it.

    Args:
        tokens: as they are.
        fates: of `draw_fates`.
        mask: number of the mask.
        words: numbers that a random word may have; its own is one of them.

    Shapes:
        tokens: (T,) integers;  fates: (T,)
        returns: (T,), a copy

    Raises:
        ValueError: there are no words.

    >>> fates = np.array([LEFT, MASKED, KEPT, RANDOM])
    >>> mask_words(np.array([5, 6, 7, 8]), fates, mask=9, words=range(4, 5), rng=generator_of(1)).tolist()
    [5, 9, 7, 4]
    """
    if not len(words):
        raise ValueError(f"random words should be drawn from at least one, but there are {words}")
    drawn = rng.integers(words.start, words.stop, tokens.shape)
    return np.where(fates == MASKED, mask, np.where(fates == RANDOM, drawn, tokens)).astype(tokens.dtype)


def swap_regions(features: np.ndarray, present: np.ndarray, swapped: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Features of a batch, some of them replaced by those of a random region of any of its images.

    Only the feature: the box and the label stay. A region may draw itself.

    Args:
        features: as they are.
        present: where there are regions.
        swapped: those whose feature is replaced.
        draws: uniform in 0..1 for each.

    Shapes:
        features: (B, M, F);  present, swapped: (B, M) bool;  draws: (B, M)
        returns: (B, M, F), a copy

    >>> pool, there = np.array([[[5.0], [6.0], [0.0]]]), np.array([[True, True, False]])
    >>> swap_regions(pool, there, np.array([[True, False, False]]), np.full((1, 3), 0.7)).ravel().tolist()
    [6.0, 6.0, 0.0]
    """
    result = features.copy()
    pool = features[present]  # (P, F)
    result[swapped] = pool[(draws[swapped] * len(pool)).astype(np.int64)]
    return result
