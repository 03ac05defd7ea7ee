"""Features that only fit by size are refused by every verb that meets them, and taken with one flag."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models import resnet18

from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.retrieval.joint_embedding import save_joint_embedding
from visual_grounding.text.words import Vocabulary, WordTokenizer

SIZE = 512
FLAG = "--image-features-unchecked"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos; stores of them by one network (pooled, grid, other photos), by one of random weights, and imported."""
    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    for name in ("photos", "others"):
        (folder / name).mkdir()
        for number in range(3):
            pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    torch.manual_seed(5)
    torch.save(resnet18(weights=None).state_dict(), folder / "trained.pth")
    extract = ["extract", "--backbone", "resnet18", "--image-size", 64, "--device", "cpu"]
    trained = ["--weights", folder / "trained.pth"]
    run(*extract, *trained, "--images", folder / "photos", "--out", folder / "pooled")
    run(*extract, *trained, "--images", folder / "others", "--out", folder / "other_photos")
    run(*extract, *trained, "--images", folder / "photos", "--pool", "grid", "--out", folder / "grid")
    run(*extract, "--weights", "none", "--images", folder / "photos", "--out", folder / "random")
    run(*extract, "--weights", "none", "--images", folder / "photos", "--pool", "grid", "--out", folder / "random_grid")
    np.save(folder / "noise.npy", rng.normal(size=(3, SIZE)).astype(np.float32))
    (folder / "keys").write_text("0.png\n1.png\n2.png\n")
    run("import", "--arrays", folder / "noise.npy", "--keys", folder / "keys", "--out", folder / "imported")
    config = JointEmbeddingConfig("bag", "linear", SIZE, 4, vocabulary_size=6, text_embed_size=3)
    embedding, tokenizer = JointEmbedding(config), WordTokenizer(Vocabulary(["dog", "cat"]))
    signature = FeatureStore(folder / "pooled").signature
    save_joint_embedding(folder / "retriever", embedding, tokenizer, "new", None, signature)
    save_joint_embedding(folder / "old", embedding, tokenizer, "old")
    description = json.loads((folder / "old/config.json").read_text())
    del description["kind"], description["image_features"]  # as it was exported before
    (folder / "old/config.json").write_text(json.dumps(description))
    return folder


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def index(world: Path, store: str, out: Path, *more: object, retriever: str = "retriever") -> int:
    flags = ["--retriever", world / retriever, "--image-features", world / store, "--out", out, "--device", "cpu"]
    return run("index", *flags, *more)


@pytest.mark.parametrize("store", ["pooled", "other_photos"])
def test_index_takes_features_that_were_made_alike(world, tmp_path, capsys, store):
    assert index(world, store, tmp_path / "index") == 0
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("store", "difference"),
    [("random", "another weights"), ("imported", "import instead of extract"), ("grid", "another pool")],
)
def test_index_refuses_features_of_another_making_with_both_signatures(world, tmp_path, capsys, store, difference):
    assert index(world, store, tmp_path / "index") == 2
    said = capsys.readouterr().err
    signatures = [FeatureStore(world / name).signature for name in (store, "pooled")]
    assert f"({difference}): {signatures[0]} ≠ {signatures[1]}. Make them with: visual-grounding extract" in said
    assert said.endswith(f" See {FLAG}.\n") and not list(tmp_path.iterdir())


@pytest.mark.parametrize("store", ["random", "imported"])
def test_index_takes_them_with_the_flag(world, tmp_path, capsys, store):
    assert index(world, store, tmp_path / "index", FLAG) == 0
    assert "3 images" in capsys.readouterr().out


def test_flag_changes_no_byte_of_an_index_that_needs_none(world, tmp_path):
    assert index(world, "pooled", tmp_path / "without") == index(world, "pooled", tmp_path / "with", FLAG) == 0
    for path in (tmp_path / "without").iterdir():
        assert path.read_bytes() == (tmp_path / "with" / path.name).read_bytes()


def test_retriever_of_before_warns_once_that_nothing_is_checked(world, tmp_path, capsys):
    assert index(world, "random", tmp_path / "index", retriever="old") == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warned) == 1
    assert f"retriever {world / 'old'} doesn't say how the features that it was trained on were made" in warned[0]
    assert index(world, "random", tmp_path / "again", FLAG, retriever="old") == 0
    assert "warning" not in capsys.readouterr().err


def test_heat_map_takes_a_grid_of_the_same_network_and_refuses_another(world, tmp_path, capsys):
    flags = ["--retriever", world / "retriever", "--images", world / "photos", "--pair", "0.png", "dog"]
    flags += ["--device", "cpu", "--out", tmp_path / "heat"]
    assert run("report", "heatmap", *flags, "--image-features", world / "grid") == 0
    assert run("report", "heatmap", *flags, "--image-features", world / "random_grid") == 2
    said = capsys.readouterr().err
    assert "(another weights): extract|images:3|backbone:resnet18|weights:random-1" in said
    assert said.endswith(f" See {FLAG}.\n")
    assert run("report", "heatmap", *flags, "--image-features", world / "random_grid", FLAG) == 0


def test_doctor_finds_features_of_another_making(world, capsys):
    flags = ["--retriever", world / "retriever"]
    assert run("doctor", *flags, "--image-features", world / "other_photos") == 0
    capsys.readouterr()
    assert run("doctor", *flags, "--image-features", world / "random") == 2
    said = capsys.readouterr().out
    assert "(another weights): extract|" in said and f" See {FLAG}.\n" in said
    assert run("doctor", *flags, "--image-features", world / "random", FLAG) == 0
    capsys.readouterr()
    assert run("doctor", "--retriever", world / "old", "--image-features", world / "random") == 0
    assert f"note   retriever {world / 'old'} doesn't say how the features" in capsys.readouterr().out
