"""`visual-grounding average`: what it writes, and what it says when it can't."""

import argparse
import json
import os
from pathlib import Path

import pytest
import torch
from faults.steps import killed_at_each_step

from visual_grounding.cli.main import main
from visual_grounding.storage import whole_folder
from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.checkpoints import load_checkpoint


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Epochs 1, 2 and 10; the weight is the epoch."""
    folder = tmp_path / "run"
    folder.mkdir()
    for epoch in (1, 2, 10):
        state = {"args": argparse.Namespace(), "model": {"w": torch.tensor([float(epoch)])}, "last_optimizer_state": {}}
        torch.save(state, folder / f"checkpoint{epoch}.pt")
    return folder


def test_average_writes_the_mean_and_where_it_comes_from(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run_dir / "deep" / "mean"
    assert main(["average", "--checkpoint-dir", str(run_dir), "--last", "2", "--out", str(out)]) == 0
    assert load_checkpoint(out / "averaged.pt")["model"]["w"].item() == 6.0
    assert sorted(path.name for path in out.iterdir()) == ["averaged.pt", "meta.json"]
    meta = json.loads((out / "meta.json").read_text())
    paths = [run_dir / "checkpoint2.pt", run_dir / "checkpoint10.pt"]
    assert meta["inputs"] == {str(path): sha256_of_file(path) for path in paths}
    assert meta["signature"].startswith("average|checkpoints:2|")
    assert "mean of 2 checkpoints, checkpoint2.pt, checkpoint10.pt" in capsys.readouterr().out


def test_average_takes_the_checkpoints_that_are_named(run_dir: Path, tmp_path: Path) -> None:
    inputs = [str(run_dir / f"checkpoint{epoch}.pt") for epoch in (1, 2)]
    assert main(["average", "--inputs", *inputs, "--out", str(tmp_path)]) == 0
    assert load_checkpoint(tmp_path / "averaged.pt")["model"]["w"].item() == 1.5


def test_average_leaves_nothing_and_exits_with_2_when_an_input_is_broken(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "checkpoint2.pt").write_bytes(b"broken")
    out = run_dir / "mean"
    assert main(["average", "--checkpoint-dir", str(run_dir), "--last", "3", "--out", str(out)]) == 2
    assert "checkpoint2.pt should be a fairseq checkpoint, but is truncated" in capsys.readouterr().err
    assert not out.exists()


def test_average_exits_with_2_when_epochs_are_too_few(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["average", "--checkpoint-dir", str(run_dir), "--out", str(run_dir / "mean")]) == 2
    assert "at least 10 epoch checkpoints (checkpoint<epoch>.pt), but has 3" in capsys.readouterr().err


def test_average_exits_with_2_when_out_is_a_file(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / "file").touch()
    arguments = ["--checkpoint-dir", str(run_dir), "--last", "1", "--out", str(run_dir / "file")]
    assert main(["average", *arguments]) == 2
    assert "file can't be written: Not a directory" in capsys.readouterr().err


def test_killed_at_any_step_average_leaves_the_older_mean_or_the_new_one_with_what_it_is_made_of(
    run_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mean"
    epochs = {1.5: (1, 2), 6.0: (2, 10)}

    def average(mean: float) -> None:
        inputs = [str(run_dir / f"checkpoint{epoch}.pt") for epoch in epochs[mean]]
        assert main(["average", "--inputs", *inputs, "--out", str(out)]) == 0

    def found() -> float:
        mean = load_checkpoint(out / "averaged.pt")["model"]["w"].item()
        named = json.loads((out / "meta.json").read_text())["inputs"]
        assert {Path(path).name for path in named} == {f"checkpoint{epoch}.pt" for epoch in epochs[mean]}
        return mean

    average(1.5)
    left = []
    steps = ((torch, "save"), (whole_folder, "_flush"), (whole_folder, "_exchange"), (whole_folder, "sync_folder"))
    for _ in killed_at_each_step(lambda: average(6.0), *steps):
        left.append(found())
        average(1.5)
    assert left == [1.5] * 4 + [6.0]
    average(6.0)
    assert found() == 6.0 and sorted(os.listdir(out)) == ["averaged.pt", "meta.json"]


def test_how_many_are_averaged_is_not_said_of_checkpoints_that_are_named(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [str(run_dir / f"checkpoint{epoch}.pt") for epoch in (1, 2)]
    assert main(["average", "--inputs", *named, "--last", "1", "--out", str(run_dir / "mean")]) == 2
    assert "so --last says nothing. See --inputs." in capsys.readouterr().err and not (run_dir / "mean").exists()
