"""Translation with the modality loss and the real commands, in fresh processes: alone and in two."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from commands import run_command, train_in_two_processes

from visual_grounding.storage.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow
SCORES = ("loss", "nll_loss", "translation_loss", "modality_loss", "modality_cosine", "modality_weight")
SIZES = [
    flag
    for side in ("encoder", "decoder")
    for flag in (f"--{side}-layers", 2, f"--{side}-embed-dim", 32, f"--{side}-ffn-embed-dim", 64,
                 f"--{side}-attention-heads", 2)
]  # fmt: skip


def flags_of(folder: Path, user_dir: str, save_dir: Path, *more: object) -> list[object]:
    """Of `fairseq-train`: nothing drawn at random, so that two processes can be compared with one."""
    return [
        folder / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "-s", "en", "-t", "de",
        "--image-features", folder / "store", "--image-ids", folder / "ids", "--arch", "vtlm_translation_tiny", *SIZES,
        "--criterion", "label_smoothed_cross_entropy_with_modality_loss", "--modality-layers", "all", "--dropout", 0,
        "--attention-dropout", 0, "--visual-dropout", 0, "--optimizer", "adam", "--lr", 0.005, "--batch-size", 8,
        "--cpu", "--seed", 1, "--num-workers", 0, "--save-dir", save_dir, "--no-epoch-checkpoints",
        "--no-progress-bar", "--log-format", "json", *more,
    ]  # fmt: skip


def logged(output: str, split: str) -> list[dict[str, float]]:
    """What was logged of a split, one dict an epoch."""
    found = [json.loads(line) for line in re.findall(r"\{.*\}", output) if f'"{split}_loss"' in line]
    return [{name: float(each[f"{split}_{name}"]) for name in SCORES} for each in found]


@pytest.fixture(scope="module")
def alone(tiny_pairs, user_dir, tmp_path_factory) -> tuple[Path, str]:
    """Trained by one process, two batches an update; and what it printed."""
    folder = tmp_path_factory.mktemp("alone")
    done = run_command("fairseq-train", *flags_of(tiny_pairs, user_dir, folder, "--max-epoch", 2, "--update-freq", 2))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


def test_training_logs_both_parts_and_validation_chooses_by_translation(alone):
    train, valid = (logged(alone[1], split) for split in ("train", "valid"))
    assert len(train) == len(valid) == 2
    for each in train:
        assert each["loss"] == pytest.approx(each["translation_loss"] + each["modality_loss"], abs=2e-3)
        assert 0 < each["modality_weight"] < 1 and -1 < each["modality_cosine"] < 1
    for each in valid:
        assert each["loss"] == each["translation_loss"] and each["modality_loss"] > 0
    assert train[1]["modality_weight"] < train[0]["modality_weight"] <= 0.5  # what eq. 5 does by itself


def test_training_resumes_with_its_vectors_and_generation_needs_none(alone, tiny_pairs, user_dir, tmp_path):
    folder = shutil.copytree(alone[0], tmp_path / "resumed")
    state = load_checkpoint(folder / "checkpoint_last.pt")
    vectors = {f"token_weight.{name}" for name in ("target", "text", "regions")}
    assert set(state["criterion"]) == vectors and all(vector.any() for vector in state["criterion"].values())
    assert not any("token_weight" in name for name in state["model"])
    torch.save({**state, "criterion": None}, folder / "model_alone.pt")
    hypotheses = []
    for name in ("checkpoint_last.pt", "model_alone.pt"):
        done = run_command(
            "fairseq-generate", tiny_pairs / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "-s",
            "en", "-t", "de", "--image-features", tiny_pairs / "store", "--image-ids", tiny_pairs / "ids", "--path",
            folder / name, "--cpu", "--beam", 2, "--num-workers", 0, "--print-alignment",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        hypotheses.append([line for line in done.stdout.splitlines() if line.startswith(("H-", "A-"))])
    assert hypotheses[0] == hypotheses[1] and hypotheses[0]
    more = ["--max-epoch", 3, "--update-freq", 2]
    done = run_command("fairseq-train", *flags_of(tiny_pairs, user_dir, folder, *more))
    assert done.returncode == 0, done.stderr
    (third,) = logged(done.stdout + done.stderr, "train")
    assert third["modality_weight"] < logged(alone[1], "train")[1]["modality_weight"]


def test_validation_of_a_checkpoint_says_that_it_lacks_the_vectors(alone, tiny_pairs, user_dir):
    done = run_command(
        "fairseq-validate", tiny_pairs / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "-s", "en",
        "-t", "de", "--image-features", tiny_pairs / "store", "--image-ids", tiny_pairs / "ids", "--path",
        alone[0] / "checkpoint_last.pt", "--batch-size", 5, "--num-workers", 0, "--cpu", "--no-progress-bar",
        "--log-format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    assert output.count("modality_weight and modality_loss aren't logged") == 1
    (*_, found) = [json.loads(line) for line in re.findall(r"\{.*\}", output) if '"valid_loss"' in line]
    expected = logged(alone[1], "valid")[-1]
    for name in ("loss", "nll_loss", "translation_loss", "modality_cosine"):
        assert float(found[f"valid_{name}"]) == pytest.approx(expected[name], abs=3e-3), name
    assert not {"valid_modality_weight", "valid_modality_loss"} & set(found)


def test_two_processes_learn_the_same_vectors_and_log_the_same_means(alone, tiny_pairs, user_dir, tmp_path):
    outputs = train_in_two_processes(*flags_of(tiny_pairs, user_dir, tmp_path, "--max-epoch", 2))
    one, two = (load_checkpoint(folder / "checkpoint_last.pt")["criterion"] for folder in (alone[0], tmp_path))
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
    for split in ("train", "valid"):
        first, second = logged(alone[1], split), logged(outputs[0], split)
        assert len(first) == len(second) == 2
        for ours, theirs in zip(first, second):
            assert [ours[name] for name in SCORES] == pytest.approx([theirs[name] for name in SCORES], abs=3e-3), split
