"""Detectors in ONNX files: a tiny one whose numbers are worked by hand, the real one, and files of other forms."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.features.naive_roi_align import naive_mean_of_roi_align
from tests.features.tiny_onnx import BOXES, LABELS, NAMES, SCORES, write_detector
from visual_grounding.errors import InputError
from visual_grounding.features.computation import Computation
from visual_grounding.features.detectors import Selection, load_detector, read_projection
from visual_grounding.features.dry_run import dry_run
from visual_grounding.features.extraction import extract
from visual_grounding.features.extractor import Extractor
from visual_grounding.features.making import check_making
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images, read_image
from visual_grounding.storage.signature import made_alike

CPU = Computation(torch.device("cpu"))
MAPS = ["map_fine", "map_mean"]


def load(path: Path, selection: Selection = Selection(regions=5), **choices: Any) -> Extractor:  # noqa: B008
    wanted: dict[str, Any] = {"computation": CPU, "label_names": NAMES, "feature_maps": MAPS, **choices}
    return load_detector(f"onnx:{path}", selection=selection, **wanted)


def picture(value: int = 255) -> Image.Image:
    """16x12 pixels of one colour, the lower right quarter half as bright."""
    pixels = np.full((12, 16, 3), value, np.uint8)
    pixels[6:, 8:] //= 2
    return Image.fromarray(pixels)


def test_onnx_detector_keeps_what_the_file_says(tmp_path: Path) -> None:
    found = load(write_detector(tmp_path / "tiny.onnx"))
    assert found.shape == (5, 6) and found.columns.present == ("boxes", "labels", "scores")
    rows = found.rows([found.load(picture()), None])
    # Most confident first; the fourth is cut to the picture, the fifth has no area.
    assert rows["labels"].tolist() == [[1, 0, 0, 2, -1], [-1] * 5]
    torch.testing.assert_close(rows["scores"][0], torch.tensor([0.75, 0.5, 0.4, 0.3, 0]))
    expected = [BOXES[1], BOXES[0], BOXES[2], [0.0, 0.5, 0.5, 1.0], [0.0] * 4]
    torch.testing.assert_close(rows["boxes"][0], torch.tensor(expected))
    assert rows["dropped"].tolist() == [1, 0] and not rows["features"][1].any()
    pixels = found.load(picture()).astype(np.float64).transpose(2, 0, 1) / 255  # (3, 8, 8)
    for region, box in enumerate(expected[:4]):
        fine, mean = (pixels.reshape(3, side, 8 // side, side, 8 // side).mean(axis=(2, 4)) for side in (4, 2))
        pooled = [naive_mean_of_roi_align(each, np.array(box) * each.shape[1], True) for each in (fine, mean)]
        np.testing.assert_allclose(rows["features"][0, region], np.concatenate(pooled), atol=1e-5)
    assert not rows["features"][0, 4].any()


def test_onnx_detector_suppresses_and_projects(tmp_path: Path) -> None:
    save_file(
        {"mean": torch.zeros(6), "components": torch.eye(6)[[5, 0]] * 2, "block_std": torch.tensor([1.0, 4.0])},
        tmp_path / "pca.safetensors",
    )
    path = write_detector(tmp_path / "tiny.onnx")
    projected = load(path, Selection(3, 0.3, 0.6), projection=read_projection(tmp_path / "pca.safetensors"))
    plain = load(path, Selection(3, 0.3, 0.6))
    pictures = [plain.load(picture())]
    found, expected = projected.rows(pictures), plain.rows(pictures)
    assert found["labels"].tolist() == [[1, 0, 2]]
    torch.testing.assert_close(found["features"], expected["features"][..., [5, 0]] * torch.tensor([0.5, 2.0]))
    assert projected.shape == (3, 2) and projected.signed != plain.signed


def test_onnx_detector_gives_attributes_where_they_have_names(tmp_path: Path) -> None:
    path = write_detector(tmp_path / "tiny.onnx", attributes=[1, 0, 1, 0, 1])
    found = load(path, attribute_names=["small", "large"])
    assert found.columns.present == ("boxes", "labels", "attributes", "scores")
    assert found.rows([found.load(picture())])["attributes"].tolist() == [[0, 1, 1, 0, -1]]
    assert load(path).columns.present == ("boxes", "labels", "scores")


def test_onnx_store_of_other_names_is_of_another_making(tmp_path: Path) -> None:
    """The same network and features, but label 0 is another thing: what has learned from one isn't given the other."""
    (tmp_path / "photos").mkdir()
    picture().save(tmp_path / "photos/a.png")
    images, path = open_images(tmp_path / "photos"), write_detector(tmp_path / "tiny.onnx")
    signatures = []
    for name, names in (("own", NAMES), ("again", NAMES), ("turned", NAMES[::-1])):
        extract(images, load(path, label_names=names), tmp_path / name)
        signatures.append(FeatureStore(tmp_path / name).signature)
    own, again, turned = signatures
    assert made_alike(own, again) and not made_alike(own, turned)
    with pytest.raises(InputError, match=r"made otherwise \(another label_names\): "):
        check_making(FeatureStore(tmp_path / "turned"), own, "the checkpoint")


@pytest.mark.parametrize("form", [{"batch": 1}, {"sizes": False}, {"side": "free"}])
def test_onnx_detector_takes_other_forms_of_files_and_gives_the_same(tmp_path: Path, form: dict[str, Any]) -> None:
    usual, other = write_detector(tmp_path / "usual.onnx"), write_detector(tmp_path / "other.onnx", **form)
    expected, found = load(usual), load(other, image_size=8)
    pictures = [expected.load(picture(value)) for value in (255, 120)]
    for name, values in expected.rows(pictures).items():
        torch.testing.assert_close(found.rows(pictures)[name], values)


def test_onnx_extraction_counts_boxes_without_area_and_continues_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(5):
        picture(250 - 40 * number).save(tmp_path / f"photos/{number}.png")
    (tmp_path / "photos/3.png").write_bytes(b"no picture")
    images, found = open_images(tmp_path / "photos"), load(write_detector(tmp_path / "tiny.onnx"))
    summary = extract(images, found, tmp_path / "out", batch_size=2, shard_size=2)
    assert (summary.unreadable, summary.dropped, summary.cleared) == (1, 4, 0)
    assert "\n4 regions had no area inside of their picture, and were left out." in summary.describe("out")
    store = FeatureStore(tmp_path / "out")
    assert store.label_names == NAMES and (store.features[3] == 0).all()
    assert store.signature.startswith("extract|images:5|detector:onnx:tiny.onnx|weights:sha256-")

    whole, calls = found.rows, []

    def killed(pictures: Any) -> Any:
        calls.append(len(pictures))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(pictures)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(found, "rows", killed)
        extract(images, found, tmp_path / "again", batch_size=2, shard_size=2)
    assert dry_run(images, found, tmp_path / "again", 2, 2).images_left == 3
    assert extract(images, found, tmp_path / "again", batch_size=2, shard_size=2) == summary
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    assert extract(images, found, tmp_path / "again", batch_size=2, shard_size=2) == summary  # there already


@pytest.mark.parametrize(
    ("form", "choices", "message"),
    [
        (
            {"colours": 1},
            {},
            r"one input of pictures, float \(N, 3, H, W\).* has images float \(N, 1, 8, 8\); ori",
        ),
        ({"batch": 2}, {}, r"takes exactly 2 pictures at once"),
        ({"side": "free"}, {}, r"takes pictures of any size \(free, free\)"),
        ({}, {"image_size": 9}, r"sees pictures in 8x8 pixels, not 9"),
        (
            {"rename": {"boxes": "pred_boxes"}},
            {},
            r"should have the outputs labels int .* has .*pred_boxes float \(N",
        ),
        (
            {},
            {"attribute_names": ["small"]},
            r"and attributes int \(N, Q\), since they have names, but has la",
        ),
        ({"maps": False}, {}, r"has no map \(N, C, h, w\) among its outputs.* it has labels int64 \(N, 5\); boxes"),
        ({}, {"feature_maps": []}, r"but none was given\. It has map_fine float \(N, 3, 4, 4\); map_mean"),
        ({}, {"feature_maps": ["boxes"]}, r"but boxes were given\. It has map_fine"),
        ({}, {"feature_maps": ["map_fine", "map_fine"]}, r"each once, but map_fine, map_fine were given"),
        ({}, {"label_names": None}, r"gives numbers of labels, but not what they are called"),
        ({}, {"weights": "none"}, r"has its weights inside, but none was given as weights"),
        ({}, {"computation": Computation(torch.device("cpu"), "bfloat16")}, r"exported in, not in bfloat16"),
        (
            {},
            {"computation": Computation(torch.device("cuda:0"))},
            r"has .*CPUExecution.* can't compute on cuda",
        ),
    ],
)
def test_onnx_file_of_another_form_is_refused_with_what_it_has(
    tmp_path: Path, form: dict[str, Any], choices: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(write_detector(tmp_path / "tiny.onnx", **form), **choices)


@pytest.mark.parametrize(
    ("form", "names", "message"),
    [
        ({"labels": [0, 1, 0, 3, 1]}, NAMES, r"gives labels beyond the 3 names: 3, where .* the numbers 0 to 2"),
        ({}, NAMES[:1], r"gives labels beyond the 1 names: 1, where"),
        ({"boxes": [[0, 0, 8, 4], *BOXES[1:]]}, NAMES, r"boxes in 0\.\.1 of the picture.* but one is 0 0 8 4\."),
        ({"boxes": [[0, 0, float("nan"), 1], *BOXES[1:]]}, NAMES, r"but one is 0 0 nan 1\."),
        (
            {"boxes": [[0.5, 0.5, 0.25, 0.25], *BOXES[1:]]},
            NAMES,
            r"boxes as two corners, .* but one is 0\.5 0\.5 0\.25 0\.25\. If these are centre, width and height",
        ),
        ({"scores": [*SCORES, 0.5]}, NAMES, r"should give as many of each .*\(1, 5, 4\), .* scores \(1, 6\)\."),
        (
            {"boxes": [[*box, 0] for box in BOXES], "sizes": False},
            NAMES,
            r"all others \(N, Q\), but gave boxes \(1, 5, 5\), ",
        ),
        ({"scores": [2.5, *SCORES[1:]]}, NAMES, r"should give scores in 0\.\.1, but one is 2\.5\. Export it with what"),
        ({"scores": [float("nan"), *SCORES[1:]]}, NAMES, r"should give scores in 0\.\.1, but one is nan\."),
    ],
)
def test_what_would_be_taken_for_something_else_is_refused(
    tmp_path: Path, form: dict[str, Any], names: list[str], message: str
) -> None:
    found = load(write_detector(tmp_path / "tiny.onnx", **form), label_names=names)
    with pytest.raises(InputError, match=message):
        found.rows([found.load(picture())])


def test_doubtful_boxes_below_the_least_score_are_not_looked_at(tmp_path: Path) -> None:
    path = write_detector(tmp_path / "tiny.onnx", labels=[*LABELS[:4], 99], scores=[*SCORES[:4], 0.01])
    found = load(path)
    assert found.rows([found.load(picture())])["dropped"].tolist() == [0]


def test_missing_file_is_told_before_all_else_about_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.onnx should be an ONNX file, but does not exist\."):
        load(tmp_path / "none.onnx", label_names=None)


def test_missing_onnxruntime_says_which_extra_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"isn't installed\. Install it: pip install 'visual_grounding\[onnx\]'"):
        load(write_detector(tmp_path / "tiny.onnx"))


def test_file_that_is_no_onnx_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.onnx should be an ONNX file, but does not exist"):
        load(tmp_path / "gone.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"broken\.onnx can't be opened by onnxruntime: "):
        load(tmp_path / "broken.onnx")


def test_network_that_fails_says_on_what(tmp_path: Path) -> None:
    found = load(write_detector(tmp_path / "tiny.onnx"))
    with pytest.raises(InputError, match=r"tiny\.onnx failed on 1 pictures of 8x8 pixels: .*(invalid|Invalid|INVALID)"):
        found.rows([np.zeros((9, 8, 3), np.uint8)])


# --- the real one ------------------------------------------------------------------------------------------------


def real_detector(folder: Path, selection: Selection) -> Extractor:
    """As the shared regions were made."""
    return load_detector(
        f"onnx:{folder}/deimv2_femto_coco_fp16.onnx",
        CPU,
        selection,
        label_names=(folder / "label_names.txt").read_text().splitlines(),
        feature_maps=["map_fpn", "map_pan"],
        projection=read_projection(folder / "pca_regions.safetensors", 64),
    )


def reference(folder: Path) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """The shared script, for a picture's tensor (3, 416, 416)."""
    spec = importlib.util.spec_from_file_location("run_detector", folder / "run_detector.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    from safetensors.numpy import load_file

    detector, roi = script.session("deimv2_femto_coco_fp16.onnx"), script.session("roi_align.onnx")
    pca = load_file(folder / "pca_regions.safetensors")

    def detect(pixels: np.ndarray) -> dict[str, np.ndarray]:
        labels, boxes, scores, *maps = detector.run(
            None, {"images": pixels[None], "orig_target_sizes": np.array([[1, 1]])}
        )
        labels, boxes, scores = labels[0], boxes[0].clip(0, 1), scores[0]
        real = (boxes[:, 2:] > boxes[:, :2]).all(1)
        labels, boxes, scores = labels[real], boxes[real], scores[real]
        kept = script.keep(labels, boxes, scores)
        names = ("map_backbone", "map_fpn", "map_pan")
        _, fpn, pan = roi.run(
            None, {"rois": boxes[kept], "bi": np.zeros(len(kept), np.int64), **dict(zip(names, maps))}
        )
        wide = np.concatenate([fpn / pca["block_std"][0], pan / pca["block_std"][1]], 1)
        features = ((wide - pca["mean"]) @ pca["components"].T)[:, :64]
        return {"labels": labels[kept], "boxes": boxes[kept], "scores": scores[kept], "features": features}

    return detect


@pytest.mark.data
def test_real_detector_finds_what_its_own_script_finds(real_data: Path) -> None:
    folder = real_data / "flickr8k/detector"
    detect, found = reference(folder), real_detector(folder, Selection(16, 0.05, 0.6))
    photos = open_images(real_data / "flickr8k/images/test.tar")
    for row in (0, 1, 2):
        pixels = found.load(read_image(photos, row))
        expected = detect(np.ascontiguousarray(pixels.astype(np.float32).transpose(2, 0, 1) / 255))
        rows = found.rows([pixels])
        count = len(expected["labels"])
        assert count > 5 and (rows["labels"][0, count:] == -1).all()
        for name in ("labels", "boxes", "scores", "features"):
            np.testing.assert_allclose(rows[name][0, :count], expected[name], atol=1e-5, err_msg=name)


@pytest.mark.data
def test_real_detector_finds_most_of_what_it_found_in_larger_copies(real_data: Path) -> None:
    """The shared regions come from 224x224 pixels, these photos have 128x128."""
    folder = real_data / "flickr8k"
    found = real_detector(folder / "detector", Selection(16, 0.05, 0.6))
    lines = [line.split("\t") for line in (folder / "images.tsv").read_text().splitlines()[1:]]
    row_of = {line[1]: int(line[0]) for line in lines}
    photos = open_images(folder / "images/test.tar")
    stored = {name: np.load(folder / f"regions/{name}.npy") for name in ("labels", "boxes", "scores")}
    matched = total = 0
    for row in range(0, 200, 10):
        rows = found.rows([found.load(read_image(photos, row))])
        place = row_of[photos.keys[row]]
        for label, box, score in zip(*(stored[name][place] for name in ("labels", "boxes", "scores"))):
            if score >= 0.5:
                same = [other for other, own in zip(rows["boxes"][0], rows["labels"][0]) if own == label]
                matched += any(overlap(box, other.numpy()) >= 0.5 for other in same)
                total += 1
    assert total > 40 and matched / total > 0.85


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    common = (high - low).clip(0).prod()
    return common / ((one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod() - common)
