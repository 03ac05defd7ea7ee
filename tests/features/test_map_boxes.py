"""Boxes of a map's regions: the parts of a picture that they were pooled from."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from visual_grounding.errors import InputError
from visual_grounding.features.backbones import Backbone, LibraryPreprocessing, Preprocessing
from visual_grounding.features.computation import Computation
from visual_grounding.features.extraction import extract
from visual_grounding.features.map_boxes import BoxedMapExtractor, cells_of_map
from visual_grounding.features.map_extractor import MapExtractor, Pooling
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images

CPU = Computation(torch.device("cpu"))


def pixels_as_map(resize: int, crop: int) -> Backbone:
    """A network whose map is what it sees, pixel by pixel."""
    return Backbone("pixels", nn.Identity(), Preprocessing(resize, crop), "none")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A wide picture with a white spot, a high one, and one that is broken."""
    folder = tmp_path / "images"
    folder.mkdir()
    wide, high = np.full((32, 64, 3), 40, dtype=np.uint8), np.full((96, 32, 3), 40, dtype=np.uint8)
    wide[2:6, 42:46] = 255  # in the window of columns 16 to 48: the last but a few columns, the first rows
    high[60:64, 4:8] = 255  # in the window of rows 32 to 64: the last rows
    Image.fromarray(wide).save(folder / "0_wide.png")
    Image.fromarray(high).save(folder / "1_high.png")
    (folder / "2_broken.png").write_bytes(b"x")
    return folder


@pytest.mark.parametrize(("height", "width", "grid"), [(6, 6, 4), (7, 5, 3), (4, 8, 2), (3, 5, None), (5, 5, 1)])
def test_cells_cover_the_places_that_pooling_takes(height: int, width: int, grid: int | None) -> None:
    pooling = Pooling("grid", grid)
    # Channel k of this map is 1 at place k alone, so what a region has of it says whether it took that place.
    places = torch.eye(height * width).reshape(1, height * width, height, width)
    taken = pooling.regions(places)[0].reshape(-1, height, width).numpy() > 0  # (R, h, w)
    cells = cells_of_map(pooling, height, width)
    assert cells.shape == (len(taken), 4)
    for cell, found in zip(cells, taken):
        x0, y0, x1, y1 = (cell * [width, height, width, height]).round(9)
        naive = [[y0 <= y and y + 1 <= y1 and x0 <= x and x + 1 <= x1 for x in range(width)] for y in range(height)]
        assert found.tolist() == naive
        assert found.sum() == (y1 - y0) * (x1 - x0)  # no part of a place


@pytest.mark.parametrize("kind", ["mean", "max"])
def test_one_region_covers_the_whole_map(kind: str) -> None:
    assert cells_of_map(Pooling(kind), 7, 7).tolist() == [[0, 0, 1, 1]]


def test_boxes_lie_where_the_centre_crop_saw_the_picture(images: Path, tmp_path: Path) -> None:
    extractor = BoxedMapExtractor(pixels_as_map(32, 32), Pooling("grid", 4), CPU)
    extract(open_images(images), extractor, tmp_path / "out", batch_size=2, shard_size=2)
    store = FeatureStore(tmp_path / "out")
    assert store.columns == ("boxes",)
    boxes = store.gather_columns(np.arange(3))["boxes"]
    # The crop leaves columns 16 to 48 of 64: cells are 8/64 wide and 8/32 high, and begin at 16/64.
    np.testing.assert_allclose(boxes[0, 0], [16 / 64, 0, 24 / 64, 8 / 32], rtol=1e-6)
    np.testing.assert_allclose(boxes[0, 15], [40 / 64, 24 / 32, 48 / 64, 1], rtol=1e-6)
    np.testing.assert_allclose(boxes[1, 1], [8 / 32, 32 / 96, 16 / 32, 40 / 96], rtol=1e-6)
    assert (boxes[2] == 0).all()  # absent
    features = store.gather(np.arange(3))[0].astype(float).mean(axis=2)  # (I, R)
    for row, (x, y) in enumerate([(44 / 64, 4 / 32), (6 / 32, 62 / 96)]):
        x0, y0, x1, y1 = boxes[row, features[row].argmax()]
        assert x0 < x < x1 and y0 < y < y1  # the brightest region lies where the white spot is


def test_store_with_boxes_has_the_features_and_signature_of_one_without(images: Path, tmp_path: Path) -> None:
    for name, of_map in (("plain", MapExtractor), ("boxed", BoxedMapExtractor)):
        extract(open_images(images), of_map(pixels_as_map(40, 32), Pooling("grid", 4), CPU), tmp_path / name)
    plain, boxed = (FeatureStore(tmp_path / name) for name in ("plain", "boxed"))
    assert plain.signature == boxed.signature and plain.columns == ()
    assert (tmp_path / "plain/features.npy").read_bytes() == (tmp_path / "boxed/features.npy").read_bytes()
    assert not (tmp_path / "plain/boxes.npy").exists()
    with pytest.raises(InputError, match="columns"):  # another plan: neither is taken for the other
        extract(
            open_images(images), BoxedMapExtractor(pixels_as_map(40, 32), Pooling("grid", 4), CPU), tmp_path / "plain"
        )


def test_margin_around_a_small_picture_is_in_no_box() -> None:
    extractor = BoxedMapExtractor(pixels_as_map(16, 32), Pooling("grid", 4), CPU)
    _, boxes = extractor.load(Image.new("RGB", (16, 16)))  # 8 pixels of margin on every side
    np.testing.assert_allclose(boxes[5], [0, 0, 0.5, 0.5])
    np.testing.assert_allclose(boxes[10], [0.5, 0.5, 1, 1])
    assert boxes.min() == 0 and boxes.max() == 1 and (boxes[0] == 0).all()


def test_boxes_are_refused_where_the_framing_is_not_known() -> None:
    squashed = LibraryPreprocessing(
        lambda image: torch.zeros(3, 8, 8, dtype=torch.uint8),
        (8, 8),
        (0.0,) * 3,
        (1.0,) * 3,
        None,
        "squash",
        "squash 8x8",
    )
    message = (
        r"boxes are in 0\.\.1 of the whole picture, so they need a preprocessing that is known to resize the short "
        r"side and to crop the centre, but that of thumbs is: squash 8x8, normalise 0 0 0 1 1 1\. Choose a "
        r"backbone of torchvision or scattering, or leave the boxes out\."
    )
    with pytest.raises(InputError, match=message):
        BoxedMapExtractor(Backbone("thumbs", nn.Identity(), squashed, "none"), Pooling("grid", 2), CPU)
