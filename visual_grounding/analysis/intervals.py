"""How sure a number is: the middle 95 % of its resampled values (percentile bootstrap)."""

from typing import NamedTuple

import numpy as np


class ResampledScore(NamedTuple):
    """One score of one system: on the whole set, and on each of K draws of its sentences.

    Attributes:
        whole: in the score's own unit, such as 0..100.
        drawn: (K,)
    """

    whole: float
    drawn: np.ndarray


class Interval(NamedTuple):
    """A number, and the 95 % interval around it."""

    value: float
    low: float
    high: float


def middle_of(drawn: np.ndarray) -> np.ndarray:
    """The 2.5th and the 97.5th percentile over the draws.

    Shapes:
        drawn: (K, ...)
        returns: (2, ...)

    >>> middle_of(np.arange(41) / 10).tolist()
    [0.1, 3.9]
    """
    return np.percentile(drawn, [2.5, 97.5], axis=0)


def interval_of(score: ResampledScore) -> Interval:
    """A score with the middle of its draws.

    >>> interval_of(ResampledScore(2.0, np.arange(41) / 10))
    Interval(value=2.0, low=0.1, high=3.9)
    """
    low, high = middle_of(score.drawn).tolist()
    return Interval(score.whole, low, high)
