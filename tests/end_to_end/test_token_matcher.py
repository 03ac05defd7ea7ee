"""fairseq-train, export, index in fresh processes: a matcher of tokens and coloured things, and its vokenizer."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import run_command, train_in_two_processes
from conftest import write_store
from small_matcher import make_bert

from visual_grounding.cli.main import main
from visual_grounding.retrieval.index import Index
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.text.captions import read_captions

COLOURS = ["red", "green", "blue", "black", "white", "pink"]
THINGS = ["dog", "cat", "boat", "tree"]
WORDS = ["a", "the", "is", ".", *COLOURS, *THINGS]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images of a coloured thing (one-hot colour and thing), two captions each; a data folder and a BERT."""
    folder = tmp_path_factory.mktemp("matching")
    names = [(colour, thing) for colour in COLOURS for thing in THINGS]
    features = np.zeros((24, 1, 10))
    for row, (colour, thing) in enumerate(names):
        features[row, 0, [COLOURS.index(colour), 6 + THINGS.index(thing)]] = 1
    write_store(folder / "store", features)
    lines = [
        f"image{row}.jpg\t{caption}\n"
        for row, (colour, thing) in enumerate(names)
        for caption in (f"a {colour} {thing} .", f"the {thing} is {colour}")
    ]
    (folder / "captions.tsv").write_text("".join(lines))
    make_bert(folder / "bert", WORDS)
    shutil.copy(folder / "captions.tsv", folder / "valid.tsv")
    captions = ["--train", str(folder / "captions.tsv"), "--valid", str(folder / "valid.tsv")]
    flags = ["prepare", "captions", *captions, "--out", str(folder / "data")]
    assert main(flags) == 0
    return folder


def training(world: Path, user_dir: str, save_dir: Path, *more: object) -> list[object]:
    """A command line of fairseq-train."""
    return [
        world / "data", "--user-dir", user_dir, "--task", "image_text_matching", "--arch", "token_image_matching",
        "--criterion", "token_image_hinge", "--image-features", world / "store", "--matcher-layers", 3,
        "--caption-pieces", 12, "--batch-size", 12, "--optimizer", "adam", "--lr", 0.01, "--clip-norm", 5, "--cpu",
        "--seed", 1, "--num-workers", 0, "--no-epoch-checkpoints", "--best-checkpoint-metric", "token_to_image_r10",
        "--maximize-best-checkpoint-metric", "--save-dir", save_dir, "--no-progress-bar", "--log-format", "simple",
        *more,
    ]  # fmt: skip


def logged(output: str) -> list[dict[str, float]]:
    """The numbers of each validation."""
    lines = re.findall(r"valid on 'valid' subset \| (.*)", output)
    return [{name: float(value) for name, value in re.findall(r"(\w+) ([-\d.]+)", line)} for line in lines]


@pytest.mark.slow
def test_matcher_from_training_to_its_vokenizer_and_index(world: Path, user_dir: str, tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    source = shutil.copytree(world / "bert", tmp_path / "bert")
    flags = training(world, user_dir, tmp_path / "ck", "--text-encoder", source, "--max-epoch", 3)
    done = run_command("fairseq-train", *flags, "--token-image-negatives", "all")
    assert done.returncode == 0, done.stderr
    scores = logged(done.stdout)
    # Of a caption's four words two say something: "dog" is on 6 images, "red" on 4. A token that says nothing finds its
    # image among the first 10 of 24 in 10 of 24 cases.
    assert len(scores) == 3 and scores[-1]["loss"] < scores[0]["loss"]
    best = max(score["token_to_image_r10"] for score in scores)
    assert best > 0.6 and f"score {best:g})" in done.stdout
    checkpoint = tmp_path / "ck/checkpoint_best.pt"
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    done = run_command("visual-grounding", "export", "--checkpoint", checkpoint, "--out", tmp_path / "vokenizer")
    assert done.returncode == 0 and "token matcher, last 3 layers of the text encoder" in done.stdout, done.stderr
    shutil.rmtree(source)
    retriever: Any = Retriever.load(tmp_path / "vokenizer")
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[index] for index in range(len(dataset))])
    given = batch["net_input"]
    with torch.no_grad():
        tokens, images = model.eval()(**given)
        found = retriever.embed_tokens(given["tokens"], given["token_padding_mask"])
    assert torch.equal(found, tokens) and found.any(dim=2).tolist() == (~given["token_padding_mask"]).tolist()
    captions = [caption for _, caption in read_captions(world / "data/valid.tsv")]
    encoded, cut = retriever.tokenize(captions)
    assert cut == 0 and encoded == [row[row != 0].tolist() for row in given["tokens"]]
    place = ["--retriever", tmp_path / "vokenizer", "--image-features", world / "store", "--out", tmp_path / "index"]
    done = run_command("visual-grounding", "index", *place)
    assert done.returncode == 0, done.stderr
    index = Index(tmp_path / "index")
    index.check_retriever(retriever)
    np.testing.assert_allclose(index.embeddings[batch["image_rows"]], images.numpy(), atol=1e-6)


@pytest.mark.slow
def test_two_processes_train_and_score_as_one(world: Path, user_dir: str, tmp_path: Path) -> None:
    """Three batches of 16 captions on two ranks: fairseq gives the second one an empty batch.

    They learn what one process learns that takes two batches an update.
    """
    more = [
        "--text-encoder",
        world / "bert",
        "--batch-size",
        16,
        "--matcher-dropout",
        0,
        "--optimizer",
        "sgd",
        "--lr",
        0.5,
    ]
    outputs = train_in_two_processes(*training(world, user_dir, tmp_path / "ck", *more), "--max-epoch", 2)
    before, scores = logged(outputs[0])
    assert before["loss"] != scores["loss"]
    one = training(world, user_dir, tmp_path / "one", *more, "--update-freq", 2)
    assert run_command("fairseq-train", *one, "--max-epoch", 2).returncode == 0
    weights = [load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("ck", "one")]
    for name, weight in weights[1].items():
        torch.testing.assert_close(weights[0][name], weight, rtol=1e-4, atol=1e-6)
    done = run_command(
        "fairseq-validate", world / "data", "--user-dir", user_dir, "--task", "image_text_matching",
        "--image-features", world / "store", "--path", tmp_path / "ck/checkpoint_last.pt", "--batch-size", 16, "--cpu",
        "--log-format", "simple", "--no-progress-bar",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    alone = logged(done.stdout)[-1]
    names = [name for name in scores if re.fullmatch(r"loss|violations|recall_sum|(text|image|token)_to_\w+", name)]
    assert len(names) == 15 and {name: scores[name] for name in names} == {name: alone[name] for name in names}
