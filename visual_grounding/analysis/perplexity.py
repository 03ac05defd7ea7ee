"""Perplexity and the mean loss of regions, on a whole set and on draws of its lines."""

import numpy as np

from .intervals import ResampledScore


def perplexity(bits: np.ndarray, words: np.ndarray) -> np.ndarray:
    """2 to the power of the bits that a word takes.

        PPL = 2 ^ (Σ bits / Σ words)

    Shapes:
        bits, words: (…, S), summed over the last axis;  returns: (…)

    >>> perplexity(np.array([4.0, 2.0]), np.array([2, 1])).item()  # 2 bits a word
    4.0
    """
    total = np.maximum(words.sum(axis=-1), 1)
    return np.asarray(2.0 ** (bits.sum(axis=-1) / total))


def resample_perplexity(bits: np.ndarray, words: np.ndarray, draws: np.ndarray) -> ResampledScore:
    """Perplexity on the whole set, and on draws of its lines.

    Shapes:
        bits, words: (S,);  draws: (K, S)
    """
    return ResampledScore(float(perplexity(bits, words)), perplexity(bits[draws], words[draws]))


def resample_region_loss(distances: np.ndarray, regions: np.ndarray, draws: np.ndarray) -> ResampledScore | None:
    """The mean over hidden regions of how far each is from what was predicted, likewise; None where none was hidden.

    Shapes:
        distances: (S,) summed over a line's hidden regions;  regions: (S,) how many these are;  draws: (K, S)

    >>> resample_region_loss(np.array([3.0, 1.0]), np.array([3, 1]), np.array([[0, 1], [1, 1]])).whole
    1.0
    """
    if not regions.sum():
        return None
    drawn = distances[draws].sum(axis=1) / np.maximum(regions[draws].sum(axis=1), 1)
    return ResampledScore(float(distances.sum() / regions.sum()), drawn)
