"""`visual-grounding average`: what it writes, and what it says when it can't."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

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


def average(folder: Path, *states: dict[str, Any]) -> int:
    """Of checkpoints that differ in what they say of themselves, and in a weight of one shape."""
    names = []
    for number, state in enumerate(states):
        names.append(str(folder / f"{number}.pt"))
        torch.save({"model": {"w": torch.tensor([float(number)])}, **state}, names[-1])
    return main(["average", "--inputs", *names, "--out", str(folder / "mean")])


VOKENS = {"keys_sha256": "a" * 64, "count": 5, "tokenizer_sha256": "c" * 64, "made": "vokenize|by:hand"}


@pytest.mark.parametrize(("name", "other"), [("keys_sha256", "b" * 64), ("count", 6), ("tokenizer_sha256", "d" * 64)])
@pytest.mark.parametrize("silent", [[], [{}], [{"task_state": {"vokens": None}}]])
def test_average_exits_with_2_when_vokens_are_of_other_candidates_or_pieces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, other: object, silent: list[dict[str, Any]]
) -> None:
    own = {"task_state": {"vokens": VOKENS}}
    assert average(tmp_path, own, *silent, {"task_state": {"vokens": {**VOKENS, name: other}}}) == 2
    said = capsys.readouterr().err
    assert "visual-grounding average: checkpoints should be trained on vokens of the same images, and of text" in said
    last = tmp_path / f"{1 + len(silent)}.pt"
    assert f"{tmp_path / '0.pt'} was on those with the {name} {VOKENS[name]}, and {last} {other}." in said
    assert said.count("\n") == 1 and not (tmp_path / "mean").exists()


def test_average_remembers_the_vokens_of_any_and_takes_those_that_were_chosen_otherwise(tmp_path: Path) -> None:
    first, last = ({"task_state": {"vokens": {**VOKENS, "made": made}, "x": made}} for made in ("one way", "another"))
    of_images_alone = {"task_state": {"vokens": {name: VOKENS[name] for name in ("keys_sha256", "count")}}}
    assert average(tmp_path, first, last) == 0
    assert load_checkpoint(tmp_path / "mean/averaged.pt")["task_state"] == last["task_state"]
    for others in ([{}], [of_images_alone], [{"task_state": {"vokens": None}}]):
        assert average(tmp_path, first, *others) == 0
        assert load_checkpoint(tmp_path / "mean/averaged.pt")["task_state"]["vokens"] == first["task_state"]["vokens"]
    assert average(tmp_path, {}, {}) == 0
    assert "task_state" not in load_checkpoint(tmp_path / "mean/averaged.pt")


@pytest.mark.parametrize("known_by", ["cfg", "args", "dataclass"])
@pytest.mark.parametrize(
    ("name", "own", "other"),
    [
        ("encoder_attention_heads", 2, 4),
        ("activation_fn", "relu", "gelu"),
        ("no_scale_embedding", True, False),
        ("visual_gate", "add", "interpolate"),
    ],
)
def test_average_exits_with_2_when_the_same_weights_mean_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], known_by: str, name: str, own: object, other: object
) -> None:
    def state(**flags: object) -> dict[str, Any]:
        learned = argparse.Namespace(arch="transformer", **flags)
        if known_by == "args":
            return {"args": learned}
        return {"cfg": {"model": learned if known_by == "cfg" else vars(learned)}}

    silent, same = state(encoder_layers=3), state(**{name: own}, encoder_layers=4)
    assert average(tmp_path, same, silent, same) == 0
    assert average(tmp_path, silent, same, state(**{name: other})) == 2
    said = capsys.readouterr().err
    assert f"checkpoints should be trained with the same --{name.replace('_', '-')}, but {tmp_path}/1.pt was" in said
    assert f" was with {own}, and {tmp_path}/2.pt with {other}: their weights have the same shapes, but mean" in said


@pytest.mark.parametrize("name", ["bert_config", "grounded_config"])
def test_average_exits_with_2_when_encoders_of_the_same_shapes_compute_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def state(said: object) -> dict[str, Any]:
        return {"args": argparse.Namespace(arch="visual_aware_bert", **{name: said})}

    def encoders(**config: object) -> dict[str, Any]:
        config = {"num_attention_heads": 4, "hidden_dropout_prob": 0.1, "transformers_version": "5", **config}
        return state(json.dumps([{"closes": False}, {"config": config}]))

    more = encoders(hidden_dropout_prob=0.2, transformers_version="6", dtype="float32", new=1)
    assert average(tmp_path, encoders(), more, state(None), state("{"), state(3), state("7"), encoders()) == 0
    assert average(tmp_path, encoders(), encoders(num_attention_heads=8)) == 2
    said = capsys.readouterr().err
    assert f"trained with the same {name}.1.config.num_attention_heads, but {tmp_path}/0.pt was with 4, and" in said
    assert average(tmp_path, encoders(), encoders(hidden_act="relu"), encoders(hidden_act="gelu")) == 2
    assert (
        f"with the same {name}.1.config.hidden_act, but {tmp_path}/1.pt was with relu, and" in capsys.readouterr().err
    )


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

    def mean_of(mean: float) -> None:
        inputs = [str(run_dir / f"checkpoint{epoch}.pt") for epoch in epochs[mean]]
        assert main(["average", "--inputs", *inputs, "--out", str(out)]) == 0

    def found() -> float:
        mean = load_checkpoint(out / "averaged.pt")["model"]["w"].item()
        named = json.loads((out / "meta.json").read_text())["inputs"]
        assert {Path(path).name for path in named} == {f"checkpoint{epoch}.pt" for epoch in epochs[mean]}
        return mean

    mean_of(1.5)
    left = []
    steps = ((torch, "save"), (whole_folder, "_flush"), (whole_folder, "_exchange"), (whole_folder, "sync_folder"))
    for _ in killed_at_each_step(lambda: mean_of(6.0), *steps):
        left.append(found())
        mean_of(1.5)
    assert left == [1.5] * 4 + [6.0]
    mean_of(6.0)
    assert found() == 6.0 and sorted(os.listdir(out)) == ["averaged.pt", "meta.json"]


def test_how_many_are_averaged_is_not_said_of_checkpoints_that_are_named(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [str(run_dir / f"checkpoint{epoch}.pt") for epoch in (1, 2)]
    assert main(["average", "--inputs", *named, "--last", "1", "--out", str(run_dir / "mean")]) == 2
    assert "so --last says nothing. See --inputs." in capsys.readouterr().err and not (run_dir / "mean").exists()


def test_average_does_not_write_into_another_artefact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mean"
    out.mkdir()
    (out / "meta.json").write_text('{"format": "index"}')
    assert average(tmp_path, {}, {}) == 2
    assert "mean should be new, or of an earlier run of this command, but holds an index" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["meta.json"]
    (out / "meta.json").unlink()
    assert [average(tmp_path, {}, {}) for _ in range(2)] == [0, 0]
