"""The test over seeds and sentences: by hand, in its limits, and on simulated systems between which nothing differs."""

import json
import math

import numpy as np
import pytest
from scipy.stats import t as student

from visual_grounding.analysis.contrastive import compare_accuracies
from visual_grounding.analysis.seeds import compare_over_seeds, holm


def test_variances_of_seeds_and_sentences_add_up_by_hand() -> None:
    # Differences 1 and 3: mean 2, s^2 = 2, V_seeds = 1. Mean of the seeds on the two draws: 1 and 3, V_sentences = 2.
    # Each seed's own variance over the draws is 2 as well, so V_both = 0. V = 3, t = 2 / sqrt 3, and of 11 sentences
    # df = 9 / (1 / 1 + 4 / 10).
    found = compare_over_seeds(np.array([1.0, 3.0]), np.array([[0.0, 2.0], [2.0, 4.0]]), 11)
    assert (found.delta, found.deltas, found.seeds) == (2, [1, 3], 2)
    assert found.degrees_of_freedom == pytest.approx(9 / 1.4)
    assert found.p_value == pytest.approx(2 * student.sf(2 / math.sqrt(3), 9 / 1.4))
    half = math.sqrt(3) * student.ppf(0.975, 9 / 1.4)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half))


def test_what_varies_with_seed_by_sentence_is_not_counted_twice_by_hand() -> None:
    # The seeds move apart on the draws: V_sentences = 0, V_both = 2. V isn't 1 + 0 - 2, but V_seeds = 1, with one
    # degree of freedom, whose distribution is Cauchy's.
    found = compare_over_seeds(np.array([1.0, 3.0]), np.array([[0.0, 2.0], [4.0, 2.0]]), 11)
    assert found.degrees_of_freedom == pytest.approx(1)
    assert found.p_value == pytest.approx(1 - 2 * math.atan(2) / math.pi)
    # Less of it: V_seeds = 2.25 of s^2 = 4.5, means of the draws 1 and 3 (2), own variances 8 and 0 (4): V_both = 2.
    found = compare_over_seeds(np.array([0.5, 3.5]), np.array([[0.0, 4.0], [2.0, 2.0]]), 10**9)
    assert found.degrees_of_freedom == pytest.approx(2.25**2 / 2.25**2)


def test_one_seed_is_tested_over_its_sentences_alone() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.normal(1.0, 0.5, (1, 4000))
    found = compare_over_seeds(np.array([1.0]), drawn, 10**6)
    assert found.seeds == 1
    assert (found.low, found.high) == pytest.approx((1 - 1.96 * 0.5, 1 + 1.96 * 0.5), abs=0.03)


def test_without_any_sentence_noise_it_is_students_test_over_seeds() -> None:
    deltas = np.array([0.3, 0.9, 1.4, -0.2, 0.8])
    found = compare_over_seeds(deltas, np.repeat(deltas[:, None], 10, axis=1), 100)
    error = deltas.std(ddof=1) / math.sqrt(5)
    assert found.degrees_of_freedom == pytest.approx(4)
    assert found.p_value == pytest.approx(2 * student.sf(deltas.mean() / error, 4))


def test_order_of_seeds_and_sign_change_nothing_but_the_sign() -> None:
    rng = np.random.default_rng(1)
    deltas, drawn = rng.normal(1, 1, 4), rng.normal(1, 1, (4, 50))
    found = compare_over_seeds(deltas, drawn, 30)
    turned = compare_over_seeds(deltas[::-1], drawn[::-1], 30)
    mirrored = compare_over_seeds(-deltas, -drawn, 30)
    assert turned[2:] == pytest.approx(found[2:])
    assert (mirrored.delta, mirrored.low, mirrored.p_value) == pytest.approx((-found.delta, -found.high, found.p_value))


def test_systems_that_are_the_same_do_not_differ() -> None:
    found = compare_over_seeds(np.zeros(3), np.zeros((3, 20)), 10)
    assert (found.delta, found.low, found.high, found.p_value, found.degrees_of_freedom) == (0, 0, 0, 1, None)
    json.dumps(found, allow_nan=False)  # what reports write


def test_three_sentences_that_all_differ_alike_prove_nothing() -> None:
    # All right against all wrong: 2 / 2^3, as McNemar's exact test of one seed says.
    found = compare_over_seeds(np.ones(1), np.ones((1, 20)), 3)
    assert (found.delta, found.p_value, found.degrees_of_freedom) == (1, 0.25, None)
    assert found.p_value == compare_accuracies(np.ones(3, bool), np.zeros(3, bool)).p_value
    assert compare_over_seeds(-np.ones(2), -np.ones((2, 20)), 10_000).p_value == 0
    assert compare_over_seeds(np.ones(1), np.ones((1, 20)), 1).p_value == 1


def simulate(of_seeds: float, of_sentences: float, of_both: float, true: float = 0.0, n: int = 5) -> dict[str, float]:
    """How often, of 500 worlds of n seeds and 100 sentences, a difference is claimed at 5 %.

    Each argument is a variance of the mean difference: of a seed's, of the sentences' and of a seed's on the sentences.
    """
    rng = np.random.default_rng(7)
    size, worlds = 100, 500
    times_drawn = rng.multinomial(size, np.full(size, 1 / size), size=300) / size  # (K, S)
    claimed = dict.fromkeys(("both", "seeds", "sentences"), 0)
    for _ in range(worlds):
        seeds = rng.normal(true, of_seeds**0.5, (n, 1))
        noise = rng.normal(0, (of_sentences * size) ** 0.5, (1, size)) + rng.normal(
            0, (of_both * size) ** 0.5, (n, size)
        )
        table = seeds + noise  # (n, S)
        deltas, drawn = table.mean(axis=1), table @ times_drawn.T
        claimed["both"] += compare_over_seeds(deltas, drawn, size).p_value < 0.05
        claimed["sentences"] += compare_over_seeds(deltas[:1], drawn[:1], size).p_value < 0.05
        error = deltas.std(ddof=1) / n**0.5
        claimed["seeds"] += 2 * student.sf(abs(deltas.mean()) / error, n - 1) < 0.05
    return {name: count / worlds for name, count in claimed.items()}


@pytest.mark.parametrize("variances", [(1, 0, 0), (0, 1, 0.1), (1, 1, 1), (0.3, 0.1, 0.4)])
def test_where_nothing_differs_one_claim_in_twenty_is_made(variances: tuple[float, float, float]) -> None:
    # 500 worlds: the standard error of 0.05 is 0.01
    assert 0.02 <= simulate(*variances)["both"] <= 0.08


def test_three_seeds_that_matter_most_make_a_few_claims_too_many() -> None:
    assert 0.04 <= simulate(10, 1, 0.3, n=3)["both"] <= 0.11  # 0.07 of 20,000


def test_seeds_alone_or_sentences_alone_claim_differences_that_are_not_there() -> None:
    claimed = simulate(1, 1, 0.1)
    assert claimed["both"] <= 0.08 < 0.15 < min(claimed["seeds"], claimed["sentences"])


def test_a_difference_is_found_when_it_is_large() -> None:
    assert simulate(0.1, 0.1, 0.1, true=2.0)["both"] > 0.95


def test_draws_of_other_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \(n,\) and \(n, K\) .* got \(2,\) and \(3, 5\)"):
        compare_over_seeds(np.zeros(2), np.zeros((3, 5)), 10)


def test_holm_by_hand_and_against_its_definition() -> None:
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    rng = np.random.default_rng(3)
    for size in range(1, 8):
        values = rng.random(size).tolist()
        ordered = sorted(values)
        naive = [max(min(1.0, (size - i) * p) for i, p in enumerate(ordered) if p <= value) for value in values]
        assert holm(values) == pytest.approx(naive)


@pytest.mark.parametrize("value", [23.456789, 100.00000000000004])
def test_what_does_not_vary_but_for_rounding_does_not_vary(value: float) -> None:
    found = compare_over_seeds(np.array([value]), np.full((1, 1000), value), 3)
    assert (found.p_value, found.low, found.high) == (0.25, value, value)  # 2^(1 - 3)
    found = compare_over_seeds(np.full(2, value), np.full((2, 1000), value), 3)
    assert found.p_value == 0.25 and found.degrees_of_freedom is None
