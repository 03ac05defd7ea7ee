"""Shares of attention on regions: by hand, their mean and interval, and where on a picture they are."""

import numpy as np
import pytest

from visual_grounding.analysis.attention_mass import compare_mass, mass_on_boxes, mass_on_regions, mean_mass


def test_share_on_regions_by_hand() -> None:
    """Two layers, one token, two positions of text and two regions."""
    weights = np.array([[[0.5, 0.2, 0.1, 0.2]], [[0.0, 0.0, 1.0, 0.0]]])
    np.testing.assert_allclose(mass_on_regions(weights, 2), [[0.3], [1.0]])
    np.testing.assert_allclose(mass_on_regions(weights, 0), [[0.0], [0.0]])


def test_mean_is_per_token_and_leaves_sentences_without_regions_out() -> None:
    """Three tokens of 0.2, one of 0.6: 0.3, not 0.4. Even: 2 of 4 for three tokens, 1 of 5 for one: 0.425."""
    shares = [np.full((1, 3), 0.2), np.full((1, 1), 0.6), np.zeros((1, 5))]
    found = mean_mass(shares, [(2, 2), (4, 1), (6, 0)])
    np.testing.assert_allclose(found.mean, [0.3])
    assert found.even == pytest.approx(0.425)
    assert (found.tokens, found.sentences, found.without_regions) == (4, 2, 1)
    # Both sentences, or one of them twice: the draws are 0.2, 0.3 and 0.6.
    np.testing.assert_allclose([found.low, found.high], [[0.2], [0.6]])


def test_interval_is_that_of_a_naive_bootstrap_and_holds_the_truth() -> None:
    rng = np.random.default_rng(3)
    shares = [rng.beta(2, 5, (2, int(rng.integers(1, 9)))) for _ in range(60)]
    found = mean_mass(shares, [(5, 3)] * 60, samples=200, seed=7)
    draws = np.random.default_rng(7).integers(0, 60, size=(200, 60))
    naive = np.array([np.concatenate([shares[s] for s in draw], axis=1).mean(axis=1) for draw in draws])
    np.testing.assert_allclose([found.low, found.high], np.percentile(naive, [2.5, 97.5], axis=0))
    assert (found.low < 2 / 7).all() and (found.high > 2 / 7).all()  # the mean of that distribution
    assert ((found.high - found.low) < 0.1).all()
    again = mean_mass(shares, [(5, 3)] * 60, samples=200, seed=7)
    np.testing.assert_array_equal(found.low, again.low)


def test_sentences_that_share_their_tokens_fate_have_a_wider_interval() -> None:
    """Twenty tokens that agree are one observation: sentences are drawn, not tokens."""
    alike = [np.full((1, 20), value) for value in (0.1, 0.9) * 10]
    apart = [np.tile([[0.1, 0.9]], 10) for _ in range(20)]
    wide, narrow = (mean_mass(shares, [(2, 2)] * 20) for shares in (alike, apart))
    np.testing.assert_allclose(wide.mean, narrow.mean)
    assert wide.high - wide.low > 0.2 and narrow.high - narrow.low < 1e-9


def test_differences_are_of_the_same_draws() -> None:
    """With another image every token gives regions 0.1 less: so does every draw, however the sentences differ."""
    rng = np.random.default_rng(5)
    shares = [rng.uniform(0.2, 0.9, (2, int(rng.integers(1, 9)))) for _ in range(30)]
    less = [each - np.array([[0.1], [0.0]]) for each in shares]
    first, second = compare_mass(shares, less, samples=50)
    np.testing.assert_allclose(first, [0.1, 0.1, 0.1, 1 / 51])
    np.testing.assert_allclose(second, [0, 0, 0, 1])
    with pytest.raises(ValueError, match="should be of the same tokens"):
        compare_mass(shares, shares[1:])


def test_boxes_share_what_falls_on_regions() -> None:
    weights = np.array([[0.6, 0.1, 0.3, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]], np.float32)
    found = mass_on_boxes(weights, 2, 2)
    assert found.shape == (2, 2, 2)
    np.testing.assert_allclose(found, [[[0.25, 0.75], [0, 0]], [[0, 0], [0, 0]]], rtol=1e-6)
    several = mass_on_boxes(np.stack([weights, weights]), 1, 4)
    np.testing.assert_allclose(several[1, :, 0], found.reshape(2, 4))


def test_nothing_to_measure_is_said() -> None:
    with pytest.raises(ValueError, match="none of 2 sentences has a region and a token"):
        mean_mass([np.zeros((1, 3)), np.zeros((1, 0))], [(3, 0), (3, 2)])
    with pytest.raises(ValueError, match="1 sentences have 2 numbers of what is visible"):
        mean_mass([np.zeros((1, 3))], [(3, 0), (3, 2)])
