"""Extractors that are more than a pooled map: pictures of any size, fewer regions than R, boxes, labels."""

import os
import re
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.features.tile_detector import TILE, TileDetector, tile_detector
from visual_grounding.errors import InputError
from visual_grounding.features import backbones, extraction, extractors
from visual_grounding.features.backbones import Backbone, Preprocessing, load_backbone
from visual_grounding.features.columns import COLUMNS, Columns
from visual_grounding.features.computation import Computation, choose_computation
from visual_grounding.features.dry_run import dry_run
from visual_grounding.features.extraction import extract
from visual_grounding.features.extractors import load_extractor
from visual_grounding.features.map_boxes import BoxedMapExtractor
from visual_grounding.features.map_extractor import MEAN, MapExtractor, Pooling
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images

CPU = Computation(torch.device("cpu"))
OUTSIDE = "tests.features.tile_detector:tile_detector"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """7 pictures of different sizes: number 2 is black, 3 broken, 4 smaller than a tile, 5 has one bright tile."""
    folder, rng = tmp_path / "images", np.random.default_rng(0)
    folder.mkdir()
    for number in range(7):
        pixels = rng.integers(0, 256, (24 + 5 * number, 40 - 3 * number, 3)).astype(np.uint8)
        if number in (2, 5):
            pixels[:] = 0
        if number == 5:
            pixels[8:16, 16:24] = (10, 20, 250)
        Image.fromarray(pixels[:5] if number == 4 else pixels).save(folder / f"{number}.png")
    (folder / "3.png").write_bytes(b"x")
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_detector_fills_the_columns_of_a_store(images: Path, tmp_path: Path) -> None:
    summary = extract(open_images(images), TileDetector(CPU, threshold=0.05), tmp_path / "out", 2, shard_size=3)
    store = FeatureStore(tmp_path / "out")
    assert (summary.images, summary.regions, summary.size, summary.unreadable, summary.zero) == (7, 4, 3, 2, 1)
    assert store.columns == tuple(COLUMNS) == summary.columns and summary.cleared == 0
    assert store.label_names == ["red", "green", "blue"]
    listed = (tmp_path / "out/unreadable.tsv").read_text()
    assert listed.startswith("3.png\tnot an image\n4.png\t28x5 pixels, smaller than a tile\n")
    features, absent = store.gather(np.arange(7))
    assert absent.tolist() == [
        [False] * 4,
        [False] * 4,
        [True] * 4,
        [True] * 4,
        [True] * 4,
        [False] + [True] * 3,
        [False] * 4,
    ]
    found = store.gather_columns(np.arange(7))
    # Picture 5 has 49x25 pixels; its bright tile is the second from the top, the third of 3: in the right half.
    np.testing.assert_allclose(found["boxes"][5, 0], [16 / 25, 8 / 49, 24 / 25, 16 / 49], rtol=1e-6)
    assert found["labels"][5].tolist() == [2, -1, -1, -1] and found["attributes"][5].tolist() == [1, -1, -1, -1]
    np.testing.assert_allclose(features[5, 0], np.array([20, 40, 500]) / 255, rtol=1e-3)
    for row in (0, 1, 6):
        picture = np.asarray(Image.open(images / f"{row}.png")) / 255
        x0, y0, x1, y1 = (found["boxes"][row] * ([*picture.shape[1::-1]] * 2)).round().astype(int).T
        for region in range(4):
            tile = picture[y0[region] : y1[region], x0[region] : x1[region]]
            assert tile.shape == (TILE, TILE, 3)
            np.testing.assert_allclose(features[row, region], 2 * tile.mean(axis=(0, 1)), rtol=2e-3)
            assert found["labels"][row, region] == tile.mean(axis=(0, 1)).argmax()
        assert (np.diff(found["scores"][row].astype(float)) <= 0).all()


def test_store_of_a_detector_has_the_same_bytes_when_interrupted_and_with_any_threads(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: str, workers: int = 1) -> None:
        extract(open_images(images), TileDetector(CPU), tmp_path / out, batch_size=2, shard_size=3, workers=workers)

    run("whole")
    run("threads", workers=5)
    write, written = extraction.StoreWriter.write, []

    def interrupted(self: extraction.StoreWriter, *arguments: Any) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(write(self, *arguments))

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extraction.StoreWriter, "write", interrupted)
        run("out")
    assert not (tmp_path / "out").exists()
    (images / "0.png").write_bytes(bytes((images / "0.png").stat().st_size))  # its shard is done: not read again
    run("out")
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole") == content_of(tmp_path / "threads")
    assert {"boxes.npy", "label_names.txt", "attribute_names.txt"} < set(content_of(tmp_path / "out"))


def test_dry_run_of_a_detector_counts_its_columns(images: Path, tmp_path: Path) -> None:
    for path in ("2.png", "3.png", "4.png"):
        (images / path).unlink()  # each would be listed, which a dry run can't know
    arguments = (open_images(images), TileDetector(CPU), tmp_path / "out", 2, 3)
    found = dry_run(*arguments)
    assert found.images_left == 4 and found.pace is not None and not (tmp_path / "out.partial").exists()
    assert "(4, 4, 3) float16 with boxes, labels, attributes, scores" in found.describe()
    extract(*arguments)
    assert found.size == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert dry_run(*arguments).estimate.finished


def test_signature_and_plan_say_what_the_extractor_says(images: Path, tmp_path: Path) -> None:
    extract(open_images(images), TileDetector(CPU), tmp_path / "out", 2)
    store = FeatureStore(tmp_path / "out")
    made, names = store.signature.split("|label_names:")
    assert made == "extract|images:7|detector:tiles|weights:2.0|threshold:0.25|precision:float32"
    assert re.fullmatch(r"[0-9a-f]{8}\|attribute_names:[0-9a-f]{8}\|version:.+", names)
    assert store.plan["columns"] == list(COLUMNS) and store.plan["batch_size"] == 2
    with pytest.raises(InputError, match=r"threshold was 0\.25, now 0\.5"):
        extract(open_images(images), TileDetector(CPU, threshold=0.5), tmp_path / "out", 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows: rows.pop("scores"),
            r"into features, boxes, labels, attributes, scores.* but made attr",
        ),
        (lambda rows: rows.update(masks=rows["boxes"]), r"but made .*, masks, scores"),
        (lambda rows: rows.update(features=rows["features"][:, :2]), r"of shape \(2, 4, 3\), but .*shape \(2, 2, 3\)"),
        (lambda rows: rows.pop("features"), r"but made attributes, boxes, labels, scores, features of shape None"),
        (lambda rows: rows.update(labels=rows["labels"][:, :2]), r"labels should be whole numbers of shape \(7, 4\)"),
        (lambda rows: rows.update(labels=rows["scores"]), r"labels should be whole .*, but are float32 of \(7, 4\)"),
        (lambda rows: rows["boxes"].add_(0.5), r"boxes should be x0 y0 x1 y1 in 0\.\.1 .*row 0 \(0\.png\), region"),
        (lambda rows: rows["labels"].add_(1), r"labels should be -1 for none, or 0 to 2.* has 3\."),
    ],
)
def test_extractor_that_does_not_keep_its_promise_is_refused(
    images: Path, tmp_path: Path, change: Any, message: str
) -> None:
    class Faulty(TileDetector):
        def rows(self, pictures: Any) -> dict[str, torch.Tensor]:
            with torch.inference_mode():
                rows = super().rows(pictures)
                change(rows)
            return rows

    with pytest.raises(InputError, match=message):
        extract(open_images(images), Faulty(CPU), tmp_path / "out", batch_size=2)
    assert not (tmp_path / "out").exists()


def test_memory_that_does_not_suffice_for_a_detector_says_so(images: Path, tmp_path: Path) -> None:
    detector = TileDetector(CPU)

    def greedy(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError

    detector.network.forward = greedy
    with pytest.raises(InputError, match=r"3 images at once don't fit .* of cpu\. Choose a smaller") as caught:
        extract(open_images(images), detector, tmp_path / "out", batch_size=3)
    assert caught.value.choices == ("batch_size",)


def test_computation_in_bfloat16_reaches_the_detectors_network(images: Path, tmp_path: Path) -> None:
    for precision in ("float32", "bfloat16"):
        extract(
            open_images(images), TileDetector(choose_computation("cpu", precision), weight=2.3), tmp_path / precision
        )
    plain, mixed = (FeatureStore(tmp_path / name).features.astype(float) for name in ("float32", "bfloat16"))
    assert 1e-4 < np.abs(plain - mixed).max() / plain.max() < 0.02


def test_load_extractor_knows_maps_and_extractors_from_outside() -> None:
    plain = load_extractor("scattering", None, None, 1, MEAN, CPU)
    assert isinstance(plain, MapExtractor) and plain.shape == (1, 216)
    found = load_extractor(OUTSIDE, "3.5", None, 1, MEAN, CPU)
    assert isinstance(found, TileDetector) and found.plan["weights"] == "3.5"
    with pytest.raises(InputError, match=rf"{OUTSIDE} has no map to be pooled, but the pooling is grid"):
        load_extractor(OUTSIDE, None, None, 1, Pooling("grid", 2), CPU)
    assert isinstance(load_extractor("scattering", None, None, 1, MEAN, CPU, boxes=True), BoxedMapExtractor)
    with pytest.raises(InputError, match=rf"{OUTSIDE} says by itself what its store has, boxes or none: leave them"):
        load_extractor(OUTSIDE, None, None, 1, MEAN, CPU, boxes=True)
    with pytest.raises(InputError, match=rf"{OUTSIDE} should make a Backbone, since its map is .* made a function"):
        load_backbone(OUTSIDE)
    with pytest.raises(InputError, match=r"the image size should be 1 to 8192 pixels, but is 0"):
        load_extractor(OUTSIDE, None, 0, 1, MEAN, CPU)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (5, r"outside\.part:it should make a Backbone, or a function that makes an Extractor .*, but made a int"),
        (
            lambda computation: object(),
            r"what it made, a object, has no shape, columns, computation, plan, ",
        ),
    ],
)
def test_what_is_no_extractor_is_refused(monkeypatch: pytest.MonkeyPatch, made: Any, message: str) -> None:
    monkeypatch.setattr(extractors, "load_extension_backbone", lambda *_: made)
    with pytest.raises(InputError, match=message):
        load_extractor("outside.part:it", None, None, 1, MEAN, CPU)


def test_names_from_outside_that_lead_nowhere_are_refused() -> None:
    with pytest.raises(InputError, match=r"backbone tests\.nothing:it can't be loaded: No module named 'tests\.n"):
        load_backbone("tests.nothing:it")
    with pytest.raises(InputError, match=r"backbone tests\.conftest:it can't be loaded: module .* has no attribute"):
        load_backbone("tests.conftest:it")
    with pytest.raises(InputError, match=r"tests\.conftest:REPOSITORY should be a function or a class, but is a Po"):
        load_backbone("tests.conftest:REPOSITORY")
    with pytest.raises(
        InputError, match=r"os\.path:join should take weights, image_size, seed by name, but doesn't: mi"
    ):
        load_backbone("os.path:join")


def test_an_adapter_is_asked_by_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever function it says that it wraps."""

    @wraps(os.path.join)
    def adapter(weights: Any, image_size: Any, seed: Any) -> tuple[Any, ...]:
        return weights, image_size, seed

    monkeypatch.setattr(backbones, "load_extension", lambda *_: adapter)
    assert backbones.load_extension_backbone("outside.part:it", "w.pth", 224, 3) == ("w.pth", 224, 3)


def test_detector_may_say_nothing_but_features_and_boxes(images: Path, tmp_path: Path) -> None:
    class Plain(TileDetector):
        def __init__(self) -> None:
            super().__init__(CPU)
            self.columns = Columns(("boxes",))

        def rows(self, pictures: Any) -> dict[str, torch.Tensor]:
            rows = super().rows(pictures)
            return {name: rows[name] for name in ("features", "boxes")}

    assert tile_detector(None, None, 1)(CPU).shape == (4, 3)
    extract(open_images(images), Plain(), tmp_path / "out")
    assert sorted(content_of(tmp_path / "out")) == [
        "boxes.npy",
        "features.npy",
        "keys.txt",
        "meta.json",
        "unreadable.tsv",
    ]


@pytest.mark.parametrize(
    ("pooling", "shape", "form"), [(MEAN, (-1, 3), r"\(B, F, h, w\)"), (Pooling("own"), (-1, 3, 1, 1), r"\(B, E\)")]
)
def test_network_from_outside_that_gives_no_map_is_refused(pooling: Pooling, shape: tuple[int, ...], form: str) -> None:
    class Odd(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean(dim=(2, 3)).reshape(shape)

    backbone = Backbone("odd", Odd(), Preprocessing(16, 16), "none", own=Odd())
    with pytest.raises(InputError, match=rf"the network of odd should turn a batch into {form}, but one image became"):
        MapExtractor(backbone, pooling, CPU)
