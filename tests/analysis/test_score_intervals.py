"""The interval around one system's score."""

import numpy as np
import pytest

from visual_grounding.analysis.score_intervals import interval_of, score_intervals
from visual_grounding.analysis.significance import draw_sentences, paired_bootstrap
from visual_grounding.analysis.translation_scores import CONVENTIONS, score_forms, text_forms

REFERENCES = [
    "Ein Hund läuft im Park .",
    "Zwei Katzen schlafen heute .",
    "Ein Mann liest ein Buch .",
    "Sie lacht laut .",
]
HYPOTHESES = [
    "Ein Hund läuft im Garten .",
    "Zwei Katzen schlafen heute .",
    "Ein Mann liest eine Zeitung .",
    "Er lacht .",
]


def test_interval_is_that_of_a_naive_loop() -> None:
    ours, right = text_forms(HYPOTHESES), text_forms(REFERENCES)
    found = score_intervals(ours, right, language="de", samples=40, seed=3)
    assert list(found) == list(CONVENTIONS)
    for name in CONVENTIONS:
        resampled = []
        for drawn in draw_sentences(4, 40, 3):
            sides = [text_forms([lines[i] for i in drawn]) for lines in (HYPOTHESES, REFERENCES)]
            resampled.append(getattr(score_forms(*sides), name))
        assert found[name].value == pytest.approx(getattr(score_forms(ours, right), name))
        assert found[name][1:] == pytest.approx(np.percentile(resampled, [2.5, 97.5]))
        assert found[name].low < found[name].value < found[name].high


def test_interval_of_a_perfect_system_has_no_width() -> None:
    right = text_forms(REFERENCES)
    assert score_intervals(right, right, language="de", samples=10)["tokenised_bleu"] == pytest.approx((100, 100, 100))


def test_draws_are_those_of_the_paired_test() -> None:
    """Against a twin that gets nothing right, the difference is the score itself."""
    ours, right = text_forms(HYPOTHESES), text_forms(REFERENCES)
    nothing = text_forms(["x"] * 4)
    paired = paired_bootstrap(ours, nothing, right, language="de", samples=30, seed=2)["tokenised_bleu"]
    alone = score_intervals(ours, right, language="de", samples=30, seed=2)["tokenised_bleu"]
    assert (paired.delta, paired.low, paired.high) == pytest.approx(alone)


def test_interval_is_the_middle_of_what_was_resampled() -> None:
    assert interval_of(5.0, np.arange(1001.0)) == (5.0, 25.0, 975.0)
