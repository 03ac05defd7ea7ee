"""Features of another network are refused by every command that loads a checkpoint, in fresh processes."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command
from conftest import write_image_ids, write_store

from visual_grounding.errors import InputError
from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.checkpoints import load_checkpoint

NOISE = "extract|images:24|backbone:noise|version:0.0.1"
REFUSED = (
    r"noise should hold features made as those that the checkpoint was trained on.*: extract\|images:24.* ≠ test\. "
)


@pytest.fixture(scope="module")
def noise(tiny_translation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random numbers under the right keys, and of the right size."""
    features = np.random.default_rng(3).random((24, 3, 6))
    return write_store(tmp_path_factory.mktemp("stores") / "noise", features, signature=NOISE)


def generate(
    folder: Path, user_dir: str, path: object, store: Path, ids: Path, *more: object
) -> subprocess.CompletedProcess:
    return run_command(
        "fairseq-generate", folder / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "--path", path,
        "--image-features", store, "--image-ids", ids, "--cpu", *more,
    )  # fmt: skip


def hypotheses(done: subprocess.CompletedProcess) -> list[str]:
    assert done.returncode == 0, done.stderr
    return sorted(line for line in done.stdout.splitlines() if line.startswith("H-"))


def check_refused(done: subprocess.CompletedProcess) -> None:
    assert done.returncode == 2 and re.search(f"error: .*{REFUSED}", done.stderr), done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("--image-features-unchecked") == 1


def test_checkpoint_remembers_its_images_and_words(trained):
    state = load_checkpoint(trained)["task_state"]
    assert (state["image_features"], state["images_per_sentence"]) == ("test", 2)
    assert {name: len(digest) for name, digest in state["dictionaries"].items()} == {"source": 64, "target": 64}


@pytest.mark.parametrize("command", ["generate", "finetune"])
def test_same_words_in_another_order_are_refused(command, tiny_translation, trained, user_dir, train_flags, tmp_path):
    shutil.copytree(tiny_translation / "bin", tmp_path / "bin")
    for name in ("store", "ids"):
        (tmp_path / name).symlink_to(tiny_translation / name)
    path = tmp_path / "bin/dict.de.txt"
    path.write_text("".join(sorted(path.read_text().splitlines(True))))
    if command == "generate":
        done = generate(tmp_path, user_dir, trained, tmp_path / "store", tmp_path / "ids")
    else:
        flags = train_flags(tmp_path, tmp_path / "save", "--finetune-from-model", trained)
        done = run_command("fairseq-train", *flags)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    learned = load_checkpoint(trained)["task_state"]["dictionaries"]["target"]
    assert re.search(f"^error: {path} should have the words that the .* of theirs {learned}", done.stderr, re.MULTILINE)


def test_generation_refuses_random_numbers_under_the_right_keys_unless_a_flag_takes_them(
    tiny_translation, trained, noise, user_dir
):
    ids = tiny_translation / "ids"
    check_refused(generate(tiny_translation, user_dir, trained, noise, ids))
    done = generate(tiny_translation, user_dir, trained, noise, ids, "--image-features-unchecked")
    assert len(hypotheses(done)) == 12


def test_generation_takes_other_photos_by_the_same_network(tiny_translation, trained, user_dir, tmp_path):
    store = write_store(tmp_path / "store", np.random.default_rng(4).random((9, 3, 6)), [f"other{n}" for n in range(9)])
    write_image_ids(tmp_path / "ids/test", np.arange(12)[:, None] % 9, sha256_of_file(store / "keys.txt"))
    done = generate(tiny_translation, user_dir, trained, store, tmp_path / "ids")
    assert len(hypotheses(done)) == 12 and "doesn't say" not in done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("was trained with 2 images a sentence, but image ids in") == 1


@pytest.mark.slow
def test_checkpoint_made_before_warns_once_and_translates_the_same(tiny_translation, trained, user_dir, tmp_path):
    state = load_checkpoint(trained)
    state["task_state"] = {}  # as version 0.1.0 left it
    torch.save(state, tmp_path / "old.pt")
    ids = tiny_translation / "ids"
    old = generate(tiny_translation, user_dir, f"{tmp_path}/old.pt:{tmp_path}/old.pt", tiny_translation / "store", ids)
    assert (old.stdout + old.stderr).count("the checkpoint doesn't say how the image features that it was") == 1
    new = generate(tiny_translation, user_dir, f"{trained}:{trained}", tiny_translation / "store", ids)
    assert hypotheses(old) == hypotheses(new) and "doesn't say" not in new.stdout + new.stderr
    assert "images a sentence, but" not in old.stdout + old.stderr + new.stdout + new.stderr


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_training_refuses_to_go_on_with_features_of_another_making(
    flag, tiny_translation, trained, noise, train_flags, tmp_path
):
    flags = train_flags(tiny_translation, tmp_path, flag, trained, "--image-features", noise, "--max-epoch", 3)
    check_refused(run_command("fairseq-train", *flags))
    assert not list(tmp_path.glob("*.pt"))


def test_validation_and_ensembles_refuse_them_too(tiny_translation, trained, noise, tmp_path):
    """`fairseq-validate` loads its model and task by this function, with the flags that were given as overrides."""
    from fairseq import checkpoint_utils

    overrides = {"image_features": str(noise)}
    with pytest.raises(InputError, match=REFUSED):
        checkpoint_utils.load_model_ensemble_and_task([str(trained)], arg_overrides=overrides)
    state = load_checkpoint(trained)
    state["task_state"] = {"image_features": NOISE}
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"store should hold .*: test ≠ extract\|images:24"):
        checkpoint_utils.load_model_ensemble_and_task([str(trained), str(tmp_path / "other.pt")])


def test_interactive_refuses_them_too(tiny_translation, trained, noise, user_dir, tmp_path):
    (tmp_path / "typed").write_text("a bat\n")
    check_refused(
        run_command(
            "fairseq-interactive", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
            "--path", trained, "--image-features", noise, "--image-ids", tiny_translation / "ids", "--cpu",
            "-s", "en", "-t", "de", "--input", tmp_path / "typed",
        )
    )  # fmt: skip
