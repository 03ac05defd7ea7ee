"""A retriever whose image network is trained along: it learns, and its export finds what the model finds."""

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command
from PIL import Image
from torch import nn

from visual_grounding.cli.main import main
from visual_grounding.criterions.hardest_negative_triplet import HardestNegativeTripletCriterion
from visual_grounding.errors import InputError
from visual_grounding.features import image_network
from visual_grounding.features.backbones import Backbone, Preprocessing, load_backbone
from visual_grounding.models.visual_semantic_embedding import (
    VisualSemanticEmbeddingConfig,
    VisualSemanticEmbeddingModel,
)
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import Index
from visual_grounding.retrieval.recall import recall_summary
from visual_grounding.tasks.image_text_matching import ImageTextMatchingConfig, ImageTextMatchingTask

COLOURS = {
    "red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220), "white": (240, 240, 240), "black": (10, 10, 10)
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 pictures of a square on a ground, two captions each, and one file that is no picture; a data folder."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "pictures").mkdir()
    rng = np.random.default_rng(0)
    lines = []
    for square in COLOURS:
        for ground in COLOURS:
            if square != ground:
                pixels = np.full((24, 24, 3), COLOURS[ground]) + rng.normal(0, 8, (24, 24, 3))
                left, top = rng.integers(2, 8, 2)
                pixels[top : top + 14, left : left + 14] = COLOURS[square]
                name = f"{square}-{ground}.png"
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / "pictures" / name)
                lines += [f"{name}\ta {square} square on {ground}\n", f"{name}\t{ground} behind {square}\n"]
    (folder / "pictures/broken.png").write_bytes(b"no picture")
    (folder / "valid.tsv").write_text("".join(lines))
    (folder / "train.tsv").write_text("".join([*lines, "broken.png\ta red square\n"]))
    words = [*COLOURS, "a", "square", "on", "behind"]
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    return folder


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name `tiny` stands for a small network of 16 x 16 pixels whose map is 4 x 4."""

    def load(name: str, weights: str | None = None, image_size: int | None = None, seed: int = 1) -> Backbone:
        if name != "tiny":
            return load_backbone(name, weights, image_size, seed)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 1))
        return Backbone("tiny", network, Preprocessing(16, 16, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)), "none")

    monkeypatch.setattr(image_network, "load_backbone", load)


def build(world: Path, **flags: object) -> tuple[ImageTextMatchingTask, VisualSemanticEmbeddingModel]:
    config = ImageTextMatchingConfig(
        train_subset="train",
        data=str(world), image_folder=str(world / "pictures"), image_backbone="tiny", image_backbone_weights="none",
        text_encoder="bag", seed=1,
    )  # fmt: skip
    task = ImageTextMatchingTask.setup_task(config)
    torch.manual_seed(0)
    choices = {"joint_size": 16, "text_embed_size": 16, "image_dropout": 0.0, "joint_batch_norm": True} | flags
    flags = VisualSemanticEmbeddingConfig(text_encoder="bag", **choices)
    return task, VisualSemanticEmbeddingModel.build_model(flags, task)


def embed_split(task: ImageTextMatchingTask, model: VisualSemanticEmbeddingModel) -> dict[str, torch.Tensor]:
    """Both embeddings of the validation split, with rows."""
    dataset = task.dataset("valid")
    sample = dataset.collater([dataset[number] for number in range(len(dataset))])
    with torch.no_grad():
        text, images = model.eval()(**sample["net_input"])
    return {"text": text, "images": images, "rows": sample["image_rows"]}


@pytest.fixture
def trained(world, tiny, tmp_path):
    """Task and model after some epochs, the losses, and a checkpoint as fairseq writes it."""
    task, model = build(world)
    criterion = HardestNegativeTripletCriterion(task, 0.2, "both")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for split in ("train", "valid"):
        task.load_dataset(split)
    dataset = task.dataset("train")
    losses = []
    for epoch in range(1, 61):
        task.begin_epoch(epoch, model.train())
        dataset.set_epoch(epoch)
        sample = dataset.collater([dataset[number] for number in range(len(dataset))])
        loss, pairs, logged = criterion(model, sample)
        assert (pairs, logged["nsentences"]) == (40, 41)  # the broken picture takes no part
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()) / pairs)
    choices = {
        "_name": "visual_semantic_embedding", "text_encoder": "bag", "text_embed_size": 16, "sru_layers": 4,
        "text_dropout": 0.25, "image_dropout": 0.0, "joint_batch_norm": True, "text_encoder_freeze": False,
    }  # fmt: skip
    torch.save({"cfg": {"model": choices}, "args": Namespace(), "model": model.state_dict()}, tmp_path / "last.pt")
    return task, model, losses, tmp_path / "last.pt"


def test_image_network_learns_with_the_retriever(trained):
    task, model, losses, _ = trained
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    found = embed_split(task, model)
    images = torch.stack([found["images"][found["rows"].tolist().index(row)] for row in found["rows"].unique()])
    places = torch.unique(found["rows"], return_inverse=True)[1]
    scores = recall_summary(found["text"], images, places)
    assert scores["text_to_image_r5"] > 0.8, scores  # by chance 0.25


def test_gradient_reaches_every_parameter_of_the_image_network(world, tiny):
    task, model = build(world)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    sample = dataset.collater([dataset[number] for number in range(12)])
    text, images = model.train()(**sample["net_input"])
    (text @ images.T * torch.randn(12, 12)).sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == [] and all(parameter.grad.any() for parameter in model.image_network.parameters())


def test_export_index_and_retrieve_agree_with_the_model(trained, world, tmp_path, capsys):
    task, model, _, checkpoint = trained
    retriever = tmp_path / "retriever"
    assert main(["export", "--checkpoint", str(checkpoint), "--data", str(world), "--out", str(retriever)]) == 0
    assert "bag text encoder, joint size 16, tiny trained along" in capsys.readouterr().out
    assert json.loads((retriever / "config.json").read_text())["architecture"]["image_pooling"] == "weldon"
    source, index = str(world / "pictures"), str(tmp_path / "index")
    common = ["index", "--retriever", str(retriever), "--out", index, "--device", "cpu"]
    assert main([*common, "--images", source, "--batch-size", "7", "--shard-size", "10"]) == 0
    assert "1 of 21 images can't be read; they are never retrieved." in capsys.readouterr().out
    (tmp_path / "none").mkdir()
    (tmp_path / "none/a.png").write_bytes(b"no picture")
    flags = ["--retriever", str(retriever), "--out", str(tmp_path / "nothing"), "--device", "cpu"]
    assert main(["index", *flags, "--images", str(tmp_path / "none")]) == 2
    assert "All 1 images are unreadable; the first is a.png (not an image)" in capsys.readouterr().err
    found = embed_split(task, model)
    embeddings = torch.tensor(np.array(Index(index).embeddings))
    torch.testing.assert_close(embeddings[found["rows"]], found["images"], atol=1e-5, rtol=0)
    assert not embeddings[task.image_store.rows_of(["broken.png"])["broken.png"]].any()
    assert (tmp_path / "index/unreadable.tsv").read_text() == "broken.png\tnot an image\n"
    lines = [line.split("\t")[1] for line in (world / "valid.tsv").read_text().splitlines()]
    (tmp_path / "text").write_text("".join(line + "\n" for line in lines))
    flags = ["--method", "dense", "--text", str(tmp_path / "text"), "-n", "3", "--device", "cpu"]
    assert (
        main(["retrieve", *flags, "--retriever", str(retriever), "--index", index, "--out", str(tmp_path / "i")]) == 0
    )
    ids = ImageIds(tmp_path / "i").ids
    best = (found["text"] @ embeddings.T).masked_fill(~embeddings.any(dim=1), -9).topk(3).indices
    assert (torch.from_numpy(ids[:].astype(np.int64)) == best).float().mean() > 0.95  # near ties may change places


def test_retriever_refuses_features_for_pixels_and_pixels_for_features(trained, world, tmp_path, capsys):
    from conftest import write_store
    from small_retriever import make_retriever

    main(["export", "--checkpoint", str(trained[3]), "--data", str(world), "--out", str(tmp_path / "retriever")])
    store = write_store(tmp_path / "store", np.ones((2, 16, 16)))
    more = ["--out", str(tmp_path / "index"), "--device", "cpu"]
    flags = ["index", "--retriever", str(tmp_path / "retriever"), "--image-features", str(store), *more]
    assert main(flags) == 2
    assert "was trained with its image network, so it needs the images themselves, not their" in capsys.readouterr().err
    make_retriever(tmp_path / "features")
    flags = ["index", "--retriever", str(tmp_path / "features"), "--images", str(world / "pictures"), *more]
    assert main(flags) == 2
    assert "features was trained on features: give --image-features DIR" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "frozen"), [(None, [False, False]), (2, [True, False])])
def test_image_network_learns_after_its_frozen_epochs(world, tiny, flag, frozen, caplog):
    caplog.set_level("INFO")
    task, model = build(world, image_backbone_freeze_epochs=flag)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    sample = dataset.collater([dataset[number] for number in range(12)])
    for epoch, expected in zip((2, 3), frozen):
        task.begin_epoch(epoch, model.train())
        model.zero_grad()
        text, images = model(**sample["net_input"])
        (text @ images.T * torch.randn(12, 12)).sum().backward()
        assert {parameter.grad is None for parameter in model.image_network.parameters()} == {expected}
    assert ("tiny is frozen up to epoch 2" in caplog.text) == any(frozen)


def test_every_model_gets_a_network_of_its_own(world, tiny):
    task, first = build(world)
    task.cfg.image_backbone_weights = None  # pretrained: frozen for the first epochs
    flags = VisualSemanticEmbeddingConfig(text_encoder="bag", joint_size=4)
    second = VisualSemanticEmbeddingModel.build_model(flags, task)
    assert first.image_network is not second.image_network
    assert (first.freeze_epochs, second.freeze_epochs) == (0, 8)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"image_features": "store"},
            r"--image-features and --image-folder exclude each other, .* \(store, .*pictures",
        ),
        ({"image_folder": "nowhere"}, "nowhere should be a folder, a tar, a zip, .* but doesn't exist"),
        (
            {"image_backbone_weights": "IMAGENET", "image_backbone": "resnet18"},
            r"weights of resnet18, .* See --image-backbone-weights\.",
        ),
        (
            {"image_backbone": "scattering", "image_size": 32, "image_backbone_weights": None},
            r"has no weights to learn.* See --image-backbone\.",
        ),
    ],
)
def test_task_refuses_pictures_that_do_not_work(flags, message, world, tiny):
    values = {
        "data": str(world), "image_folder": str(world / "pictures"), "image_backbone": "tiny",
        "image_backbone_weights": "none", "text_encoder": "bag", "seed": 1,
    } | flags  # fmt: skip
    with pytest.raises(InputError, match=message):
        ImageTextMatchingTask.setup_task(ImageTextMatchingConfig(**values))


def test_task_refuses_captions_of_pictures_that_are_not_there(world, tiny, tmp_path):
    (tmp_path / "dict.txt").write_text((world / "dict.txt").read_text())
    (tmp_path / "train.tsv").write_text("red-blue.png\ta\nred-pink.png\ta\n")
    values = {"image_folder": str(world / "pictures"), "image_backbone": "tiny", "text_encoder": "bag", "seed": 1}
    task = ImageTextMatchingTask.setup_task(ImageTextMatchingConfig(data=str(tmp_path), **values))
    with pytest.raises(
        InputError, match=r"pictures, but 1 keys aren't, the first 'red-pink.png' \(there are 21 images"
    ):
        task.load_dataset("train")


def test_model_refuses_to_freeze_a_network_that_is_not_there(world, tiny):
    task, _ = build(world)
    task.take_image_network = lambda: None
    task.image_store = Namespace(num_regions=1, feature_size=4)
    flags = VisualSemanticEmbeddingConfig(text_encoder="bag", image_backbone_freeze_epochs=3)
    with pytest.raises(InputError, match="--image-backbone-freeze-epochs needs a network that is trained"):
        VisualSemanticEmbeddingModel.build_model(flags, task)


@pytest.mark.slow
def test_training_from_pictures_resumes_validates_and_exports(world, user_dir, tmp_path):
    flags = [
        world, "--user-dir", user_dir, "--task", "image_text_matching", "--image-folder", world / "pictures",
        "--image-backbone", "resnet18", "--image-backbone-weights", "none", "--image-size", 32, "--text-encoder", "bag",
        "--batch-size", 16, "--cpu", "--num-workers", 1, "--log-format", "simple", "--no-progress-bar",
    ]  # fmt: skip
    training = [
        "--arch", "visual_semantic_embedding", "--criterion", "hardest_negative_triplet", "--joint-size", 16,
        "--text-embed-size", 8, "--image-backbone-freeze-epochs", 1, "--optimizer", "adam", "--lr", 0.001, "--seed", 1,
        "--no-epoch-checkpoints", "--best-checkpoint-metric", "recall_sum", "--maximize-best-checkpoint-metric",
        "--save-dir", tmp_path,
    ]  # fmt: skip
    weights = []
    for epochs in (1, 2):
        done = run_command("fairseq-train", *flags, *training, "--max-epoch", epochs)
        assert done.returncode == 0, done.stderr
        state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)["model"]
        weights.append(state["image_network.network.0.weight"])
    log = done.stdout + done.stderr
    assert "Loaded checkpoint" in log and "absent 1" in log
    first = image_network.build_image_network("resnet18", "none", 32).network[0].weight
    assert torch.equal(weights[0], first) and not torch.equal(weights[1], first)
    done = run_command("fairseq-validate", *flags, "--path", tmp_path / "checkpoint_last.pt")
    assert done.returncode == 0 and "recall_sum" in done.stdout + done.stderr, done.stderr
    for verb in (
        ["export", "--checkpoint", tmp_path / "checkpoint_last.pt", "--data", world, "--out", tmp_path / "retriever"],
        ["index", "--retriever", tmp_path / "retriever", "--images", world / "pictures", "--out", tmp_path / "index"],
    ):
        done = run_command("visual-grounding", *verb)
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    assert "1 of 21 images can't be read" in done.stdout
    said = json.loads((tmp_path / "retriever/config.json").read_text())
    assert (said["kind"], said["image_features"]) == ("joint_embedding", None)  # it sees the pictures themselves
