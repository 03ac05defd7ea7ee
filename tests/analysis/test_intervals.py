"""The interval around one system's score."""

import numpy as np
import pytest

from visual_grounding.analysis.intervals import ResampledScore, interval_of
from visual_grounding.analysis.significance import (
    compare_draws,
    draw_sentences,
    resample_mean,
    resample_scores,
)
from visual_grounding.analysis.translation_scores import score_forms, text_forms

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


def test_interval_is_the_middle_of_what_was_resampled() -> None:
    assert interval_of(ResampledScore(5.0, np.arange(1001.0))) == (5.0, 25.0, 975.0)


def test_interval_of_a_score_is_that_of_a_naive_loop() -> None:
    ours, right = text_forms(HYPOTHESES), text_forms(REFERENCES)
    found = interval_of(resample_scores(ours, right, language="de", samples=40, seed=3)["chrf"])
    resampled = []
    for drawn in draw_sentences(4, 40, 3):
        sides = [text_forms([lines[i] for i in drawn]) for lines in (HYPOTHESES, REFERENCES)]
        resampled.append(score_forms(*sides).chrf)
    assert found.value == pytest.approx(score_forms(ours, right).chrf)
    assert found[1:] == pytest.approx(np.percentile(resampled, [2.5, 97.5]))
    assert found.low < found.value < found.high


def test_interval_is_that_of_the_difference_to_nothing() -> None:
    ours, nothing = (resample_mean(np.array(scores), samples=50) for scores in ([0.2, 0.4, 0.9], [0.0, 0.0, 0.0]))
    assert compare_draws(ours, nothing)[:3] == pytest.approx(interval_of(ours))
