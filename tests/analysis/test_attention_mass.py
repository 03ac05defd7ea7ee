"""Shares of attention on regions, by hand and against naive loops."""

import numpy as np
import pytest

from visual_grounding.analysis.attention_mass import AttentionMass, even_share, mean_share, share_on_regions
from visual_grounding.analysis.significance import draw_sentences


def test_share_is_the_weight_of_the_last_positions() -> None:
    attention = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3))  # (B, U, L + M)
    found = share_on_regions(attention, 2)
    for sentence in range(2):
        for token in range(3):
            assert found[sentence, token] == pytest.approx(sum(attention[sentence, token, m] for m in (3, 4)))
    assert share_on_regions(attention, 0).tolist() == np.zeros((2, 3)).tolist()
    assert share_on_regions(attention, 5) == pytest.approx(np.ones((2, 3)))


def test_even_share_counts_what_is_there() -> None:
    absent = np.array([[0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1]], bool)
    assert even_share(absent, 2) == pytest.approx([1 / 4, 2 / 6, 0])


def test_mean_share_counts_every_token_alike_and_draws_whole_sentences() -> None:
    sums, tokens = np.array([1.0, 0.5, 3.0]), np.array([2, 1, 10])
    found = mean_share(sums, tokens, samples=20, seed=4)
    assert found.whole == pytest.approx(4.5 / 13)
    for drawn, share in zip(draw_sentences(3, 20, 4), found.drawn):
        assert share == pytest.approx(sum(sums[s] for s in drawn) / sum(tokens[s] for s in drawn))


def test_some_sentences_of_a_mass() -> None:
    mass = AttentionMass(
        np.array([2, 5, 9]), np.arange(6.0).reshape(3, 2), np.array([7, 8, 9]), np.array([0.1, 0.2, 0.3])
    )
    some = mass.of([9, 2])
    assert (some.rows.tolist(), some.shares.tolist(), some.tokens.tolist()) == ([9, 2], [[4, 5], [0, 1]], [9, 7])
    assert some.even.tolist() == [0.3, 0.1]
