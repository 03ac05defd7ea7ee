"""Perplexity: by hand in the doctest; here draws against a naive twin."""

import numpy as np
import pytest

from visual_grounding.analysis.perplexity import perplexity, resample_perplexity
from visual_grounding.analysis.significance import draw_sentences


def test_draws_are_scored_as_sets_of_their_own():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 5, 30)
    bits = words * rng.random(30) * 6
    draws = draw_sentences(30, 7, seed=2)
    found = resample_perplexity(bits, words, draws)
    assert found.whole == pytest.approx(2 ** (sum(bits) / sum(words)))
    for drawn, draw in zip(found.drawn, draws):
        expected = 2 ** (sum(bits[i] for i in draw) / sum(words[i] for i in draw))
        assert drawn == pytest.approx(expected)


def test_draws_without_a_word_are_one_not_nan():
    assert perplexity(np.zeros(3), np.zeros(3)).item() == 1
