"""Understanding by fairseq's commands and this package's: images help where they tell the answer, others don't."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from commands import run_command
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.train import main as fairseq_train
from small_examples import make_world

from visual_grounding.analysis import score_files
from visual_grounding.cli.main import main
from visual_grounding.storage.checkpoints import load_checkpoint


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


ENCODERS = {"visual_aware_bert": "--bert", "grounded_albert": "--grounded-text-encoder"}


def words_of(world, name, out, arch, *more):
    task = "grounded_tagging" if name == "tags" else "grounded_sentence_prediction"
    words = [world / name, "--task", task, "--arch", arch, ENCODERS[arch], world / "encoder", "--criterion", task,
             "--optimizer", "adam", "--lr", 0.003, "--batch-size", 12, "--cpu", "--save-dir", out, "--num-workers", 0,
             "--seed", 1, "--max-pieces", 20, "--no-progress-bar", *more]  # fmt: skip
    return list(map(str, words))


def train(world, name, out, arch, *more):
    """`fairseq-train` in this process: it takes a second where a fresh one takes ten."""
    words = words_of(world, name, out, arch, *more)
    fairseq_train(convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words)))


def images(world):
    return ["--image-features", world / "store", "--image-ids", world / "ids"]


def evaluate(capsys, *words):
    assert main(["evaluate", "predictions", *map(str, words)]) == 0
    return capsys.readouterr().out


def scores(folder):
    return json.loads((folder / "scores.json").read_text())


METRICS = {"pairs": "accuracy", "values": "spearman", "words": "f1", "tags": "entity_f1"}
# Every kind of answer and both architectures; all of both in the slow stage.
FAST = (("visual_aware_bert", "pairs"), ("grounded_albert", "values"), ("visual_aware_bert", "tags"))


@pytest.mark.parametrize(
    ("arch", "name"),
    [
        pytest.param(arch, name, marks=() if (arch, name) in FAST else pytest.mark.slow)
        for arch in ENCODERS
        for name in METRICS
    ],
)
def test_images_tell_what_text_does_not(arch, name, world, tmp_path, capsys):
    metric, flags = METRICS[name], ["--image-sentence", "second"] if name == "pairs" else []
    epochs = ["--max-epoch", 60, "--disable-validation", "--no-epoch-checkpoints"]
    train(world, name, tmp_path / "m", arch, *images(world), *flags, *epochs)
    checkpoint = tmp_path / "m/checkpoint_last.pt"
    words = [
        "--checkpoint",
        checkpoint,
        "--split",
        "valid",
        "--image-order",
        "congruent",
        "shuffled",
        "--device",
        "cpu",
    ]
    said = evaluate(capsys, *words, "--out", tmp_path / "scores")
    found = scores(tmp_path / "scores")
    own, others = (found["systems"][system][metric]["mean"] for system in ("hypothesis", "twin"))
    assert own > 0.9 and others < 0.75
    assert found["systems"]["hypothesis"]["images"] == "congruent" and found["systems"]["twin"]["images"] == "shuffled"
    assert found["comparison"][metric]["delta"] == pytest.approx(own - others)
    assert f"{100 * own:.1f} [" in said and found["comparison"][metric]["p_value"] < 0.01
    lines = (tmp_path / "scores/predictions.tsv").read_text().splitlines()
    head = ["first", *(["second"] if name in ("pairs", "values") else []), "answer", "hypothesis", "twin"]
    assert lines[0].split("\t") == head and len(lines) == 13
    answers = (world / name / "valid.answers").read_text().splitlines()
    assert [line.split("\t")[-3] for line in lines[1:]] == answers


def test_seeds_and_twins_come_into_one_table(world, tmp_path, capsys):
    few = ["--max-epoch", 2, "--no-epoch-checkpoints"]
    for seed in (1, 2):
        for kind, flags in (("seeing", images(world)), ("blind", [])):
            train(world, "pairs", tmp_path / f"{kind}{seed}", "visual_aware_bert", *flags, *few, "--seed", seed)
        words = [word for kind, flag in (("seeing", "--checkpoint"), ("blind", "--twin-checkpoint"))
                 for word in (flag, tmp_path / f"{kind}{seed}/checkpoint_last.pt")]  # fmt: skip
        evaluate(capsys, *words, "--split", "valid", "--out", tmp_path / f"run{seed}/pairs")
    assert scores(tmp_path / "run1/pairs")["systems"]["twin"]["images"] == "none"
    checkpoints = [tmp_path / f"seeing{seed}/checkpoint_last.pt" for seed in (1, 2)]
    words = ["--checkpoint", checkpoints[0], "--twin-checkpoint", checkpoints[1], "--image-order", "shuffled"]
    evaluate(capsys, *words, "--split", "valid", "--out", tmp_path / "other")
    orders = [scores(tmp_path / "other")["systems"][name]["images"] for name in ("hypothesis", "twin")]
    assert orders == ["shuffled", "congruent"]  # another model's images are as in its training
    runs = [str(tmp_path / f"run{seed}") for seed in (1, 2)]
    assert main(["report", "runs", *runs, "--metric", "accuracy", "f1", "--out", str(tmp_path / "table")]) == 0
    rows = json.loads((tmp_path / "table/runs.json").read_text())
    table = capsys.readouterr().out
    assert "accuracy, %" in table and "F1, %" in table and "median" in (tmp_path / "table/runs.md").read_text().lower()
    means = [scores(tmp_path / f"run{seed}/pairs")["systems"]["hypothesis"]["accuracy"]["mean"] for seed in (1, 2)]
    assert np.mean(means) == pytest.approx(rows["rows"][0]["hypothesis"]["mean"])
    assert main(["report", "runs", runs[0], runs[0] + "/../run1/", "--out", str(tmp_path / "t")]) == 2
    assert "is given twice" in capsys.readouterr().err


def test_flags_say_how_often_and_by_which_seed_is_resampled(world, tmp_path, capsys, monkeypatch):
    written = []
    whole = score_files.write_file_set
    monkeypatch.setattr(
        score_files, "write_file_set", lambda out, files, *more: written.append(set(files)) or whole(out, files, *more)
    )
    train(world, "pairs", tmp_path / "m", "visual_aware_bert", "--max-epoch", 1, "--no-epoch-checkpoints")
    words = ["--checkpoint", tmp_path / "m/checkpoint_last.pt", "--split", "valid", "--device", "cpu"]
    intervals = []
    for samples, seed in ((50, 1), (50, 1), (50, 2), (20, 1)):
        said = evaluate(capsys, *words, "--bootstrap-samples", samples, "--seed", seed, "--out", tmp_path / "scores")
        found = scores(tmp_path / "scores")
        assert found["resampling"] == {"samples": samples, "seed": seed}
        assert f"{samples} resamplings, seed {seed}" in said
        drawn = [path for path in (tmp_path / "scores").glob("*.npz")]
        sizes = {array.shape for path in drawn for array in np.load(path).values()}
        assert sizes == {(1, samples)}
        intervals.append([np.load(path)["hypothesis.accuracy"].tolist() for path in drawn])
    assert intervals[0] == intervals[1] != intervals[2]
    assert written == [{"scores.json", "resampled.npz", "predictions.tsv"}] * 4  # together, or not at all


@pytest.mark.slow
def test_commands_train_validate_and_log_scores(world, tmp_path):
    """In fresh processes."""
    flags = ["--user-dir", "visual_grounding", *images(world), "--max-epoch", 1, "--no-epoch-checkpoints",
             "--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]  # fmt: skip
    done = run_command("fairseq-train", *words_of(world, "pairs", tmp_path / "m", "grounded_albert", *flags))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    logged = re.findall(r"\| valid \| epoch 001 \|(.*)", said)[-1]
    assert "accuracy" in logged and "f1" in logged
    again = run_command(
        "fairseq-validate", str(world / "pairs"), "--user-dir", "visual_grounding", "--task",
        "grounded_sentence_prediction", "--path", str(tmp_path / "m/checkpoint_best.pt"), "--valid-subset", "valid",
        "--batch-size", "5", "--image-features", str(world / "store"), "--image-ids", str(world / "ids"), "--cpu",
    )  # fmt: skip
    assert again.returncode == 0, (again.stdout + again.stderr)[-3000:]
    number = r"accuracy ([0-9.]+)"
    assert re.findall(number, again.stdout + again.stderr)[-1] == re.findall(number, logged)[0]


@pytest.mark.parametrize("arch", ENCODERS)
def test_training_goes_on_exactly_where_it_was(arch, world, tmp_path):
    flags = [*images(world), "--save-interval-updates", 4, "--keep-interval-updates", 1]
    train(world, "tags", tmp_path / "whole", arch, *flags, "--max-epoch", 3)
    train(world, "tags", tmp_path / "parts", arch, *flags, "--max-update", 4)
    train(world, "tags", tmp_path / "parts", arch, *flags, "--max-epoch", 3)
    one, other = (load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("whole", "parts"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_f1_of_other_classes_is_another_score(world, tmp_path, capsys):
    """Of two classes it is the second's, of three their mean."""
    shutil.copytree(world / "pairs", tmp_path / "three")
    meta = json.loads((tmp_path / "three/meta.json").read_text())
    assert meta["labels"] == ["other", "red"]
    (tmp_path / "three/meta.json").write_text(json.dumps({**meta, "labels": ["other", "red", "blue"]}))
    few = ["--max-epoch", 1, "--no-epoch-checkpoints", "--disable-validation"]
    for place in (world, tmp_path):
        train(
            place,
            "pairs" if place == world else "three",
            tmp_path / f"{place == world}",
            "visual_aware_bert",
            *few,
            "--bert",
            world / "encoder",
        )
    two, three = (tmp_path / f"{of_two}/checkpoint_last.pt" for of_two in (True, False))
    for path, said in ((two, "that of 'red', beside 'other'"), (three, "the mean of 'other', 'red', 'blue'")):
        evaluate(capsys, "--checkpoint", path, "--split", "valid", "--out", tmp_path / "scores")
        assert scores(tmp_path / "scores")["conventions"] == {"f1": said}
    words = [
        "--checkpoint",
        str(two),
        "--twin-checkpoint",
        str(three),
        "--split",
        "valid",
        "--out",
        str(tmp_path / "s"),
    ]
    assert main(["evaluate", "predictions", *words]) == 2
    assert "both models should tell the same classes, but F1 is that of 'red'" in capsys.readouterr().err


def test_what_cannot_be_compared_is_refused(world, tmp_path, capsys):
    few = ["--max-epoch", 1, "--no-epoch-checkpoints", "--disable-validation"]
    for name in ("pairs", "words"):
        train(world, name, tmp_path / name, "visual_aware_bert", *few)
    checkpoints = [str(tmp_path / name / "checkpoint_last.pt") for name in ("pairs", "words")]
    verb = ["evaluate", "predictions", "--split", "valid", "--out", str(tmp_path / "s"), "--checkpoint", checkpoints[0]]

    def refused(*more):
        assert main([*verb, *more]) == 2
        return capsys.readouterr().err

    assert "both models should be asked the same examples, but" in refused("--twin-checkpoint", checkpoints[1])
    assert "is compared with one other thing" in refused("--image-order", "congruent", "shuffled", "blank")
    assert "images can't be shuffled" in refused("--image-order", "shuffled")
    assert "should hold examples of test, but has train, valid" in refused("--split", "test")
    told = refused(*map(str, images(world)))
    assert "images are given, but" in told and f"{checkpoints[0]} learned from text alone. Leave them out" in told
    assert not (tmp_path / "s").exists()
