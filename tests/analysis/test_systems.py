"""Two systems of several seeds: what is put together of the tests of others."""

import numpy as np
import pytest

from visual_grounding.analysis.intervals import ResampledScore
from visual_grounding.analysis.seeds import compare_over_seeds
from visual_grounding.analysis.significance import compare_draws
from visual_grounding.analysis.systems import arrays_of_draws, compare_systems


def seeds(*wholes: float, samples: int = 5) -> list[dict[str, ResampledScore]]:
    """Seeds with these scores, and made-up draws around them."""
    noise = np.random.default_rng(int(sum(wholes))).normal(size=(len(wholes), samples))
    return [{"bleu": ResampledScore(whole, whole + row)} for whole, row in zip(wholes, noise)]


def test_pairs_and_all_seeds_are_tested() -> None:
    ours, twin = seeds(20.0, 22.0, 21.0), seeds(19.0, 19.5, 21.5)
    found = compare_systems(ours, twin, 40)
    assert [pair["bleu"] for pair in found["pairs"]] == [
        compare_draws(one["bleu"], other["bleu"])._asdict() for one, other in zip(ours, twin)
    ]
    drawn = np.stack([one["bleu"].drawn - other["bleu"].drawn for one, other in zip(ours, twin)])
    assert found["over_seeds"]["bleu"] == compare_over_seeds(np.array([1.0, 2.5, -0.5]), drawn, 40)._asdict()


def test_one_seed_or_one_draw_has_no_test_over_seeds() -> None:
    assert compare_systems(seeds(2.0), seeds(1.0), 4)["over_seeds"] is None
    assert compare_systems(seeds(2.0, 3.0, samples=1), seeds(1.0, 2.0, samples=1), 4)["over_seeds"] is None


def test_systems_with_other_numbers_of_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        compare_systems(seeds(2.0, 3.0), seeds(1.0), 4)


def test_draws_are_kept_by_system_and_metric() -> None:
    found = arrays_of_draws({"hypothesis": seeds(20.0, 22.0), "twin": seeds(19.0, 19.5)})
    assert {name: array.shape for name, array in found.items()} == {"hypothesis.bleu": (2, 5), "twin.bleu": (2, 5)}
    assert arrays_of_draws({"hypothesis": seeds(20.0)})["hypothesis.bleu"].shape == (1, 5)
    assert found["twin.bleu"][1].tolist() == seeds(19.0, 19.5)[1]["bleu"].drawn.tolist()
