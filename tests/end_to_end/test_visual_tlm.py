"""Pre-training with the real commands, in fresh processes: alone, in two processes, on real photos."""

import json
import re
import shutil

import numpy as np
import pytest
from commands import run_command, train_in_two_processes
from conftest import write_image_ids, write_store
from small_pairs import binarise

from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.checkpoints import load_checkpoint

SCORES = ("word_loss", "word_accuracy", "region_loss", "region_accuracy", "loss")


def logged(output: str, split: str) -> list[dict[str, float]]:
    """What was logged of a split, one dict an epoch."""
    found = [json.loads(line) for line in re.findall(r"\{.*\}", output) if '"epoch"' in line or '"valid_loss"' in line]
    begin = f"{split}_"
    return [
        {name.removeprefix(begin): float(value) for name, value in each.items() if name.startswith(begin)}
        for each in found
        if f"{begin}loss" in each
    ]


def test_pretraining_logs_both_parts_and_validation_repeats_the_best(tiny_pairs, pretrained_stream, user_dir):
    log = (pretrained_stream.parent / "log").read_text()
    scores = logged(log, "valid")
    assert len(scores) == 2 and all(set(SCORES) < set(each) for each in (*scores, *logged(log, "train")))
    for each in scores:
        assert each["loss"] == pytest.approx(each["word_loss"] + each["region_loss"], abs=2e-3)
    done = run_command(
        "fairseq-validate", tiny_pairs / "bin", "--user-dir", user_dir, "--task", "visual_tlm", "--path",
        pretrained_stream, "--lang-pairs", "en-de,en-fr", "--image-features", tiny_pairs / "store", "--image-ids",
        tiny_pairs / "ids", "--batch-size", 5, "--num-workers", 0, "--cpu", "--no-progress-bar", "--log-format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (again,) = logged(done.stdout + done.stderr, "valid")
    best = max(scores, key=lambda each: each["region_accuracy"])  # the first of equals, as fairseq keeps it
    last = [each for each in scores if each["region_accuracy"] == best["region_accuracy"]][-1]
    assert any(all(again[name] == pytest.approx(each[name], abs=2e-3) for name in SCORES) for each in (best, last))


@pytest.mark.slow
def test_pretraining_learns_words_and_regions_and_resumes(tiny_pairs, pretrain_flags, tmp_path):
    flags = pretrain_flags(tiny_pairs, tmp_path, "--dropout", 0, "--attention-dropout", 0, "--visual-dropout", 0)
    for epochs in (30, 60):
        done = run_command("fairseq-train", *flags, "--max-epoch", epochs)
        assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    assert "Loaded checkpoint" in output
    (*_, last) = logged(output, "valid")
    assert last["region_accuracy"] > 0.9 and last["word_accuracy"] > 0.6


@pytest.mark.slow
def test_two_processes_see_the_same_masks_and_log_the_same_scores(tiny_pairs, pretrain_flags, tmp_path):
    """Nothing is learned, so what is logged depends on masks and sums alone."""
    still = ["--lr", 0, "--dropout", 0, "--attention-dropout", 0, "--visual-dropout", 0]
    one = run_command("fairseq-train", *pretrain_flags(tiny_pairs, tmp_path / "one", *still))
    assert one.returncode == 0, one.stderr
    outputs = train_in_two_processes(*pretrain_flags(tiny_pairs, tmp_path / "two", *still))
    for split in ("train", "valid"):
        alone, together = logged(one.stdout + one.stderr, split), logged(outputs[0], split)
        assert len(alone) == len(together) == 2
        for first, second in zip(alone, together):
            assert [first[name] for name in SCORES] == pytest.approx([second[name] for name in SCORES], abs=2e-3), split


@pytest.mark.slow
@pytest.mark.data
def test_pretraining_on_real_regions_and_sentences(real_data, pretrain_flags, tmp_path):
    """600 sentences of Multi30k in two languages with the detected regions of their photos, score 0.3 and more."""
    text, regions = real_data / "flickr8k/multi30k_with_images", real_data / "flickr8k/regions"
    photos = [line.split("\t")[1] for line in (real_data / "flickr8k/images.tsv").read_text().splitlines()[1:]]
    kept = {}
    for split, name, count in (("train", "train", 600), ("valid", "val", 100)):
        rows = (text / f"{name}.index.tsv").read_text().splitlines()[1 : count + 1]
        kept[split] = [line.split("\t")[4] for line in rows]
        for language in ("en", "de"):
            lines = (text / f"{name}.{language}").read_text(encoding="utf-8").splitlines()[:count]
            (tmp_path / f"{split}.{language}").write_text("".join(line.lower() + "\n" for line in lines))
    keys = sorted({photo for each in kept.values() for photo in each})
    rows = [photos.index(key) for key in keys]
    arrays = {n: np.load(regions / f"{n}.npy")[rows] for n in ("features", "boxes", "labels", "scores")}
    unsure = arrays["scores"] < 0.3
    for name, nothing in (("features", 0), ("boxes", 0), ("labels", -1), ("scores", 0)):
        arrays[name][unsure] = nothing
    features = arrays.pop("features")
    names = (regions / "label_names.txt").read_text().splitlines()
    columns = {**arrays, "labels": arrays["labels"].astype(np.int32)}
    store = write_store(tmp_path / "store", features, keys, columns, label_names=names)
    for split, images in kept.items():
        ids = np.array([[keys.index(image)] for image in images], np.int32)
        write_image_ids(tmp_path / "ids" / split, ids, sha256_of_file(store / "keys.txt"))
    parts = ["--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid"]
    binarise("en", "de", tmp_path / "bin", "--joined-dictionary", "--thresholdsrc", 3, *parts)
    flags = pretrain_flags(tmp_path, tmp_path / "save", "--max-epoch", 8, "--lang-pairs", "en-de")
    done = run_command("fairseq-train", *flags)
    assert done.returncode == 0, done.stderr
    first, *_, last = logged(done.stdout + done.stderr, "valid")
    assert last["word_loss"] < first["word_loss"] and last["region_loss"] < first["region_loss"]
    assert load_checkpoint(tmp_path / "save/checkpoint_best.pt")["task_state"]["images_per_sentence"] == 1
    shutil.rmtree(tmp_path / "save")
