"""Paired bootstrap resampling (Koehn 2004): is one set of translations better than another, or was the test set kind?

    for k = 1..K:  draw S sentences with replacement;  d_k = score(hypothesis on them) - score(twin on them)
    p = (1 + |{k: d_k <= 0}|) / (K + 1)

so p is the chance that the hypothesis doesn't beat its twin: one-sided, as Koehn's test. Both systems are scored on
the same draws. 95 % of all d_k lie in `low`..`high`.

Every score here is a function of sums over sentences, so a draw only adds up rows of counts. Counts and scores are
sacreBLEU's own, by the methods that its own test (`sacrebleu --paired-bs`) uses; that test itself isn't used, because
it is two-sided and says the spread of each system instead of their difference.
"""

from typing import NamedTuple

import numpy as np

from ..errors import InputError
from .intervals import ResampledScore, interval_of
from .translation_scores import CONVENTIONS, TextForms, sacrebleu_metric

_MOST_DRAWN = 5 * 10**8  # numbers of sentences, 4 GB


class PairedComparison(NamedTuple):
    """Difference hypothesis - twin on the whole set, its 95 % interval, and the p-value of this module's head."""

    delta: float
    low: float
    high: float
    p_value: float


def sentence_statistics(hypotheses: TextForms, references: TextForms, *, language: str) -> dict[str, np.ndarray]:
    """Counts of every sentence for every score of `CONVENTIONS`.

    For BLEU: hypothesis length, reference length, 4 numbers of matching and 4 of all n-grams. For chrF, of n = 1..6
    characters: numbers of the hypothesis's, the reference's and the common n-grams.

    Shapes:
        returns: (S, 10) int64 for each BLEU, (S, 18) for chrF
    """
    counts = {}
    for name, convention in CONVENTIONS.items():
        ours, theirs = getattr(hypotheses, convention.form), getattr(references, convention.form)
        rows = sacrebleu_metric(name, language)._extract_corpus_statistics(ours, [theirs])
        counts[name] = np.array(rows, dtype=np.int64)
    return counts


def score_from_statistics(name: str, totals: np.ndarray, *, language: str) -> np.ndarray:
    """The score of `CONVENTIONS` called `name`, 0..100, from each row of summed counts.

    Shapes:
        totals: (K, columns)
        returns: (K,)
    """
    metric = sacrebleu_metric(name, language)
    return np.array([metric._compute_score_from_stats(row).score for row in totals.tolist()])


def draw_sentences(sentences: int, samples: int, seed: int) -> np.ndarray:
    """The draws of the bootstrap: in each of `samples` rows, sentence numbers drawn with replacement.

    Shapes:
        returns: (K, S) int64

    Raises:
        InputError: they are more than fit into memory.
    """
    if sentences * samples > _MOST_DRAWN:
        raise InputError(
            f"bootstrap samples should be at most {_MOST_DRAWN // sentences} of {sentences} sentences, as all draws "
            f"are kept, but are {samples}.",
            "bootstrap_samples",
        )
    return np.random.default_rng(seed).integers(0, sentences, size=(samples, sentences))


def resample_scores(
    hypothesis: TextForms, references: TextForms, *, language: str, samples: int = 1000, seed: int = 1
) -> dict[str, ResampledScore]:
    """Every score of a system, on the whole set and on each draw of the sentences.

    Args:
        hypothesis: its S sentences.
        references: what they should be.
        language: target language code.
        samples: K, number of draws.
        seed: of the draws; another system of as many sentences gets the same ones.

    Raises:
        ValueError: the two don't have the same S.
    """
    sentences = len(references.tokens)
    if len(hypothesis.tokens) != sentences:
        raise ValueError(
            f"a system and the references need the same sentences, but have {len(hypothesis.tokens)} and {sentences}"
        )
    found = sentence_statistics(hypothesis, references, language=language)
    sums = {name: np.empty((samples, counts.shape[-1]), np.int64) for name, counts in found.items()}
    for k, drawn in enumerate(draw_sentences(sentences, samples, seed)):
        times_drawn = np.bincount(drawn, minlength=sentences)  # (S,)
        for name, counts in found.items():
            sums[name][k] = times_drawn @ counts
    scores = {}
    for name, counts in found.items():
        (whole,) = score_from_statistics(name, counts.sum(axis=0, keepdims=True), language=language)
        scores[name] = ResampledScore(float(whole), score_from_statistics(name, sums[name], language=language))
    return scores


def resample_mean(scores: np.ndarray, *, samples: int = 1000, seed: int = 1) -> ResampledScore:
    """A score that is the mean of a score of each sentence, on the same draws as those of `resample_scores`.

    Shapes:
        scores: (S,)
    """
    drawn = draw_sentences(len(scores), samples, seed)
    return ResampledScore(float(scores.mean()), scores[drawn].mean(axis=1))


def compare_draws(hypothesis: ResampledScore, twin: ResampledScore) -> PairedComparison:
    """Koehn's test of two systems that were scored on the same draws."""
    deltas = hypothesis.drawn - twin.drawn  # (K,)
    p_value = (1 + np.count_nonzero(deltas <= 0)) / (len(deltas) + 1)
    return PairedComparison(*interval_of(ResampledScore(hypothesis.whole - twin.whole, deltas)), float(p_value))


def paired_bootstrap(
    hypothesis: TextForms, twin: TextForms, references: TextForms, *, language: str, samples: int = 1000, seed: int = 1
) -> dict[str, PairedComparison]:
    """Compare two systems by this module's equation, for every score, on the same draws.

    Args:
        hypothesis: the S sentences of one system.
        twin: the other system's, of the same sentences.
        references: what both should be.
        language: target language code.
        samples: K, number of draws.
        seed: of the draws.

    Raises:
        ValueError: the three don't have the same S.
    """
    if not len(hypothesis.tokens) == len(twin.tokens) == len(references.tokens):
        raise ValueError(
            f"both systems and the references need the same sentences, but have {len(hypothesis.tokens)}, "
            f"{len(twin.tokens)} and {len(references.tokens)}"
        )
    ours, theirs = (
        resample_scores(system, references, language=language, samples=samples, seed=seed)
        for system in (hypothesis, twin)
    )
    return {name: compare_draws(ours[name], theirs[name]) for name in ours}
