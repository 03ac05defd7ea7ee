"""The share of a decoder's cross-attention that falls on regions (VTLM Fig. 2), layer by layer, and on which of them.

Target token u of a sentence attends in layer l to L positions of text and M regions. The weights a_l(u, ·), mean of the
heads, sum to 1:

    share_l(u) = sum of a_l(u, m) over the M regions
    share_l    = mean of share_l(u) over the target tokens of all sentences, the end of a sentence among them
    even       = (regions that are there) / (positions that are there), what attention that looks nowhere would give

Sentences are resampled for the interval, with all their tokens: those of one sentence aren't independent. A sentence
without any region says nothing of where attention goes, and is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .significance import ResampledScore, draw_sentences


@dataclass(frozen=True)
class AttentionMass:
    """Attention on regions in S sentences.

    Attributes:
        rows: (S,) numbers of the sentences.
        shares: (S, layers) sums of share_l(u) over a sentence's tokens.
        tokens: (S,) their number.
        even: (S,) what even attention would give.
    """

    rows: np.ndarray
    shares: np.ndarray
    tokens: np.ndarray
    even: np.ndarray

    def of(self, rows: Sequence[int]) -> "AttentionMass":
        """Some of these sentences, in the given order."""
        places = {row: place for place, row in enumerate(self.rows.tolist())}
        chosen = [places[row] for row in rows]
        return AttentionMass(self.rows[chosen], self.shares[chosen], self.tokens[chosen], self.even[chosen])


def share_on_regions(attention: np.ndarray, regions: int) -> np.ndarray:
    """share_l(u) of one layer.

    Args:
        regions: M, the last positions.

    Shapes:
        attention: (B, U, L + M), sums to 1
        returns: (B, U)

    >>> share_on_regions(np.array([[[0.5, 0.2, 0.2, 0.1]]]), regions=2).round(3).tolist()
    [[0.3]]
    """
    return attention[..., attention.shape[-1] - regions :].sum(axis=-1)


def even_share(padding_mask: np.ndarray, regions: int) -> np.ndarray:
    """What even attention over all positions that are there gives to regions.

    Shapes:
        padding_mask: (B, L + M), True = padding or absent
        returns: (B,)

    >>> even_share(np.array([[False, False, False, True, False, True]]), regions=2).tolist()
    [0.25]
    """
    there = ~padding_mask
    return there[:, there.shape[1] - regions :].sum(axis=1) / there.sum(axis=1)


def mean_share(sums: np.ndarray, tokens: np.ndarray, *, samples: int = 1000, seed: int = 1) -> ResampledScore:
    """share_l of one layer: over all tokens, and over those of the sentences that are drawn.

    Shapes:
        sums: (S,) of share_l(u) over a sentence's tokens;  tokens: (S,)

    >>> mean_share(np.array([1.0, 0.5]), np.array([3, 1]), samples=1).whole
    0.375
    """
    drawn = draw_sentences(len(sums), samples, seed)  # (K, S)
    return ResampledScore(float(sums.sum() / tokens.sum()), sums[drawn].sum(axis=1) / tokens[drawn].sum(axis=1))
