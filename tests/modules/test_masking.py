"""Masking: by hand, naive, and statistically."""

import numpy as np
import pytest

from visual_grounding.modules.masking import (
    BERT_REPLACEMENT,
    KEPT,
    LEFT,
    MASK_ALONE,
    MASKED,
    RANDOM,
    Replacement,
    draw_fates,
    generator_of,
    mask_words,
    swap_regions,
)

P = 0.15
PLACES = 200_000


class Draws:
    """A generator that draws what it is told."""

    def __init__(self, *draws: float) -> None:
        self.draws = draws

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.array(self.draws).reshape(shape)


def within_binomial_bounds(count: int, places: int, probability: float) -> bool:
    """Five standard deviations: a right frequency misses them once in two million seeds."""
    return abs(count - places * probability) < 5 * np.sqrt(places * probability * (1 - probability))


def test_fates_match_hand_worked_example():
    # p = 0.5: masked below 0.4, random below 0.45, kept below 0.5, left from there; the last place is no candidate.
    candidates = np.array([True] * 7 + [False])
    fates = draw_fates(candidates, 0.5, BERT_REPLACEMENT, Draws(0.0, 0.39, 0.41, 0.46, 0.49, 0.5, 0.99, 0.0))
    assert fates.tolist() == [MASKED, MASKED, RANDOM, KEPT, KEPT, LEFT, LEFT, LEFT]


@pytest.mark.parametrize(
    ("replacement", "shares"),
    [
        (BERT_REPLACEMENT, {MASKED: 0.12, RANDOM: 0.015, KEPT: 0.015, LEFT: 0.85}),
        (MASK_ALONE, {MASKED: 0.15, RANDOM: 0, KEPT: 0, LEFT: 0.85}),
        (Replacement(0.3, 0.7), {MASKED: 0.045, RANDOM: 0.105, KEPT: 0, LEFT: 0.85}),
    ],
)
def test_frequencies_of_fates_are_within_binomial_bounds(replacement, shares):
    candidates = np.arange(2 * PLACES) % 2 == 0
    fates = draw_fates(candidates, P, replacement, generator_of(1))
    assert (fates[~candidates] == LEFT).all()
    for fate, share in shares.items():
        count = int((fates[candidates] == fate).sum())
        assert within_binomial_bounds(count, PLACES, share) if share else count == 0, (fate, count)


def test_fates_of_neighbours_are_independent():
    chosen = draw_fates(np.ones((PLACES, 2), bool), P, BERT_REPLACEMENT, generator_of(2)) != LEFT
    assert within_binomial_bounds(int(chosen.all(axis=1).sum()), PLACES, P * P)


@pytest.mark.parametrize(("probability", "chosen"), [(0, 0), (1, 1000)])
def test_nothing_or_everything_is_chosen_at_the_limits(probability, chosen):
    fates = draw_fates(np.ones(1000, bool), probability, BERT_REPLACEMENT, generator_of(3))
    assert (fates != LEFT).sum() == chosen


def test_candidates_do_not_shift_the_draws_of_others():
    every = draw_fates(np.ones(1000, bool), P, BERT_REPLACEMENT, generator_of(4))
    some = np.arange(1000) % 3 > 0
    assert (draw_fates(some, P, BERT_REPLACEMENT, generator_of(4))[some] == every[some]).all()


def test_words_agree_with_naive_loop():
    rng = generator_of(5)
    tokens = rng.integers(4, 20, 500)
    fates = draw_fates(np.ones(500, bool), 0.6, Replacement(0.4, 0.4), rng)
    drawn = generator_of(6).integers(4, 20, 500)
    expected = []
    for place in range(500):
        word = {LEFT: tokens[place], KEPT: tokens[place], MASKED: 99, RANDOM: drawn[place]}[int(fates[place])]
        expected.append(word)
    before = tokens.copy()
    assert mask_words(tokens, fates, 99, range(4, 20), generator_of(6)).tolist() == expected
    assert (tokens == before).all()


def test_random_words_are_uniform_over_their_range():
    tokens = np.full(PLACES, 7)
    words = mask_words(tokens, np.full(PLACES, RANDOM), 99, range(4, 12), generator_of(7))
    counts = np.bincount(words)
    assert len(counts) == 12 and not counts[:4].any()
    assert all(within_binomial_bounds(int(count), PLACES, 1 / 8) for count in counts[4:])


def test_swapped_regions_match_hand_worked_example():
    # Of two images with two regions each, one of them absent: the pool is 1, 2, 3; draws of 0, 0.5 and 0.99 are its
    # first, second and last.
    features = np.array([[[1.0], [2.0]], [[3.0], [0.0]]])
    present = np.array([[True, True], [True, False]])
    swapped = np.array([[False, True], [True, False]])
    result = swap_regions(features, present, swapped, np.array([[0.0, 0.99], [0.5, 0.0]]))
    assert result.ravel().tolist() == [1, 3, 2, 0]
    assert features.ravel().tolist() == [1, 2, 3, 0]
    nothing = np.zeros((2, 2), bool)
    assert (swap_regions(features * 0, nothing, nothing, np.zeros((2, 2))) == 0).all()


def test_swapped_regions_are_uniform_over_the_regions_that_are_there():
    features = np.arange(1, 21, dtype=np.float32).reshape(4, 5, 1)
    present = features[..., 0] % 2 == 1
    counts = np.zeros(21, int)
    rng = generator_of(8)
    for _ in range(2000):
        swapped = swap_regions(features, present, present, rng.random((4, 5)))[present]
        counts += np.bincount(swapped.astype(int).ravel(), minlength=21)
    assert counts[2::2].sum() == 0 and counts[0] == 0
    assert all(within_binomial_bounds(int(count), 20_000, 0.1) for count in counts[1::2])


def test_generators_of_different_keys_differ_and_of_the_same_agree():
    keys = [(1, 2, 3), (1, 2, 4), (1, 3, 2), (1, 2), (1, 2, 0), (1, 2, 3, 0), (1, 2, 3, 1), (0,), (0, 0)]
    drawn = [tuple(generator_of(*key).integers(0, 2**60, 3)) for key in keys]
    assert len(set(drawn)) == len(keys)
    assert drawn == [tuple(generator_of(*key).integers(0, 2**60, 3)) for key in keys]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Replacement(0.8, 0.3), "shares of 1, but are 0.8 and 0.3"),
        (lambda: Replacement(-0.1, 0.3), "shares of 1, but are -0.1 and 0.3"),
        (lambda: draw_fates(np.ones(2, bool), 1.5, MASK_ALONE, generator_of(1)), "in 0..1, but is 1.5"),
        (lambda: mask_words(np.ones(2), np.zeros(2), 5, range(4, 4), generator_of(1)), r"there are range\(4, 4\)"),
    ],
)
def test_impossible_masking_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
