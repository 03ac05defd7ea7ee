"""Two systems of several seeds each, scored on the same draws of the sentences: each pair's test, and that of all."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .intervals import ResampledScore
from .seeds import compare_over_seeds
from .significance import compare_draws

PAIRED = "paired bootstrap, p_value: share of resamplings where the hypothesis doesn't score higher"
OVER_SEEDS = "t-test over seeds and sentences, two-sided"

SeedScores = Mapping[str, ResampledScore]  # metric -> a seed's score on the whole set and on the draws


def arrays_of_draws(systems: Mapping[str, Sequence[SeedScores]]) -> dict[str, np.ndarray]:
    """What `resampled.npz` holds: `SYSTEM.METRIC` -> (seeds, K)."""
    return {
        f"{system}.{metric}": np.stack([seed[metric].drawn for seed in seeds])
        for system, seeds in systems.items()
        for metric in seeds[0]
    }


def compare_systems(hypothesis: Sequence[SeedScores], twin: Sequence[SeedScores], sentences: int) -> dict[str, Any]:
    """Koehn's test of each seed against its twin, and the test over seeds and sentences where there are several.

    Args:
        hypothesis: n seeds of one system.
        twin: as many of the other.
        sentences: S, size of the test set.

    Returns:
        `pairs`, one for each seed, and `over_seeds` (None for a single seed, or a single draw), both by metric, and
        what the tests are called.
    """
    pairs = [
        {metric: compare_draws(one[metric], other[metric])._asdict() for metric in one}
        for one, other in zip(hypothesis, twin, strict=True)
    ]
    over_seeds = {}
    for metric, first in hypothesis[0].items():
        if len(pairs) > 1 and len(first.drawn) > 1:
            deltas = np.array([pair[metric]["delta"] for pair in pairs])
            drawn = np.stack([one[metric].drawn - other[metric].drawn for one, other in zip(hypothesis, twin)])
            over_seeds[metric] = compare_over_seeds(deltas, drawn, sentences)._asdict()
    return {"test": PAIRED, "pairs": pairs, "over_seeds_test": OVER_SEEDS, "over_seeds": over_seeds or None}
