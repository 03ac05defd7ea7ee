"""Paired bootstrap resampling (Koehn 2004): is one set of translations better than another, or was the test set kind?

    for k = 1..K:  draw S sentences with replacement;  d_k = score(hypothesis on them) - score(twin on them)
    p = (1 + |{k: d_k <= 0}|) / (K + 1)

so p is the chance that the hypothesis doesn't beat its twin: one-sided, as Koehn's test. Both systems are scored on
the same draws. 95 % of all d_k lie in `low`..`high`.

Every score here is a function of sums over sentences, so a draw only adds up rows of counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .translation_scores import CONVENTIONS, TextForms, sacrebleu_metric

CHRF_ORDER = 6
CHRF_BETA = 2


class PairedComparison(NamedTuple):
    """Difference hypothesis - twin on the whole set, its 95 % interval, and the p-value of this module's head."""

    delta: float
    low: float
    high: float
    p_value: float


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str], *, name: str, language: str) -> np.ndarray:
    """Hypothesis length, reference length, 4 numbers of matching and 4 of all n-grams, for each sentence.

    Args:
        hypotheses: S sentences.
        references: S sentences.
        name: which BLEU of `CONVENTIONS` counts: it decides the tokenizer.
        language: target language code.

    Shapes:
        returns: (S, 10) int64
    """
    from sacrebleu.metrics import BLEU

    tokenizer = getattr(sacrebleu_metric(name, language), "tokenizer")  # noqa: B009  the annotation is the base class
    counter = BLEU(tokenize="none", effective_order=True, force=True)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = counter.sentence_score(tokenizer(hypothesis.rstrip()), [tokenizer(reference.rstrip())])
        rows.append([score.sys_len, score.ref_len, *score.counts, *score.totals])
    return np.array(rows, dtype=np.int64).reshape(len(rows), 10)


def bleu_from_statistics(totals: np.ndarray, *, smooth: bool) -> np.ndarray:
    """Corpus BLEU, 0..100, from summed counts.

        BLEU = min(1, exp(1 - r / h)) · (p_1 p_2 p_3 p_4) ^ (1/4)

    h, r -> lengths. Where no n-gram matches, p_n is 0; with smoothing the z-th such order gets 1 / (2^z total_n),
    unless nothing matches at all.

    Shapes:
        totals: (..., 10), columns as in `bleu_statistics`
        returns: (...)
    """
    totals = np.asarray(totals, dtype=np.float64)
    hypothesis_length, reference_length = totals[..., 0], totals[..., 1]
    matches, ngrams = totals[..., 2:6], totals[..., 6:10]
    counted = matches
    if smooth:
        zeros_so_far = np.cumsum(matches == 0, axis=-1)
        counted = np.where(matches == 0, 0.5**zeros_so_far, matches)
    possible = (ngrams > 0).all(axis=-1) & (counted > 0).all(axis=-1) & (matches > 0).any(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):  # those places are 0 by `possible`
        log_precision = (np.log(counted) - np.log(ngrams)).mean(axis=-1)
        log_brevity = np.minimum(0.0, 1 - reference_length / hypothesis_length)
        return np.where(possible, 100 * np.exp(log_brevity + log_precision), 0.0)


def chrf_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Numbers of the hypothesis's, the reference's and the common character n-grams, n = 1..6, for each sentence.

    White space doesn't count. As in sacreBLEU, a hypothesis's n-grams don't count where the reference has none.

    Shapes:
        returns: (S, 18) int64, three columns for each n
    """
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        row = []
        for n in range(1, CHRF_ORDER + 1):
            ours, theirs = _character_ngrams(hypothesis, n), _character_ngrams(reference, n)
            row += [ours.total() if theirs else 0, theirs.total(), (ours & theirs).total()]
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(len(rows), 3 * CHRF_ORDER)


def _character_ngrams(sentence: str, n: int) -> Counter[str]:
    letters = "".join(sentence.split())
    return Counter(letters[start : start + n] for start in range(len(letters) - n + 1))


def chrf_from_statistics(totals: np.ndarray) -> np.ndarray:
    """Corpus chrF2 (Popović 2015), 0..100, from summed counts.

        chrF = (1 + β²) P R / (β² P + R),  β = 2

    P, R -> mean precision and recall over the orders n that both sides have.

    Shapes:
        totals: (..., 18), columns as in `chrf_statistics`
        returns: (...)
    """
    totals = np.asarray(totals, dtype=np.float64)
    ours, theirs, common = totals[..., 0::3], totals[..., 1::3], totals[..., 2::3]  # (..., 6) each
    used = (ours > 0) & (theirs > 0)
    orders = np.maximum(used.sum(axis=-1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # those places are 0 by `used` and by `precision + recall`
        precision = np.where(used, common / ours, 0.0).sum(axis=-1) / orders
        recall = np.where(used, common / theirs, 0.0).sum(axis=-1) / orders
        score = (1 + CHRF_BETA**2) * precision * recall / (CHRF_BETA**2 * precision + recall)
    return np.where(precision + recall > 0, 100 * score, 0.0)


def sentence_statistics(hypotheses: TextForms, references: TextForms, *, language: str) -> dict[str, np.ndarray]:
    """Counts of every sentence for every score of `CONVENTIONS`.

    Shapes:
        returns: (S, 10) for each BLEU, (S, 18) for chrF
    """
    counts = {}
    for name, convention in CONVENTIONS.items():
        ours, theirs = getattr(hypotheses, convention.form), getattr(references, convention.form)
        if name == "chrf":
            counts[name] = chrf_statistics(ours, theirs)
        else:
            counts[name] = bleu_statistics(ours, theirs, name=name, language=language)
    return counts


def score_from_statistics(name: str, totals: np.ndarray) -> np.ndarray:
    """The score of `CONVENTIONS` called `name`, from summed counts (..., columns) -> (...)."""
    if name == "chrf":
        return chrf_from_statistics(totals)
    return bleu_from_statistics(totals, smooth=name == "sacrebleu")


def draw_sentences(sentences: int, samples: int, seed: int) -> np.ndarray:
    """The draws of the bootstrap: in each of `samples` rows, sentence numbers drawn with replacement.

    Shapes:
        returns: (K, S) int64
    """
    return np.random.default_rng(seed).integers(0, sentences, size=(samples, sentences))


def paired_bootstrap(
    hypothesis: Mapping[str, np.ndarray], twin: Mapping[str, np.ndarray], *, samples: int = 1000, seed: int = 1
) -> dict[str, PairedComparison]:
    """Compare two systems by this module's equation, for every score, on the same draws.

    Args:
        hypothesis: counts of the S sentences of one system, as made by `sentence_statistics`.
        twin: the other system's, on the same sentences.
        samples: K, number of draws.
        seed: of the draws.

    Raises:
        ValueError: the two don't have the same scores or the same S.
    """
    shapes = {name: counts.shape for name, counts in hypothesis.items()}
    if shapes != {name: counts.shape for name, counts in twin.items()}:
        raise ValueError(f"both systems need counts of the same sentences, but the hypothesis has {shapes}")
    sentences = next(iter(shapes.values()))[0]
    both = {name: np.stack([hypothesis[name], twin[name]]) for name in shapes}  # (2, S, columns)
    sums = {name: np.empty((2, samples, counts.shape[-1]), np.int64) for name, counts in both.items()}
    for k, drawn in enumerate(draw_sentences(sentences, samples, seed)):
        times_drawn = np.bincount(drawn, minlength=sentences)  # (S,)
        for name, counts in both.items():
            sums[name][:, k] = times_drawn @ counts
    comparisons = {}
    for name, counts in both.items():
        ours, theirs = score_from_statistics(name, counts.sum(axis=1))
        deltas = np.subtract(*score_from_statistics(name, sums[name]))  # (K,)
        low, high = np.percentile(deltas, [2.5, 97.5])
        p_value = (1 + np.count_nonzero(deltas <= 0)) / (samples + 1)
        comparisons[name] = PairedComparison(float(ours - theirs), float(low), float(high), float(p_value))
    return comparisons
