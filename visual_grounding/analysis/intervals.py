"""How sure a number is: the middle 95 % of its resampled values (percentile bootstrap)."""

from typing import NamedTuple

import numpy as np

from .significance import ResampledScore


class Interval(NamedTuple):
    """A number, and the 95 % interval around it."""

    value: float
    low: float
    high: float


def interval_of(score: ResampledScore) -> Interval:
    """A score with the 2.5th and 97.5th percentile of its draws.

    >>> interval_of(ResampledScore(2.0, np.arange(41) / 10))
    Interval(value=2.0, low=0.1, high=3.9)
    """
    low, high = np.percentile(score.drawn, [2.5, 97.5])
    return Interval(score.whole, float(low), float(high))
