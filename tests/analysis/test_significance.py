"""Scores from summed counts against sacreBLEU's corpus scores, and what the bootstrap must and must not find."""

import numpy as np
import pytest

from visual_grounding.analysis.significance import (
    draw_sentences,
    paired_bootstrap,
    resample_mean,
    resample_scores,
    score_from_statistics,
    sentence_statistics,
)
from visual_grounding.analysis.translation_scores import CONVENTIONS, sacrebleu_metric, text_forms
from visual_grounding.errors import InputError

WORDS = ["ein", "eine", "Hund", "Mädchen", "läuft", "im", "Park", "auf", "der", "Straße", "mit", ",", "und", "rote"]


def corpus(size: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join([*rng.choice(WORDS, rng.integers(1, 12)), "."]) for _ in range(size)]


def worsened(sentences: list[str], share: float, seed: int) -> list[str]:
    """Replace a share of the words; drop one sentence in ten altogether."""
    rng = np.random.default_rng(seed)
    return [
        "" if rng.random() < 0.1 else " ".join(rng.choice(WORDS) if rng.random() < share else w for w in line.split())
        for line in sentences
    ]


def test_bootstrap_agrees_with_its_naive_twin() -> None:
    references = text_forms(corpus(30))
    ours, theirs = text_forms(worsened(corpus(30), 0.3, 1)), text_forms(worsened(corpus(30), 0.5, 2))
    result = paired_bootstrap(ours, theirs, references, language="de", samples=40, seed=3)
    compared = 0
    for name, convention in CONVENTIONS.items():
        metric = sacrebleu_metric(name, "de")
        hypotheses, twins, truth = (getattr(forms, convention.form) for forms in (ours, theirs, references))
        deltas = []
        for drawn in [np.arange(30), *draw_sentences(30, 40, 3)]:
            sample = [[side[number] for number in drawn] for side in (hypotheses, twins, truth)]
            scores = [metric.corpus_score(side, [sample[2]]).score for side in sample[:2]]
            deltas.append(scores[0] - scores[1])
        whole, resampled = deltas[0], deltas[1:]
        expected = (whole, *np.percentile(resampled, [2.5, 97.5]), (1 + sum(d <= 0 for d in resampled)) / 41)
        assert result[name] == pytest.approx(expected, abs=1e-6), name
        compared += 1
    assert compared == 4


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8, 1.0])
@pytest.mark.parametrize("name", list(CONVENTIONS))
def test_scores_from_counts_agree_with_sacrebleu_on_small_corpora(name: str, share: float) -> None:
    """One to three sentences: orders without a match, or without any n-gram, are common."""
    form = CONVENTIONS[name].form
    compared = 0
    for seed in range(12):
        truth = corpus(1 + seed % 3, seed)
        references, hypotheses = text_forms(truth), text_forms(worsened(truth, share, seed))
        counts = sentence_statistics(hypotheses, references, language="de")[name]
        expected = sacrebleu_metric(name, "de").corpus_score(getattr(hypotheses, form), [getattr(references, form)])
        found = score_from_statistics(name, counts.sum(axis=0, keepdims=True), language="de")
        assert found.tolist() == pytest.approx([expected.score], abs=1e-9)
        compared += 1
    assert compared == 12


def test_bleu_from_counts_by_hand() -> None:
    # lengths 9 and 10; matches 8 4 2 1 of 9 7 5 3 (the example of test_translation_scores)
    totals = np.array([[9, 10, 8, 4, 2, 1, 9, 7, 5, 3], [9, 10, 8, 4, 2, 0, 9, 7, 5, 3]])
    full = 100 * np.exp(1 - 10 / 9) * (8 / 9 * 4 / 7 * 2 / 5 * 1 / 3) ** 0.25
    smoothed = 100 * np.exp(1 - 10 / 9) * (8 / 9 * 4 / 7 * 2 / 5 * 0.5 / 3) ** 0.25
    assert score_from_statistics("tokenised_bleu", totals, language="de") == pytest.approx([full, 0])
    assert score_from_statistics("sacrebleu", totals, language="de") == pytest.approx([full, smoothed])


def test_chrf_from_counts_by_hand() -> None:
    # "a bc" against "abd": 1-grams a b c / a b d, 2 common of 3 and 3; 2-grams ab bc / ab bd, 1 of 2 and 2;
    # 3-grams abc / abd, 0 of 1 and 1; no longer ones. P = R = (2/3 + 1/2 + 0) / 3, so F is the same.
    forms = [text_forms([sentence], form="raw") for sentence in ("a bc", "abd")]
    counts = sentence_statistics(*forms, language="de")["chrf"]
    assert counts[0, :9].tolist() == [3, 3, 2, 2, 2, 1, 1, 1, 0]
    assert score_from_statistics("chrf", counts, language="de") == pytest.approx([100 * (2 / 3 + 1 / 2) / 3])


def test_bootstrap_finds_no_difference_between_equal_systems() -> None:
    ours, references = text_forms(worsened(corpus(20), 0.3, 1)), text_forms(corpus(20))
    result = paired_bootstrap(ours, ours, references, language="de", samples=50)
    assert set(result.values()) == {(0.0, 0.0, 0.0, 1.0)}


def test_bootstrap_finds_a_system_that_is_better_everywhere_and_its_mirror() -> None:
    better, worse = text_forms(corpus(50)), text_forms(worsened(corpus(50), 0.5, 1))
    forth = paired_bootstrap(better, worse, better, language="de", samples=99)
    back = paired_bootstrap(worse, better, better, language="de", samples=99)
    for name in CONVENTIONS:
        assert forth[name].p_value == 1 / 100
        assert back[name].p_value == 1
        assert forth[name].low > 0
        assert (forth[name].delta, forth[name].low, forth[name].high) == pytest.approx(
            (-back[name].delta, -back[name].high, -back[name].low)
        )


def test_bootstrap_repeats_with_its_seed_and_changes_with_another() -> None:
    texts = text_forms(worsened(corpus(40), 0.4, 1)), text_forms(worsened(corpus(40), 0.4, 2)), text_forms(corpus(40))
    first, again, other = (paired_bootstrap(*texts, language="de", samples=30, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first["chrf"].low != other["chrf"].low


def test_a_mean_over_sentences_is_resampled_on_the_same_draws() -> None:
    scores = np.array([0.0, 1.0, 5.0])
    found = resample_mean(scores, samples=20, seed=4)
    assert found.whole == 2
    assert found.drawn.tolist() == [scores[drawn].mean() for drawn in draw_sentences(3, 20, 4)]


def test_bootstrap_is_refused_when_the_systems_have_other_sentences() -> None:
    whole, shorter = text_forms(corpus(4)), text_forms(corpus(3))
    with pytest.raises(ValueError, match="need the same sentences, but have 4, 3 and 4"):
        paired_bootstrap(whole, shorter, whole, language="de")
    with pytest.raises(ValueError, match="need the same sentences, but have 3 and 4"):
        resample_scores(shorter, whole, language="de")


def test_more_draws_than_memory_holds_are_refused():
    with pytest.raises(InputError, match="samples should be at most 50000 of 10000 sentences, as all draws are"):
        draw_sentences(10_000, 1_000_000, 1)
    assert draw_sentences(10_000, 10, 1).shape == (10, 10_000)
