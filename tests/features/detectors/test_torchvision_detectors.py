"""torchvision's detectors: what the library itself finds, and below it features as a naive twin pools them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import models
from torchvision.models._api import WeightsEnum

from tests.features.naive_roi_align import naive_mean_of_roi_align
from tests.pictures import drawn_photo
from visual_grounding.errors import InputError
from visual_grounding.features.computation import Computation, choose_computation
from visual_grounding.features.detectors import Selection, detector_names, load_detector
from visual_grounding.features.detectors import torchvision_detectors as module
from visual_grounding.features.dry_run import dry_run
from visual_grounding.features.extraction import extract
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import UnreadableImage, open_images

CPU = Computation(torch.device("cpu"))
SSD = "ssdlite320_mobilenet_v3_large"
SMALL = "fasterrcnn_mobilenet_v3_large_320_fpn"
NAMES = ["nothing", "cat", "dog", "bird", "tree"]
SELECTION = Selection(regions=6, min_score=0.0)


def pictures() -> list[np.ndarray]:
    """Two, of different sizes."""
    return [np.array(drawn_photo(72, 96)), np.asarray(drawn_photo(60, 50))[:, ::-1].copy()]


def library(name: str, seed: int = 1, **choices: Any) -> Any:
    """torchvision's own network, with the numbers that `--weights none` draws."""
    torch.manual_seed(seed)
    return models.get_model(name, weights=None, weights_backbone=None, **choices).eval()


def resized(model: Any, side: int) -> Any:
    model.transform.min_size, model.transform.max_size = (side,), round(model.transform.max_size * side / 800)
    return model


def found_by(model: Any, images: list[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Its own detections, boxes in 0..1."""
    with torch.inference_mode():
        found = model([as_tensor(image) for image in images])
    for each, image in zip(found, images):
        each["boxes"] = each["boxes"] / torch.tensor([image.shape[1], image.shape[0]] * 2)
    return [{name: each[name].numpy() for name in ("boxes", "labels", "scores")} for each in found]


def assert_same(rows: dict[str, torch.Tensor], expected: list[dict[str, np.ndarray]], tolerance: float = 0) -> None:
    for place, each in enumerate(expected):
        real = (np.minimum(each["boxes"][:, 2:], 1) > np.maximum(each["boxes"][:, :2], 0)).all(axis=1)
        assert rows["dropped"][place] == (~real).sum()
        count = real.sum()
        for name, values in each.items():
            found = rows[name][place, :count].numpy()
            np.testing.assert_allclose(found, values[real], rtol=0, atol=max(tolerance, 1e-6 * (name == "boxes")))
        assert (rows["labels"][place, count:] == -1).all() and not rows["features"][place, count:].any()


def redraw(weight: torch.Tensor, spread: float, seed: int) -> None:
    weight.normal_(0, spread, generator=torch.Generator().manual_seed(seed))


def as_tensor(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a detector of five classes that tells them apart, though not sensibly."""
    model, images = library(SMALL, num_classes=len(NAMES)), [as_tensor(image) for image in pictures()]
    classes = model.roi_heads.box_predictor.cls_score
    logits: list[torch.Tensor] = []
    with torch.no_grad():
        for number, layer in enumerate(model.backbone.modules()):
            if isinstance(layer, torch.nn.Conv2d):
                redraw(layer.weight, (2 / layer.weight[0].numel()) ** 0.5, number)
        seen, _ = model.transform(images)
        spread = model.backbone(seen.tensors)["0"].std()
        for layer in model.backbone.fpn.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight /= spread**0.5
        redraw(model.rpn.head.bbox_pred.weight, 0.1, 8)
        redraw(classes.weight, 1, 7)
        classes.bias.zero_()
        with classes.register_forward_hook(lambda *parts: logits.append(parts[2])):
            model(images)
        classes.bias -= logits[0].mean(dim=0)  # otherwise one class wins everywhere
    path = tmp_path_factory.mktemp("weights") / "five.pth"
    torch.save(model.state_dict(), path)
    return path


def library_of(path: Path, **choices: Any) -> Any:
    model = library(SMALL, num_classes=len(NAMES), **choices)
    model.load_state_dict(torch.load(path))
    return model


@pytest.mark.parametrize(
    ("selection", "choices"),
    [
        (Selection(), {"box_score_thresh": 0.05, "box_detections_per_img": 36}),
        (Selection(4, 0.3, 0.2), {"box_score_thresh": 0.3, "box_detections_per_img": 4, "box_nms_thresh": 0.2}),
    ],
)
def test_detections_are_the_librarys_own(trained: Path, selection: Selection, choices: dict[str, Any]) -> None:
    found = load_detector(SMALL, CPU, selection, str(trained), label_names=NAMES)
    expected = found_by(library_of(trained, **choices), pictures())
    assert all(len(each["labels"]) > 2 for each in expected) and len({*expected[0]["labels"]}) > 1
    assert_same(found.rows(pictures()), expected)


def test_suppression_across_classes_leaves_one_box_of_a_place(trained: Path) -> None:
    everything = found_by(library_of(trained, box_nms_thresh=0.5, box_detections_per_img=10**6), pictures()[:1])[0]
    kept: list[int] = []
    for place, box in enumerate(everything["boxes"]):  # most confident first
        if all(overlap(box, everything["boxes"][other]) <= 0.5 for other in kept):
            kept.append(place)
    found = load_detector(SMALL, CPU, Selection(36, 0.05, 0.5, True), str(trained), label_names=NAMES)
    rows = found.rows(pictures()[:1])
    assert 1 < len(kept) < len(everything["boxes"])
    expected = [{name: values[kept[:36]] for name, values in everything.items()}]
    assert_same({**rows, "dropped": torch.zeros(1)}, expected)


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    common = (high - low).clip(0).prod()
    return common / ((one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod() - common)


@pytest.mark.parametrize(
    ("name", "side", "levels", "size"),
    [
        ("retinanet_resnet50_fpn", 64, ["0", "1", "2"], 256),
        ("fcos_resnet50_fpn", 64, ["0", "1", "2"], 256),
        ("keypointrcnn_resnet50_fpn", 64, ["0", "1", "2", "3"], 256),
        (SSD, None, ["0"], 672),
    ],
)
def test_every_family_finds_what_the_library_finds(name: str, side: int | None, levels: list[str], size: int) -> None:
    found: Any = load_detector(name, CPU, SELECTION, "none", side)
    assert found.shape == (6, size) and found._maps == levels
    own = {"box_score_thresh": 0.0, "box_detections_per_img": 6}
    choices = own if "rcnn" in name else {key.removeprefix("box_"): value for key, value in own.items()}
    model = library(name, num_classes=len(found.columns.label_names), **choices)
    assert_same(found.rows(pictures()), found_by(resized(model, side) if side else model, pictures()), 1e-6)


def test_other_networks_are_known_and_classes_have_the_librarys_names() -> None:
    assert len(detector_names()) >= 12
    found = load_detector(SMALL, CPU, SELECTION, "none", 64)
    names = models.get_model_weights(SMALL).DEFAULT.meta["categories"]
    assert list(found.columns.label_names) == names and names[1] == "person" and len(names) == 91


def test_features_are_the_mean_of_roi_align_of_the_level_that_suits_a_box() -> None:
    """With pictures of 384 pixels boxes reach from the first to the third level."""
    found: Any = load_detector("retinanet_resnet50_fpn", CPU, Selection(4, 0.0), "none", 384)
    model, image = resized(library("retinanet_resnet50_fpn", num_classes=91), 384), np.array(drawn_photo(100, 100))
    with torch.inference_mode():
        seen, _ = model.transform([as_tensor(image)])
        maps = model.backbone(seen.tensors)
    names, boxes = ["0", "1", "2"], torch.tensor([[0.1, 0.2, 0.2, 0.3], [0.1, 0.1, 0.9, 0.9], [0.0, 0.0, 1.0, 1.0]])
    (features,) = found._features([boxes], maps, seen.image_sizes)
    rows, levels = found.rows([image]), set()
    for box, feature in zip([*rows["boxes"][0], *boxes], [*rows["features"][0], *features]):
        placed = box.double().numpy() * 384
        # k = 4 + log2(sqrt(w h) / 224), where the level of stride 2^k is taken; the finest has stride 8.
        area = (placed[2] - placed[0]) * (placed[3] - placed[1])
        level = min(max(int(np.floor(4 + np.log2(np.sqrt(area) / 224))), 3), 5)
        chosen = maps[names[level - 3]][0].double().numpy()
        expected = naive_mean_of_roi_align(chosen, placed / 2**level, aligned=False) * found._scale
        np.testing.assert_allclose(feature, expected, atol=1e-5 * max(1, np.abs(expected).max()))
        levels.add(level)
    assert levels >= {3, 4}


def test_weights_by_name_are_loaded_as_the_library_loads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    state = library(SMALL, seed=5, num_classes=91).state_dict()
    monkeypatch.setattr(WeightsEnum, "get_state_dict", lambda *_, **__: dict(state))
    expected = models.get_model(SMALL, weights="COCO_V1", box_score_thresh=0.0, box_detections_per_img=6).eval()
    found = load_detector(SMALL, CPU, SELECTION)
    assert_same(found.rows(pictures()), found_by(expected, pictures()))
    assert found.signed["weights"] == "COCO_V1" and found.signed["preprocessing"] == "320/640"
    with pytest.raises(InputError, match=r"COCO_V1 of .* know 91 classes, from '__background__' to 'tooth.*, but 5"):
        load_detector(SMALL, CPU, SELECTION, label_names=NAMES)


def test_weights_from_a_file_have_the_epsilon_that_they_were_trained_with(tmp_path: Path) -> None:
    name = "fasterrcnn_resnet50_fpn"
    torch.save(library(name, num_classes=2).state_dict(), tmp_path / "own.pth")
    found: Any = load_detector(name, CPU, SELECTION, str(tmp_path / "own.pth"), 64, label_names=["nothing", "cat"])
    norms = [part for part in found.network.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert len(norms) > 50 and {norm.eps for norm in norms} == {0.0}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"label_names": NAMES[:4]},
            r"cls_score\.weight is \(5, 1024\), not \(4, 1024",
        ),
        ({}, r"name them all, one a line, the background first"),
        ({"name": SSD, "weights": "none", "image_size": 64}, r"in 320x320 pixels, not 64"),
        ({"weights": "COCO_V7"}, r"COCO_V7 is neither a file nor weights of fasterrcnn.*: COCO_V1, none"),
        ({"name": "a/d.onnx"}, r"detector a/d\.onnx is unknown\. Did you mean onnx:a/d\.onnx\? Known: "),
        (
            {"name": "fasterrcnn_resnet50"},
            r"detector fasterrcnn_resnet50 is unknown\. Did you mean fasterrcnn_res",
        ),
        ({"name": "my.package:it"}, r"my\.package:it is from outside this package: .* is given as the backbone"),
        ({"feature_maps": ["0"]}, r"feature maps are for onnx:FILE, but the detector is fasterrcnn_mobilenet"),
        ({"image_size": 0}, r"the image size should be 1 to 8192 pixels, but is 0"),
        ({"selection": Selection(0)}, r"regions should be at least 1, but is 0"),
    ],
)
def test_choices_that_do_not_fit_are_refused(trained: Path, choices: dict[str, Any], message: str) -> None:
    wanted: dict[str, Any] = {"name": SMALL, "weights": str(trained), "selection": SELECTION, **choices}
    with pytest.raises(InputError, match=message):
        load_detector(computation=CPU, **wanted)


def test_failed_download_of_a_detector_says_where_to_put_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(WeightsEnum, "get_state_dict", fail)
    with pytest.raises(InputError, match=r"COCO_V1 of fasterrcnn_mob.* can't be downloaded .*no route.* copy it to"):
        load_detector(SMALL, CPU, SELECTION)


def test_extraction_with_a_detector_makes_a_store_with_all_columns(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number, picture in enumerate(pictures()):
        Image.fromarray(picture).save(tmp_path / f"photos/{number}.png")
    Image.new("RGB", (2000, 1)).save(tmp_path / "photos/thin.png")
    images = open_images(tmp_path / "photos")
    found = load_detector(SMALL, CPU, Selection(), str(trained), label_names=NAMES)
    planned = dry_run(images, found, tmp_path / "out", batch_size=2)
    assert planned.columns == ("boxes", "labels", "scores") and planned.shape == (3, 36, 256)
    summary = extract(images, found, tmp_path / "out", batch_size=2)
    assert summary.unreadable == 1 and summary.zero == 0
    assert "thin.png\t2000x1 pixels, too thin to be resized to 640" in (tmp_path / "out/unreadable.tsv").read_text()
    written = sum(path.stat().st_size for path in (tmp_path / "out").iterdir() if path.name != "unreadable.tsv")
    assert abs(planned.size - written) < 40  # but for counts of more digits
    store = FeatureStore(tmp_path / "out")
    expected = found_by(library_of(trained, box_detections_per_img=36), pictures())
    for row, each in enumerate(expected):
        count = len(each["labels"])
        assert store.columns == ("boxes", "labels", "scores") and store.label_names == NAMES
        assert np.load(tmp_path / "out/labels.npy")[row, :count].tolist() == each["labels"].tolist()
        np.testing.assert_allclose(np.load(tmp_path / "out/boxes.npy")[row, :count], each["boxes"], atol=1e-5)


def test_no_picture_at_all_gives_empty_rows(trained: Path) -> None:
    found = load_detector(SMALL, CPU, SELECTION, str(trained), label_names=NAMES)
    rows = found.rows([None, None])
    assert not rows["features"].any() and (rows["labels"] == -1).all() and rows["dropped"].tolist() == [0, 0]
    with pytest.raises(UnreadableImage, match=r"3x4000 pixels, too thin"):
        found.load(Image.new("RGB", (3, 4000)))


def test_computation_in_bfloat16_reaches_the_detector(trained: Path) -> None:
    rows = []
    for precision in ("float32", "bfloat16"):
        computation = choose_computation("cpu", precision)
        found = load_detector(SMALL, computation, Selection(), str(trained), label_names=NAMES)
        rows.append(found.rows(pictures()))
    plain, mixed = (each["scores"][:, 0] for each in rows)
    assert 0 < (plain - mixed).abs().max() < 0.1 and rows[1]["features"].dtype == torch.float32


def test_hooks_keep_no_maps_after_a_batch(trained: Path) -> None:
    found: Any = load_detector(SMALL, CPU, SELECTION, str(trained), label_names=NAMES)
    found.rows(pictures())
    assert isinstance(found.network, module.DetectorWithMaps) and found.network._maps == {}


@pytest.mark.parametrize("size", [64, 640])
def test_the_longest_side_grows_with_the_shortest(size):
    """The library cuts a panorama at 640 pixels for 320: with twice the size it may be twice as long."""
    found: Any = load_detector(SMALL, CPU, SELECTION, "none", size)
    transform = found._transform
    assert (transform.min_size, transform.max_size) == ((size,), 2 * size)
