"""What `evaluate` leaves and `report runs` reads, and everything that can be wrong with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visual_grounding.analysis import score_files
from visual_grounding.analysis.score_files import described_metric, read_score_files, write_score_files
from visual_grounding.errors import InputError


def scores(seeds: int = 2, samples: int | None = 4) -> dict[str, Any]:
    """A report of so many seeds."""
    system = {"files": [f"{n}.txt" for n in range(seeds)], "f1": {"values": [0.5] * seeds}, "rank": None}
    return {
        "sentences": 3,
        "test_set": {"file": "test", "sha256": "0"},
        "metrics": {"f1": described_metric("F1", percent=True), "rank": described_metric("rank", better="lower")},
        "systems": {"hypothesis": system, "twin": system if samples else None},
        "resampling": {"samples": samples, "seed": 1} if samples else None,
    }


def draws(seeds: int = 2, samples: int = 4) -> dict[str, np.ndarray]:
    return {f"{system}.f1": np.ones((seeds, samples)) for system in ("hypothesis", "twin")}


def test_score_files_come_back_as_written(tmp_path: Path) -> None:
    write_score_files(tmp_path / "out", scores(), draws())
    found = read_score_files(tmp_path / "out")
    assert (found.folder, found.scores) == (tmp_path / "out", scores())
    assert {name: array.shape for name, array in found.resampled.items()} == {
        "hypothesis.f1": (2, 4),
        "twin.f1": (2, 4),
    }
    assert found.scores["metrics"]["rank"] == {"label": "rank", "better": "lower", "percent": False}


def test_draws_of_an_earlier_run_do_not_stay(tmp_path: Path) -> None:
    write_score_files(tmp_path, scores(), draws())
    write_score_files(tmp_path, scores(samples=None), {})
    assert [path.name for path in tmp_path.iterdir()] == ["scores.json"]
    assert read_score_files(tmp_path).resampled == {}


def test_a_run_that_is_stopped_between_its_files_leaves_the_older_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_score_files(tmp_path, scores(), draws())
    before = read_score_files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(score_files, "_write_arrays", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write_score_files(tmp_path, {**scores(), "sentences": 9}, draws())
    after = read_score_files(tmp_path)
    assert after.scores == before.scores and after.resampled.keys() == before.resampled.keys()


def test_what_is_no_score_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere/scores.json can't be read: No such file"):
        read_score_files(tmp_path / "nowhere")
    (tmp_path / "scores.json").write_text("{")
    with pytest.raises(InputError, match="should be JSON, but isn't: Expecting property name"):
        read_score_files(tmp_path)
    (tmp_path / "scores.json").write_text('{"sentences": 1, "systems": {}}')
    with pytest.raises(InputError, match="but test_set, metrics, resampling is missing: it is of an earlier version"):
        read_score_files(tmp_path)


def test_broken_draws_are_refused(tmp_path: Path) -> None:
    write_score_files(tmp_path, scores(), draws())
    (tmp_path / "resampled.npz").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"resampled.npz should be arrays, but isn't"):
        read_score_files(tmp_path)
    (tmp_path / "resampled.npz").unlink()
    with pytest.raises(InputError, match=r"resampled.npz can't be read: No such file"):
        read_score_files(tmp_path)


def test_draws_of_other_seeds_are_refused(tmp_path: Path) -> None:
    write_score_files(tmp_path, scores(), draws(seeds=3))
    with pytest.raises(InputError, match=r"each of the 2 files of hypothesis, but has 2 values and draws \(3, 4\)"):
        read_score_files(tmp_path)


def test_draws_are_numbers_and_never_pickled(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle=False"):
        write_score_files(tmp_path / "out", scores(), {"hypothesis.f1": np.array([None])})
    assert not (tmp_path / "out" / "scores.json").exists()
