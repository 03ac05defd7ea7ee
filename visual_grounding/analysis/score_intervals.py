"""How sure a score of one system is: its value on the whole set, and the middle 95 % of its resampled values.

    for k = 1..K:  draw S sentences with replacement;  s_k = score on them
    low, high = 2.5th and 97.5th percentile of s_1..s_K

The draws are those of `paired_bootstrap` with the same seed (`significance.py`), which says whether two systems differ:
their intervals may overlap and they differ all the same.
"""

from typing import NamedTuple

import numpy as np

from .significance import draw_sentences, score_from_statistics, sentence_statistics
from .translation_scores import TextForms


class Interval(NamedTuple):
    """A number, and the 95 % interval around it."""

    value: float
    low: float
    high: float


def score_intervals(
    hypotheses: TextForms, references: TextForms, *, language: str, samples: int = 1000, seed: int = 1
) -> dict[str, Interval]:
    """Every score of `CONVENTIONS` of S translations, 0..100, with its interval.

    Args:
        language: target language code.
        samples: K.
        seed: of the draws.
    """
    counts = sentence_statistics(hypotheses, references, language=language)
    drawn = draw_sentences(len(references.tokens), samples, seed)
    times = np.stack([np.bincount(row, minlength=drawn.shape[1]) for row in drawn])  # (K, S)
    found = {}
    for name, of_sentences in counts.items():  # (S, columns)
        whole = score_from_statistics(name, of_sentences.sum(axis=0, keepdims=True), language=language)
        resampled = score_from_statistics(name, times @ of_sentences, language=language)  # (K,)
        found[name] = interval_of(float(whole[0]), resampled)
    return found


def interval_of(value: float, resampled: np.ndarray) -> Interval:
    """The middle 95 % of resampled values.

    >>> interval_of(2.0, np.arange(41) / 10)
    Interval(value=2.0, low=0.1, high=3.9)

    Shapes:
        resampled: (K,)
    """
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(value, float(low), float(high))
