"""CoMMuTE's way, with the real commands: score both translations by a trained model, and see which one it prefers."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
from commands import run_command

from visual_grounding.cli.main import main

SENSES = ("Schläger", "Fledermaus")


@pytest.mark.slow
def test_a_trained_model_prefers_the_translations_that_its_images_show(
    tiny_translation: Path, learned: Path, user_dir: str, tmp_path: Path
) -> None:
    """The last word of each sentence has two translations, and only the images tell which is right."""
    correct = (tiny_translation / "text/test.de").read_text(encoding="utf-8").splitlines()
    other = dict(zip(SENSES, reversed(SENSES)))
    incorrect = [re.sub("|".join(SENSES), lambda match: other[match[0]], line) for line in correct]
    sources = (tiny_translation / "text/test.en").read_text(encoding="utf-8")
    for side, lines in (("correct", correct), ("incorrect", incorrect)):
        (tmp_path / f"{side}.de").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        (tmp_path / f"{side}.en").write_text(sources, encoding="utf-8")
    done = run_command(
        "fairseq-preprocess", "-s", "en", "-t", "de", "--workers", 1, "--destdir", tmp_path / "bin",
        "--testpref", f"{tmp_path / 'correct'},{tmp_path / 'incorrect'}",
        "--srcdict", tiny_translation / "bin/dict.en.txt", "--tgtdict", tiny_translation / "bin/dict.de.txt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (tmp_path / "ids").mkdir()
    for subset, side in (("test", "correct"), ("test1", "incorrect")):
        (tmp_path / "ids" / subset).symlink_to(tiny_translation / "ids/test")
        done = run_command(
            "fairseq-generate", tmp_path / "bin", "--gen-subset", subset, "--user-dir", user_dir,
            "--task", "grounded_translation", "--image-features", tiny_translation / "store",
            "--image-ids", tmp_path / "ids", "--cpu", "--path", learned, "--score-reference",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (tmp_path / f"{side}.out").write_text(done.stdout, encoding="utf-8")
    given = {"correct": "correct.out", "incorrect": "incorrect.out", "reference": "correct.de", "out": "verdict"}
    words = [word for flag, name in given.items() for word in (f"--{flag}", str(tmp_path / name))]
    assert main(["evaluate", "contrastive", *words]) == 0
    ours = json.loads((tmp_path / "verdict/scores.json").read_text(encoding="utf-8"))["systems"]["hypothesis"]
    assert ours["right"] >= 11
    assert ours["verdicts"] == by_hand(tmp_path)


@pytest.mark.data
@pytest.mark.slow
def test_a_model_without_photos_is_right_on_half_of_the_real_rows(
    real_data: Path, user_dir: str, tmp_path: Path
) -> None:
    """Each sentence is there with both of its photos: what doesn't look prefers the same translation twice."""
    rows = real_data / "downstream/commute/en-fr_dev"
    for side in ("correct", "incorrect"):
        shutil.copy(rows / "src.en", tmp_path / f"{side}.en")
        shutil.copy(rows / f"{side}.fr", tmp_path / f"{side}.fr")
    commands = [
        ["fairseq-preprocess", "-s", "en", "-t", "fr", "--workers", 1, "--destdir", tmp_path / "bin", "--trainpref",
         tmp_path / "correct", "--validpref", tmp_path / "correct", "--testpref",
         f"{tmp_path / 'correct'},{tmp_path / 'incorrect'}"],
        ["fairseq-train", tmp_path / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "--cpu",
         "--arch", "text_only_transformer", "--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 16,
         "--encoder-ffn-embed-dim", 32, "--encoder-attention-heads", 2, "--decoder-attention-heads", 2,
         "--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam", "--lr", 0.01, "--batch-size", 20,
         "--max-epoch", 5, "--save-dir", tmp_path / "model", "--no-epoch-checkpoints", "--disable-validation"],
    ]  # fmt: skip
    for words in commands:
        done = run_command(*words)
        assert done.returncode == 0, done.stderr
    for subset, side in (("test", "correct"), ("test1", "incorrect")):
        done = run_command(
            "fairseq-generate", tmp_path / "bin", "--gen-subset", subset, "--user-dir", user_dir, "--cpu", "--task",
            "grounded_translation", "--path", tmp_path / "model/checkpoint_last.pt", "--score-reference",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (tmp_path / f"{side}.out").write_text(done.stdout, encoding="utf-8")
    files = ["--correct", tmp_path / "correct.out", "--incorrect", tmp_path / "incorrect.out"]
    words = [*files, "--reference", rows / "correct.fr", "--out", tmp_path / "verdict"]
    assert main(["evaluate", "contrastive", *map(str, words)]) == 0
    ours = json.loads((tmp_path / "verdict/scores.json").read_text(encoding="utf-8"))["systems"]["hypothesis"]
    assert (ours["right"], len(ours["verdicts"])) == (30, 60)
    assert all(sum(ours["verdicts"][pair : pair + 2]) == 1 for pair in range(0, 60, 2))


def by_hand(folder: Path) -> list[int]:
    """The verdicts out of what fairseq prints of each token (P-), without the means that are compared (H-)."""
    perplexities = {}
    for side in ("correct", "incorrect"):
        text = (folder / f"{side}.out").read_text(encoding="utf-8")
        found = {int(number): line.split() for number, line in re.findall(r"^P-(\d+)\t(.*)$", text, re.MULTILINE)}
        perplexities[side] = {
            number: math.exp(-math.log(2) * sum(map(float, scores)) / len(scores)) for number, scores in found.items()
        }
    right, wrong = perplexities["correct"], perplexities["incorrect"]
    assert sorted(right) == list(range(12))
    return [int(right[number] < wrong[number]) for number in range(12)]
