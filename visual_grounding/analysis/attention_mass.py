"""How much of a decoder's cross-attention falls on the regions: VTLM's Fig. 2, and where on a picture it falls.

A sentence's weights are what a decoder over text and regions gives when it is watched (`cross_attention`): for each
layer, of each token that it writes, over L positions of text and then M regions; they sum to 1. Here are functions of
arrays alone; whoever runs a model hands them its numbers.

La: layers; K = L + M positions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .intervals import ResampledScore, middle_of
from .significance import PairedComparison, compare_draws, draw_sentences


class Mass(NamedTuple):
    """Mean share of attention on the regions, of each layer.

    Attributes:
        mean: (La,) over all tokens of all sentences, 0..1.
        low, high: (La,) the 95 % interval of the bootstrap over sentences.
        even: what a token would give them that looked everywhere alike: present regions by all visible positions, mean
            over the same tokens. A share says little without it.
        tokens, sentences: how many it is of.
        without_regions: sentences that were left out, since they have none.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    even: float
    tokens: int
    sentences: int
    without_regions: int


def mass_on_regions(weights: np.ndarray, regions: int) -> np.ndarray:
    """The share of every token's attention that falls on regions, in every layer.

        m_l,j = Σ_{k > L} a_l,j,k

    Args:
        regions: M, the last positions.

    Shapes:
        weights: a (La, U, K), of one sentence without the padding of its target
        returns: (La, U), 0..1
    """
    return weights[:, :, weights.shape[2] - regions :].sum(axis=2)


def mean_mass(
    shares: Sequence[np.ndarray], visible: Sequence[tuple[int, int]], *, samples: int = 1000, seed: int = 1
) -> Mass:
    """The mean share per token of every layer, with what chance in the choice of sentences could make of it.

        mean_l = Σ_s Σ_j m_s,l,j / Σ_s U_s

    Long sentences count more, in the mean and in each draw: sentences are drawn with replacement, whole, because the
    tokens of a sentence share its picture. Sentences without a region are left out.

    Args:
        shares: of each sentence, as `mass_on_regions` gives them.
        visible: of each sentence, how many positions of text and how many regions aren't masked.
        samples: number of draws.
        seed: of the draws.

    Shapes:
        shares: (La, U) each, U of the sentence

    Raises:
        ValueError: not as many pairs as sentences, or no sentence has a region and a token.
    """
    if len(shares) != len(visible):
        raise ValueError(f"{len(shares)} sentences have {len(visible)} numbers of what is visible")
    kept = [number for number, (_, regions) in enumerate(visible) if regions and shares[number].shape[1]]
    if not kept:
        raise ValueError(f"none of {len(shares)} sentences has a region and a token, so there is no share to measure")
    sums = np.stack([shares[number].sum(axis=1, dtype=np.float64) for number in kept])  # (S, La)
    tokens = np.array([shares[number].shape[1] for number in kept])  # (S,)
    even = np.array([visible[number][1] / sum(visible[number]) for number in kept])  # (S,)
    drawn = _draws(sums, tokens, samples, seed)
    low, high = middle_of(drawn)
    total = int(tokens.sum())
    mean = sums.sum(axis=0) / total
    return Mass(mean, low, high, float(even @ tokens / total), total, len(kept), len(shares) - len(kept))


def compare_mass(
    shares: Sequence[np.ndarray], others: Sequence[np.ndarray], *, samples: int = 1000, seed: int = 1
) -> list[PairedComparison]:
    """The difference of each layer's mean share, of the same tokens twice: with other images, for instance.

    Shapes:
        shares, others: (La, U) each, of the same sentences

    Raises:
        ValueError: they are of other sentences.
    """
    if [each.shape for each in shares] != [each.shape for each in others]:
        raise ValueError("shares that are compared should be of the same tokens, but are of other numbers of them")
    tokens = np.array([each.shape[1] for each in shares])  # (S,)
    sides = []
    for side in (shares, others):
        sums = np.stack([each.sum(axis=1, dtype=np.float64) for each in side])  # (S, La)
        drawn = _draws(sums, tokens, samples, seed)
        sides.append([ResampledScore(float(of.sum() / tokens.sum()), k) for of, k in zip(sums.T, drawn.T)])
    return [compare_draws(one, other) for one, other in zip(*sides)]


def _draws(sums: np.ndarray, tokens: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Mean share per token on each draw of the sentences: sums (S, La), tokens (S,) -> (samples, La)."""
    drawn = np.empty((samples, sums.shape[1]))
    for k, chosen in enumerate(draw_sentences(len(sums), samples, seed)):
        drawn[k] = sums[chosen].sum(axis=0) / tokens[chosen].sum()
    return drawn


def mass_on_boxes(weights: np.ndarray, images: int, regions: int) -> np.ndarray:
    """Where on its pictures each token looks: what falls on each region, of what falls on regions at all.

    An absent region, whose attention is 0, keeps 0. A token that looks at no region has 0 everywhere.

    Args:
        images: N.
        regions: R of an image; the last N·R positions are theirs, image by image.

    Shapes:
        weights: (…, U, K), of one layer or several
        returns: (…, U, N, R), each token's sum is 1, or 0
    """
    on_regions = weights[..., weights.shape[-1] - images * regions :].astype(np.float64)
    whole = on_regions.sum(axis=-1, keepdims=True)
    shares = np.divide(on_regions, whole, out=np.zeros_like(on_regions), where=whole > 0)
    return shares.reshape(*weights.shape[:-1], images, regions)
