"""Cells of a grid as regions: a classifier worked by hand, torchvision's and timm's, pictures that are too small."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import softmax
from torchvision import models

from tests.pictures import drawn_photo
from visual_grounding.errors import InputError
from visual_grounding.features.backbones import Backbone, Preprocessing, load_backbone
from visual_grounding.features.computation import Computation
from visual_grounding.features.extraction import extract
from visual_grounding.features.grid_classifier import GridClassifier
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import UnreadableImage, open_images, read_image

CPU = Computation(torch.device("cpu"))
COLOURS = ("red", "green", "blue")


class MeanColour(torch.nn.Module):
    """A classifier of colours: pooled, the mean colour; before the softmax, ten times it."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pooled = images.mean(dim=(2, 3))
        return pooled, 10 * pooled


def colours(classifier: torch.nn.Module | None = None) -> Backbone:
    network = torch.nn.Identity()
    return Backbone("colours", network, Preprocessing(8, 8), "none", None, classifier or MeanColour(), COLOURS)


def quarters() -> Image.Image:
    """40x20 pixels: above red and green, below blue and grey."""
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:10, :20, 0] = pixels[:10, 20:, 1] = pixels[10:, :20, 2] = 255
    pixels[10:, 20:] = 51
    return Image.fromarray(pixels)


def test_every_cell_is_classified_by_itself() -> None:
    found = GridClassifier(colours(), 2, None, CPU)
    rows = found.rows([found.load(quarters())])
    assert found.shape == (4, 3) and found.columns.label_names == COLOURS
    assert rows["boxes"][0].tolist() == [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]
    expected = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0.2, 0.2, 0.2]])
    torch.testing.assert_close(rows["features"][0], expected)
    assert rows["labels"][0, :3].tolist() == [0, 1, 2]
    # exp(10) / (exp(10) + 2), and a third where all colours are alike
    torch.testing.assert_close(rows["scores"][0], torch.tensor([*[1 / (1 + 2 * np.exp(-10))] * 3, 1 / 3]).float())


def test_cells_have_sharp_edges_where_sides_are_no_multiples() -> None:
    """Thirds of 40 pixels: a cell takes its share of the pixel that its edge cuts, and nothing beyond."""
    pixels = np.zeros((30, 40, 3), np.uint8)
    pixels[:, 14:] = 255  # the first cell ends at 13.33, the second has 12.67 of 13.33 columns
    found = GridClassifier(colours(), 3, None, CPU)
    features = found.rows([found.load(Image.fromarray(pixels))])["features"][0, :, 0]
    torch.testing.assert_close(features[:3], torch.tensor([0.0, 0.95, 1.0]), atol=0.02, rtol=0)


def test_a_cell_has_half_of_the_pixel_that_its_edge_halves() -> None:
    pixels = np.zeros((4, 5, 3), np.uint8)
    pixels[:, 2:] = 255  # of the 2.5 columns of the first cell, half a one
    found = GridClassifier(colours(), 2, None, CPU)
    features = found.rows([found.load(Image.fromarray(pixels))])["features"][0, :2, 0]
    torch.testing.assert_close(features, torch.tensor([0.5 / 2.5, 1.0]), atol=0.01, rtol=0)


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0", "timm:test_resnet", "timm:test_vit"])
def test_classes_and_features_are_the_librarys_own(name: str) -> None:
    size = 64 if "timm" not in name else None
    backbone = load_backbone(name, "none", size)
    found, other = GridClassifier(backbone, 2, None, CPU), drawn_photo(80, 120)
    rows = found.rows([found.load(other)])
    assert backbone.classifier is not None and len(found.columns.label_names) == 1000
    height, width = backbone.preprocessing.shape
    cell = other.crop((60, 0, 120, 40)).resize((width, height), Image.Resampling.BILINEAR)
    images = backbone.preprocessing.normalise(torch.from_numpy(np.array(cell))[None])
    with torch.inference_mode():
        if "timm" in name:
            model: Any = backbone.classifier.model
            logits, pooled = model(images), model.forward_head(model.forward_features(images), pre_logits=True)
        else:
            pooled, logits = backbone.network(images).mean(dim=(2, 3)), backbone.classifier(images)[1]
    probability, label = softmax(logits, dim=1).max(dim=1)
    torch.testing.assert_close(rows["features"][0, 1], pooled[0], atol=1e-4, rtol=1e-4)
    assert rows["labels"][0, 1] == label and float(rows["scores"][0, 1]) == pytest.approx(float(probability), rel=1e-4)


def test_torchvisions_classifier_is_its_whole_network(tmp_path: Path) -> None:
    """With weights from a file nothing is scaled, so the logits are the library's."""
    torch.manual_seed(3)
    whole = models.resnet18(weights=None).eval()
    torch.save(whole.state_dict(), tmp_path / "own.pth")
    backbone = load_backbone("resnet18", str(tmp_path / "own.pth"), 64)
    images = torch.randn(2, 3, 64, 64)
    assert backbone.classifier is not None and "tench" in backbone.class_names
    with torch.inference_mode():
        torch.testing.assert_close(backbone.classifier(images)[1], whole(images))


def test_grid_of_classified_cells_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    quarters().save(tmp_path / "photos/a.png")
    Image.new("RGB", (9, 1)).save(tmp_path / "photos/b.png")
    summary = extract(open_images(tmp_path / "photos"), GridClassifier(colours(), 2, None, CPU), tmp_path / "out")
    store = FeatureStore(tmp_path / "out")
    assert summary.unreadable == 1 and store.columns == ("boxes", "labels", "scores")
    assert "b.png\t9x1 pixels, too small for 2x2 cells" in (tmp_path / "out/unreadable.tsv").read_text()
    signed = "extract|images:2|backbone:colours|weights:none|region_source:grid|grid:2|preprocessing:stretched to 8x8|"
    assert store.signature.startswith(signed) and (store.features[1] == 0).all()


@pytest.mark.data
def test_real_classifier_sees_dogs_where_five_captions_have_one(real_data: Path) -> None:
    """A small network on small photos: 120 of its 1,000 classes are dogs."""
    folder, captions = real_data / "flickr8k", dict[str, list[str]]()
    for line in (folder / "captions.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        key, _, caption, _ = line.split("\t")
        captions.setdefault(key, []).append(caption.lower())
    weights = folder / "weights/mobilenet_v1_0.25_224.safetensors"
    backbone = load_backbone("tests.features.mobilenet:mobilenet", str(weights))
    found, photos = GridClassifier(backbone, 1, None, CPU), open_images(folder / "images/test.tar")
    shares = []
    for wanted in (5, 0):
        rows = [row for row, key in enumerate(photos.keys) if sum("dog" in each for each in captions[key]) == wanted]
        pictures = [found.load(read_image(photos, row)) for row in rows[:24]]
        labels = found.rows(pictures)["labels"]
        shares.append(float(((labels >= 151) & (labels <= 268)).float().mean()))
    assert found.columns.label_names[151] == "Chihuahua"
    assert shares[0] > 0.5 and shares[1] < 0.2


def test_what_cannot_be_classified_is_refused() -> None:
    with pytest.raises(InputError, match=r"scattering has no classes to label regions with"):
        GridClassifier(load_backbone("scattering"), 2, None, CPU)
    with pytest.raises(InputError, match=r"colours has 3 classes, but there are 2 names"):
        GridClassifier(colours(), 2, ["light", "dark"], CPU)
    with pytest.raises(InputError, match=r"cells of a grid need its number of cells along a side"):
        GridClassifier(colours(), None, None, CPU)
    with pytest.raises(InputError, match=r"grid should be at least 1, but is 0"):
        GridClassifier(colours(), 0, None, CPU)
    with pytest.raises(UnreadableImage, match=r"3x1 pixels, too small for 2x2 cells"):
        GridClassifier(colours(), 2, None, CPU).load(Image.new("RGB", (3, 1)))
