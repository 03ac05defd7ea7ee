"""Is one system better than another, over training seeds and sentences alike? One test, and Holm for several.

One seed says little, and so does one sentence: both are drawn from many. With d_i the difference of seed i to its twin
on the whole test set, d its mean over n seeds, and d_i^k the same on the k-th resampling of the sentences, which is the
same for all seeds:

    V_seeds     = s^2(d_1 … d_n) / n                          what varies with the seed, and within seeds
    V_sentences = Var_k(mean_i d_i^k)                         what varies with the sentence, and within sentences
    V_both      = (mean_i Var_k(d_i^k) - V_sentences) / (n - 1)     what is in both: seed by sentence
    V           = max(V_seeds + V_sentences - V_both, V_seeds, V_sentences)
    t           = d / sqrt V,   df = V^2 / (V_seeds^2 / (n - 1) + V_sentences^2 / (S - 1))

That both have to be random is Clark's point (1973, *The language-as-fixed-effect fallacy*); V is the variance under
clustering in two ways (Cameron, Gelbach and Miller 2011, *Robust inference with multiway clustering*), with the
variances over sentences by the bootstrap, as BLEU is no mean; df is Satterthwaite's (1946). V is at least either of its
parts, since subtracting may leave less where there are few seeds. p is two-sided, and below 0.05 just where the 95 %
interval leaves 0 out, if anything varies.

Resampling seeds along with sentences (Owen 2007, *The pigeonhole bootstrap*) seems simpler, but 3 or 5 seeds are too
few to resample: where seeds differ, it calls no difference at all "significant" at 5 % in 24 and 16 of 100 simulations
(3 and 5 seeds), and this test in 5. A test over sentences alone is wrong in up to 84, one over seeds alone in up to 72.
Over mixtures of the three sources of variance this test was wrong in 1 to 6 of 100 with 5 seeds, 1 where all is in
V_both; in up to 8 with 3 seeds and up to 13 with 2, both where V_seeds is 10 to 100 times V_sentences: df is estimated,
and too high where the few seeds happen to lie close together (`tests/analysis/test_seeds.py` has smaller such
simulations).

Where nothing varies, systems differ by the same amount on every sentence: p is the sign test's over the sentences,
2^(1 - S), which a few sentences don't bring below 0.05; the interval has no width.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class SeedsTest(NamedTuple):
    """A system's difference to its twin over n seeds, by this module's equation.

    Attributes:
        delta: mean over the seeds, on the whole test set.
        deltas: each seed's.
        low: of the 95 % interval of `delta`.
        high: of the same.
        p_value: two-sided; of no difference.
        degrees_of_freedom: of Student's distribution; None where nothing varies, with seeds nor sentences.
        seeds: n. With one seed, its own spread is unknown, and the test is of the sentences alone.
    """

    delta: float
    deltas: list[float]
    low: float
    high: float
    p_value: float
    degrees_of_freedom: float | None
    seeds: int


_ROUNDING = 1e-9  # of a score


def compare_over_seeds(deltas: np.ndarray, resampled: np.ndarray, sentences: int) -> SeedsTest:
    """Test the differences of several seeds.

    Args:
        deltas: difference of each of n seeds to its twin, on the whole test set.
        resampled: the same on K resamplings of the sentences, the same ones for all seeds.
        sentences: S, size of the test set.

    Shapes:
        deltas: (n,)
        resampled: (n, K), K at least 2

    Raises:
        ValueError: the shapes don't fit.
    """
    from scipy.stats import t as student

    if deltas.ndim != 1 or resampled.shape[:1] != deltas.shape or resampled.ndim != 2 or resampled.shape[1] < 2:
        raise ValueError(f"expected (n,) and (n, K) with K of 2 or more, but got {deltas.shape} and {resampled.shape}")
    n, mean = len(deltas), float(deltas.mean())
    of_sentences = float(resampled.mean(axis=0).var(ddof=1))
    of_seeds = of_both = 0.0
    if n > 1:
        of_seeds = float(deltas.var(ddof=1)) / n
        of_both = max(0.0, (float(resampled.var(axis=1, ddof=1).mean()) - of_sentences) / (n - 1))
    variance = max(of_seeds + of_sentences - of_both, of_seeds, of_sentences)
    # By their range: numpy's variance of numbers that are alike is a rounding error.
    still = max(np.ptp(resampled, axis=1).max(), np.ptp(deltas)) <= _ROUNDING * max(1.0, float(abs(deltas).max()))
    if still or not variance:  # systems that are the same everywhere, or differ by the same amount everywhere
        return SeedsTest(mean, deltas.tolist(), mean, mean, 2.0 ** (1 - sentences) if mean else 1.0, None, n)
    shares = of_seeds**2 / max(n - 1, 1) + of_sentences**2 / max(sentences - 1, 1)
    freedom = variance**2 / shares
    error = variance**0.5
    half = float(student.ppf(0.975, freedom)) * error
    p_value = 2 * float(student.sf(abs(mean) / error, freedom))
    return SeedsTest(mean, deltas.tolist(), mean - half, mean + half, p_value, freedom, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several comparisons, corrected so that one false claim among all of them is as rare as each says.

        p'_(j) = max_{i <= j} min(1, (m - i + 1) p_(i)),   p_(1) <= … <= p_(m)        (Holm 1979)

    >>> holm([0.04, 0.01, 0.03])  # 3 x 0.01; 2 x 0.03; 1 x 0.04, but not below the one before
    [0.06, 0.03, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, number in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[number]))
        corrected[number] = largest
    return corrected
