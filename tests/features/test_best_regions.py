"""Which regions are kept: the best, in their order; what is left out is counted, and says nothing any more."""

import json
from pathlib import Path

import numpy as np
import pytest

from visual_grounding.errors import InputError
from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.best_regions import keep_best
from visual_grounding.features.blocks import Block
from visual_grounding.features.columns import Columns
from visual_grounding.features.importers import import_features
from visual_grounding.features.store import FeatureStore

KEYS = ["a", "b"]
# Image a has four regions, of which the last two score alike; b has two, an absent one between them.
FEATURES = np.array([[[1], [2], [3], [4]], [[5], [0], [6], [0]]], np.float32)
SCORES = np.array([[0.1, 0.9, 0.5, 0.5], [0.4, 0.8, 0.2, 0]])
LABELS = np.array([[0, 1, 2, 3], [4, 5, 6, -1]])


def kept(regions: int, min_score: float | None) -> tuple[list, list, list, dict[str, int]]:
    block = Block(FEATURES.copy(), {"scores": SCORES.copy(), "labels": LABELS.copy()}, None, {})
    found, left_out = keep_best(block, regions, min_score, KEYS, 0)
    return found.features[..., 0].tolist(), found.columns["labels"].tolist(), found.columns["scores"].tolist(), left_out


def test_best_are_kept_in_their_order_and_of_equals_the_first() -> None:
    features, labels, scores, left_out = kept(2, None)
    assert features == [[2, 3], [5, 6]] and labels == [[1, 2], [4, 6]] and scores == [[0.9, 0.5], [0.4, 0.2]]
    assert left_out == {"weak": 0, "surplus": 2}


def test_weak_ones_become_absent_and_are_counted() -> None:
    features, labels, _, left_out = kept(4, 0.4)  # 0.4 itself stays
    assert features == [[2, 3, 4, 0], [5, 0, 0, 0]]
    assert labels[0] == [1, 2, 3, -1] and labels[1][0] == 4
    assert left_out == {"weak": 2, "surplus": 0}
    assert kept(1, 0.4)[0] == [[2], [5]] and kept(1, 0.4)[3] == {"weak": 2, "surplus": 2}
    assert kept(4, 1.0)[0] == [[0] * 4] * 2


def test_what_is_said_of_regions_that_were_absent_anyway_stays_to_be_counted() -> None:
    _, labels, _, _ = kept(4, 0.3)
    assert labels[1] == [4, 5, -1, -1]  # 5 is that of the region between
    assert kept(4, None)[:2] == (FEATURES[..., 0].tolist(), LABELS.tolist())  # nothing to do: nothing moves


def test_score_that_is_no_number_is_never_left_out() -> None:
    scores = np.array([[np.nan, 0.9, 0.1, 0.2], [0.4, 0, 0.2, 0]])
    found, _ = keep_best(Block(FEATURES.copy(), {"scores": scores}, None, {}), 2, 0.15, KEYS, 0)
    assert np.isnan(found.columns["scores"][0, 0])


def test_naive_loop_keeps_the_same() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        features = rng.integers(0, 3, (5, 7, 1)).astype(np.float32)
        scores = rng.integers(0, 10, (5, 7)) / 10
        found, left_out = keep_best(Block(features, {"scores": scores}, None, {}), 3, 0.3, [""] * 5, 0)
        weak = surplus = 0
        for row in range(5):
            good = [place for place in range(7) if features[row, place, 0] and scores[row, place] >= 0.3]
            weak += sum(bool(features[row, place, 0]) for place in range(7)) - len(good)
            best = sorted(sorted(good, key=lambda place: -scores[row, place])[:3])
            surplus += len(good) - len(best)
            expected = [features[row, place, 0] for place in best] + [0] * (3 - len(best))
            assert found.features[row, :, 0].tolist() == expected
        assert left_out == {"weak": weak, "surplus": surplus}


def imported(folder: Path, out: str, regions: int | None = None, min_score: float | None = None, scored: bool = True):
    np.save(folder / "f.npy", FEATURES)
    np.save(folder / "scores.npy", SCORES)
    (folder / "keys.txt").write_text("a\nb\n")
    beside = {"scores": str(folder / "scores.npy")} if scored else {}
    source = open_arrays(folder / "f.npy", folder / "keys.txt", regions=regions, beside=beside)
    return import_features(source, folder / out, columns=Columns(source.columns), min_score=min_score, shard_size=1)


def test_import_keeps_the_best_and_says_how_many_it_left_out(tmp_path: Path) -> None:
    summary = imported(tmp_path, "best", 2, 0.3)
    store = FeatureStore(tmp_path / "best")
    assert store.features[..., 0].tolist() == [[2, 3], [5, 0]] and store.plan["min_score"] == 0.3
    assert "|min_score:0.3|" in store.signature
    assert (summary.weak, summary.surplus) == (2, 1)
    assert "2 regions scored below the lowest score that was asked for, and were left out." in summary.describe("x")
    assert "1 region had 2 better ones in their image, and were left out." in summary.describe("x")
    again = imported(tmp_path, "best", 2, 0.3)  # it is there: the counts are those that it remembers
    assert again == summary
    everything = imported(tmp_path, "all")
    meta = json.loads((tmp_path / "all/meta.json").read_text())
    assert not {"weak", "surplus"} & set(meta) and (everything.weak, everything.surplus) == (0, 0)
    assert "min_score" not in FeatureStore(tmp_path / "all").signature


def test_nothing_is_cut_where_no_scores_say_what_is_best(tmp_path: Path) -> None:
    message = r"images should have 2 regions at most, as was said, but row 0 \(a\) has 4, and no scores say which are"
    with pytest.raises(InputError, match=message) as caught:
        imported(tmp_path, "out", 2, scored=False)
    assert caught.value.choices == ("regions", "scores")
    message = r"^regions below 0\.5 can be left out where their scores are known, but there are features alone\.$"
    with pytest.raises(InputError, match=message):
        imported(tmp_path, "out", None, 0.5, scored=False)
    np.save(tmp_path / "g.npy", np.concatenate([FEATURES, np.zeros_like(FEATURES)], axis=1))
    source = open_arrays(tmp_path / "g.npy", tmp_path / "keys.txt", regions=4)  # what is cut off is absent anyway
    import_features(source, tmp_path / "out")
    np.testing.assert_array_equal(FeatureStore(tmp_path / "out").features, FEATURES)
