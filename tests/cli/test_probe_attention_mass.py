"""`probe attention-mass`: numbers, plot and photo of a small model whose decoder attends to regions."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_watched import watched

from visual_grounding.cli.main import main
from visual_grounding.cli.probe_attention_mass import _drawing
from visual_grounding.probes.attention_mass import shares_of
from visual_grounding.probes.trained import load_split, load_trained

QUICK = ["--device", "cpu", "--bootstrap-samples", "40", "--batch-size", "7"]


@pytest.fixture(scope="module")
def world(animals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned to look, and the photos of its store."""
    folder = tmp_path_factory.mktemp("attention")
    watched(animals, folder / "watched.pt", updates=60)
    (folder / "photos").mkdir()
    for key in (animals / "store/keys.txt").read_text().split():
        Image.new("RGB", (60, 40), "grey").save(folder / "photos" / key)
    return folder


def probe(world: Path, *flags: object, checkpoint: Path | None = None, out: str = "out") -> int:
    common = ["--checkpoint", checkpoint or world / "watched.pt", "--out", world / out]
    return main(["probe", "attention-mass", *map(str, [*common, *QUICK, *flags])])


def test_numbers_plot_and_photo_of_one_run(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = ["--sentence", 4, "--images", world / "photos"]
    assert probe(world, "--image-order", "congruent", "shuffled", *drawn) == 0
    report: dict[str, Any] = json.loads((world / "out/results.json").read_text(encoding="utf-8"))
    trained = load_trained(world / "watched.pt", "grounded_translation", torch.device("cpu"), {})
    shares = shares_of(trained, load_split(trained, "test"), "test", 24)
    every = np.concatenate(shares.on_regions, axis=1)  # (layers, tokens)
    assert (report["n"], report["sentences"], report["tokens"]) == (24, 24, every.shape[1])
    congruent, shuffled = report["runs"]
    assert (congruent["images"], shuffled["images"]) == ("congruent", "shuffled")
    values = [layer["value"] for layer in congruent["layers"]]
    assert values == pytest.approx(every.mean(axis=1).tolist(), abs=1e-5)
    assert all(layer["low"] < layer["value"] < layer["high"] for layer in congruent["layers"])
    evens = [regions / (words + regions) for words, regions in shares.visible]
    assert congruent["even"] == pytest.approx(np.average(evens, weights=[each.shape[1] for each in shares.on_regions]))
    swapped = shares_of(trained, load_split(trained, "test", "shuffled"), "test", 24)
    others = np.concatenate(swapped.on_regions, axis=1).mean(axis=1)
    assert [layer["value"] for layer in shuffled["layers"]] == pytest.approx(others.tolist(), abs=1e-5)
    assert np.abs(others - values).max() > 1e-3  # other photos, other shares
    (pair,) = report["comparisons"]
    deltas = [one - two["value"] for one, two in zip(values, shuffled["layers"])]
    assert [layer["delta"] for layer in pair["layers"]] == pytest.approx(deltas, abs=1e-5)
    assert np.array(report["sentence"]["on_boxes"]).shape == (2, len(report["sentence"]["tokens"]), 1, 2)
    for name in ("attention-mass.png", "sentence-4.png"):
        with Image.open(world / "out" / name) as drawn:
            assert drawn.format == "PNG"
    assert not list((world / "out").glob("*.tmp"))
    said = capsys.readouterr().out
    (row,) = [line.split() for line in said.splitlines() if line.split()[:1] == ["2"]][:1]
    assert row[1] == f"{values[1]:.3f}"
    assert f"24 of 24 sentences of test, {report['tokens']} target tokens" in said
    assert re.search(rf"even attention +{congruent['even']:.3f} ", said)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sentence", "4"], r"so both should be named\. See --sentence and --images"),
        (["--image-order", "blank"], r"so blank tells nothing\. See --image-order"),
        (["--sentence", "24", "--images", "photos"], r"one of the 24 of test, 0 to 23, but is 24\. See --sentence"),
        (["--sentence", "4", "--images", "others"], "can't be shown: 1 aren't in"),
    ],
)
def test_bad_input_is_refused_in_words(
    flags: list[str], message: str, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (world / "others").mkdir(exist_ok=True)
    Image.new("RGB", (8, 8)).save(world / "others/else.jpg")
    flags = [str(world / flag) if flag in ("photos", "others") else flag for flag in flags]
    assert probe(world, *flags, out="refused") == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (world / "refused").exists()


def test_a_model_that_attends_to_text_alone_is_refused(
    world: Path, animals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe(world, checkpoint=animals / "seeing.pt", out="refused") == 2
    assert (
        "its architecture is visual_aware_transformer, whose decoder attends to text alone" in capsys.readouterr().err
    )


def test_boxes_are_drawn_with_the_mean_of_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    from visual_grounding.analysis import attention_pictures

    drawn: list[np.ndarray] = []
    monkeypatch.setattr(
        attention_pictures, "draw_tokens", lambda path, image, boxes, weights, *_: drawn.append(weights)
    )
    # Two layers, one token, two images of one box: of the first image 0.5 * 0.2 and 0.1 * 1.0.
    looked = SimpleNamespace(
        on_regions=np.array([[0.5], [0.1]]),
        on_boxes=np.array([[[[0.2], [0.8]]], [[[1.0], [0.0]]]]),
        keys=["a.jpg", "b.jpg"],
        boxes=np.zeros((2, 1, 4)),
        tokens=["dog"],
    )
    _drawing(looked, (0, Image.new("RGB", (4, 4))))(Path("out.png"))
    np.testing.assert_allclose(drawn[0], [[(0.5 * 0.2 + 0.1 * 1.0) / 2]])
