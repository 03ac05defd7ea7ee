"""What the quickstart's streams do by themselves: features are standardised, and senses counted."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "quickstart"))
from score_streams import words_right
from standardise import standardised


def test_standardised_features_have_mean_0_and_variance_1_over_the_measured_images_alone():
    rng = np.random.default_rng(0)
    features = rng.normal(3, 0.2, (6, 4, 5)).astype(np.float16)
    features[:, :, 2] = 7  # says nothing
    features[5] += 100  # isn't measured
    found = standardised(features, np.arange(5))
    assert found.shape == features.shape and found.dtype == np.float16
    varied = found[:5][..., [0, 1, 3, 4]].astype(float)
    np.testing.assert_allclose(varied.mean(axis=(0, 1)), 0, atol=2e-3)
    np.testing.assert_allclose(varied.std(axis=(0, 1)), 1, atol=2e-3)
    assert (found[:5, :, 2] == 0).all() and (found[5] > 90).all()


@pytest.mark.parametrize(
    ("hypothesis", "right"),
    [
        ("die Fledermaus ist hier .", 1),
        ("der Schläger ist hier .", 0),
        ("Fledermaus oder Schläger .", 0),  # both senses are no answer
        ("das Ding ist hier .", 0),
    ],
)
def test_words_right_wants_the_sense_of_the_reference_and_not_the_other(hypothesis: str, right: int):
    rows = (["a bat is here .", "a cat is here ."], ["eine Fledermaus ist hier .", "eine Katze ist hier ."])
    assert words_right(*rows, [hypothesis, "nichts"]) == (right, 1)


def test_words_right_refuses_translations_of_other_sentences():
    with pytest.raises(ValueError, match="shorter"):
        words_right(["a bat ."] * 2, ["die Fledermaus ."] * 2, ["die Fledermaus ."])
