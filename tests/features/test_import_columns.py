"""Boxes, labels, attributes and scores beside features that people already have."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from visual_grounding.errors import InputError
from visual_grounding.features import importers
from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.columns import Columns
from visual_grounding.features.importers import import_features
from visual_grounding.features.region_table import RegionTable
from visual_grounding.features.store import FeatureStore
from visual_grounding.features.store_writer import StoreSummary
from visual_grounding.storage.signature import made_alike

KEYS = ["a.jpg", "b.jpg", "c.jpg"]
FEATURES = np.array([[[1, 2], [3, 4]], [[5, 6], [0, 0]], [[7, 8], [9, 9]]], np.float32)
BOXES = np.array([[[0, 0, 1, 1], [0.25, 0.5, 0.5, 0.75]], [[0, 0, 0.5, 1], [0] * 4], [[0, 0, 1, 0.5]] * 2], np.float32)
LABELS = np.array([[0, 1], [1, -1], [-1, 0]])
SCORES = np.array([[0.5, 0.25], [0.125, 0], [1, 0.5]], np.float32)
NAMES = ["man", "dog"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The collection as one array, and columns beside it."""
    (tmp_path / "keys.txt").write_text("".join(key + "\n" for key in KEYS))
    for name, array in (("features", FEATURES), ("boxes", BOXES), ("labels", LABELS), ("scores", SCORES)):
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def make(
    folder: Path, out: str = "out", arrays: str = "features.npy", beside: dict[str, str] | None = None, **choices: Any
) -> StoreSummary:
    source = open_arrays(folder / arrays, folder / "keys.txt", beside=beside or {}, **choices.pop("reading", {}))
    labelled = "labels" in source.columns
    columns = Columns(source.columns, NAMES if labelled else ())
    return import_features(source, folder / out, shard_size=2, **{"columns": columns, **choices})


def beside(folder: Path, *names: str, **others: str) -> dict[str, str]:
    return {name: str(folder / f"{name}.npy") for name in names} | others


def gathered(folder: Path, out: str = "out") -> dict[str, np.ndarray]:
    return FeatureStore(folder / out).gather_columns(np.arange(len(KEYS)))


def refused(message: str, folder: Path, *choices: str, **arguments: Any) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make(folder, "refused", **arguments)
    assert set(choices) <= set(caught.value.choices)
    assert not (folder / "refused").exists()


def test_columns_beside_one_array_come_through(folder: Path) -> None:
    summary = make(folder, beside=beside(folder, "boxes", "labels", "scores"))
    assert summary.columns == ("boxes", "labels", "scores") and summary.cleared == 0
    found = gathered(folder)
    np.testing.assert_array_equal(found["boxes"], BOXES)
    np.testing.assert_array_equal(found["labels"], LABELS)
    np.testing.assert_array_equal(found["scores"], SCORES)
    store = FeatureStore(folder / "out")
    np.testing.assert_array_equal(store.features, FEATURES)
    assert store.label_names == NAMES and {"boxes", "labels", "scores", "box_format"} < set(store.plan)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_columns_may_be_tensors(folder: Path, dtype: torch.dtype) -> None:
    torch.save(torch.from_numpy(BOXES).to(dtype), folder / "boxes.pt")
    torch.save(torch.from_numpy(LABELS).to(torch.int16), folder / "labels.pt")
    make(folder, beside={"boxes": str(folder / "boxes.pt"), "labels": str(folder / "labels.pt")})
    np.testing.assert_array_equal(gathered(folder)["boxes"], BOXES)
    np.testing.assert_array_equal(gathered(folder)["labels"], LABELS)


def test_boxes_in_pixels_are_scaled_by_the_sizes_of_their_pictures(folder: Path) -> None:
    sizes = np.array([[500, 375], [100, 400], [64, 64]])
    np.save(folder / "box_sizes.npy", sizes)
    pixels = BOXES * np.tile(sizes, 2)[:, None]
    pixels[..., 2:] -= pixels[..., :2]
    np.save(folder / "boxes.npy", pixels)
    make(folder, beside=beside(folder, "boxes", "box_sizes"), box_format="xywh")
    np.testing.assert_allclose(gathered(folder)["boxes"], BOXES, atol=1e-7)
    hint = r"row 0 \(a\.jpg\), region 0, has 0 0 500 375\. .* If boxes are in pixels, give the pictures' widths"
    refused(hint, folder, "box_sizes", beside=beside(folder, "boxes"), box_format="xywh")
    message = r"row 0 \(a\.jpg\), region 1, .*among these 2\.$"
    refused(message, folder, "box_format", beside=beside(folder, "boxes", "box_sizes"))
    sizes[2, 1] = 0
    np.save(folder / "box_sizes.npy", sizes)
    message = r"widths and heights should be above 0, but row 2 \(c\.jpg\) has 64 and 0\. 1 such images among these 1"
    refused(message, folder, "box_sizes", beside=beside(folder, "boxes", "box_sizes"), box_format="xywh")


def test_boxes_in_0_to_1_are_not_divided_by_the_sizes_of_their_pictures(folder: Path) -> None:
    """All of an image's boxes in its first pixel: nobody's boxes."""
    sizes = np.array([[500, 375], [100, 400], [64, 64]])
    np.save(folder / "box_sizes.npy", sizes)
    message = r"in pixels where widths .* row 0 \(a\.jpg\), 500 x 375 pixels, lie in 0\.\.1\. 2 such images"
    refused(message, folder, "box_sizes", beside=beside(folder, "boxes", "box_sizes"))
    pixels = BOXES * np.tile(sizes, 2)[:, None]
    pixels[1] = BOXES[1]
    np.save(folder / "boxes.npy", pixels)
    message = r"row 1 \(b\.jpg\), 100 x 400 pixels, lie in 0\.\.1\. 1 such images"
    refused(message, folder, "boxes", beside=beside(folder, "boxes", "box_sizes"))
    pixels[1, 0] *= 50  # one box that is real: the others are small
    np.save(folder / "boxes.npy", pixels)
    make(folder, beside=beside(folder, "boxes", "box_sizes"))


def write_npz(folder: Path, **changed: Any) -> Path:
    """One .npz per image as bottom-up attention has it: `x`, `bbox` in pixels, `image_w`, `image_h`, and a pickle."""
    (folder / "npz").mkdir(exist_ok=True)
    for row, key in enumerate(KEYS):
        count = 1 if row == 1 else 2
        parts = {
            "x": FEATURES[row, :count],
            "bbox": BOXES[row, :count] * [50, 40, 50, 40],
            "objects": LABELS[row, :count],
            "conf": SCORES[row, :count],
            "image_w": 50,
            "image_h": np.array([40]),
            "info": np.array({"code": "never run"}, dtype=object),
        }
        np.savez(folder / f"npz/{key}.npz", **{**parts, **(changed if row == 0 else {})})
    return folder


NPZ = {"boxes": "bbox", "labels": "objects", "scores": "conf", "box_sizes": "image_w,image_h"}
READING: dict[str, Any] = {"array_name": "x", "regions": 3}


def test_columns_of_a_folder_are_arrays_of_each_file_by_name(folder: Path) -> None:
    make(write_npz(folder), arrays="npz", beside=NPZ, reading=READING)
    store, found = FeatureStore(folder / "out"), gathered(folder)
    assert store.columns == ("boxes", "labels", "scores") and store.num_regions == 3
    np.testing.assert_allclose(found["boxes"][:, :2], BOXES, atol=1e-7)
    np.testing.assert_array_equal(found["labels"][:, :2], LABELS)
    np.testing.assert_array_equal(found["scores"][:, :2], SCORES)
    assert not found["boxes"][:, 2].any() and (found["labels"][:, 2] == -1).all() and found["labels"][1, 1] == -1
    assert store.plan["boxes"] == "bbox" and store.plan["box_sizes"] == ["image_w", "image_h"]


def test_folder_with_one_array_of_two_sizes(folder: Path) -> None:
    write_npz(folder)
    for key in KEYS:
        with np.load(folder / f"npz/{key}.npz") as arrays:
            parts = {name: arrays[name] for name in ("x", "bbox")}
        np.savez(folder / f"npz/{key}.npz", **parts, size=np.array([50, 40]))
    make(folder, arrays="npz", beside={"boxes": "bbox", "box_sizes": "size"}, reading=READING)
    np.testing.assert_allclose(gathered(folder)["boxes"][:, :2], BOXES, atol=1e-7)


def test_missing_file_of_an_image_has_no_columns(folder: Path) -> None:
    write_npz(folder)
    (folder / "npz/a.jpg.npz").unlink()
    summary = make(folder, arrays="npz", beside=NPZ, reading=READING)
    assert (summary.unreadable, summary.cleared) == (1, 0)
    assert (gathered(folder)["labels"][0] == -1).all() and not gathered(folder)["boxes"][0].any()


@pytest.mark.parametrize(
    ("changed", "names", "message", "choice"),
    [
        (
            {"bbox": BOXES[0, :1]},
            {},
            r"a\.jpg\.npz should hold boxes of shape \(2, 4\).* but bbox has",
            "boxes",
        ),
        ({"objects": [0.0, 1.0]}, {}, r"a\.jpg\.npz should hold whole numbers as labels, but holds float64", "labels"),
        ({"bbox": np.array(["a"] * 8).reshape(2, 4)}, {}, r"should hold numbers as boxes, but holds str32", "boxes"),
        ({}, {"boxes": "boxes"}, r"a\.jpg\.npz holds x, bbox, .*, but not boxes\. Choose one by its name", "boxes"),
        (
            {},
            {"boxes": "boxes.npy"},
            r"boxes should be the name of an array in each file of .* boxes\.npy",
            "boxes",
        ),
        ({}, {"box_sizes": "image_w"}, r"should hold a width and a height, but image_w are 1 numbers", "box_sizes"),
        ({"image_w": 0}, {}, r"widths and heights should be above 0, but row 0 \(a\.jpg\) has 0 and 40", "box_sizes"),
        ({"image_w": 20}, {}, r"boxes should be x0 y0 .*row 0 \(a\.jpg\), region 0, has 0 0 2\.5 1", "boxes"),
        ({"objects": [0, 2]}, {}, r"labels should be .*row 0 \(a\.jpg\), region 1, has 2", "labels"),
    ],
)
def test_mistakes_in_a_folder_are_refused(
    folder: Path, changed: dict[str, Any], names: dict[str, str], message: str, choice: str
) -> None:
    write_npz(folder, **changed)
    refused(message, folder, choice, arrays="npz", beside={**NPZ, **names}, reading=READING)


def test_file_of_one_array_has_no_columns_by_name(folder: Path) -> None:
    (folder / "plain").mkdir()
    np.save(folder / "plain/a.jpg.npy", FEATURES[0])
    message = r"a\.jpg\.npy holds one array, but bbox should be there, too: save them as one \.npz"
    refused(message, folder, arrays="plain", beside={"boxes": "bbox"})


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (
            "boxes",
            BOXES[:2],
            r"boxes\.npy should have shape \(3, 2, 4\), .* of 2 regions of 3 images, but has",
        ),
        ("boxes", BOXES[:, :1], r"boxes\.npy should have shape \(3, 2, 4\), .* but has \(3, 1, 4\)"),
        ("labels", LABELS[:, :, None], r"labels\.npy should have shape \(3, 2\), .* but has \(3, 2, 1\)"),
        ("labels", LABELS.astype(float), r"labels\.npy should hold whole numbers as labels, but holds float64"),
        ("labels", LABELS > 0, r"labels\.npy should hold whole numbers as labels, but holds bool"),
        ("scores", LABELS > 0, r"scores\.npy should hold numbers as scores, but holds bool"),
        ("box_sizes", np.ones((3, 3)), r"box_sizes\.npy should have shape \(3, 2\)"),
    ],
)
def test_column_files_of_another_form_are_refused(folder: Path, name: str, array: np.ndarray, message: str) -> None:
    np.save(folder / f"{name}.npy", array)
    refused(message, folder, name, beside=beside(folder, name))


def test_column_file_that_is_not_there_is_refused(folder: Path) -> None:
    message = r"boxes should be a \.npy file beside .*features\.npy, but bbox is none"
    refused(message, folder, "boxes", beside={"boxes": "bbox"})


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("boxes", (2, 0), [0, 0, np.nan, 1], r"boxes should be .*row 2 \(c\.jpg\), region 0, has 0 0 nan 1"),
        ("boxes", (0, 1), [0.5, 0, 0.25, 1], r"boxes should be .*row 0 \(a\.jpg\), region 1, has 0\.5 0 0\.25 1"),
        ("labels", (1, 0), 2, r"labels should be .*row 1 \(b\.jpg\), region 0, has 2"),
        ("scores", (2, 1), np.inf, r"scores should be .*row 2 \(c\.jpg\), region 1, has inf"),
    ],
)
def test_values_that_a_column_can_not_have_are_refused_with_row_and_key(
    folder: Path, name: str, place: tuple[int, int], value: Any, message: str
) -> None:
    array = np.load(folder / f"{name}.npy")
    array[place] = value
    np.save(folder / f"{name}.npy", array)
    refused(message, folder, name, beside=beside(folder, "boxes", "labels", "scores"))


def test_label_of_a_region_without_features_is_left_out_or_strictly_refused(folder: Path) -> None:
    labels = LABELS.copy()
    labels[1, 1] = 1
    np.save(folder / "labels.npy", labels)
    assert make(folder, beside=beside(folder, "labels")).cleared == 1
    np.testing.assert_array_equal(gathered(folder)["labels"], LABELS)
    message = r"1 regions have only zeros as features, .*strictly, no such .* region 1 of row 1 \(b\.jpg\)"
    refused(message, folder, "strict", beside=beside(folder, "labels"), strict=True)


def test_labels_need_names(folder: Path) -> None:
    without = Columns(("labels",))
    refused(r"labels are numbers of names", folder, "label_names", beside=beside(folder, "labels"), columns=without)


def write_table(folder: Path, *lines: str) -> Path:
    header = "image\tx1\ty1\tx2\ty2\tlabel\twidth\theight"
    path = folder / "regions.tsv"
    path.write_text("\n".join([header, *(line.replace(" ", "\t") for line in lines)]) + "\n")
    return path


TABLE = [
    "c.jpg 0 0 10 10 man 10 20",
    "a.jpg 0 0 100 50 dog 100 50",
    "b.jpg 5 0 10 10 dog 10 10",
    "a.jpg 25 25 50 50 man 100 50",
    "c.jpg 0 10 5 20 dog 10 20",
]


def test_table_gives_boxes_and_labels_to_features_in_its_order(folder: Path) -> None:
    summary = make(folder, table=RegionTable(write_table(folder, *TABLE), KEYS))
    assert summary.columns == ("boxes", "labels")
    found = gathered(folder)
    assert found["boxes"].tolist() == [
        [[0, 0, 1, 1], [0.25, 0.5, 0.5, 1]],
        [[0.5, 0, 1, 1], [0] * 4],
        [[0, 0, 1, 0.5], [0, 0.5, 0.5, 1]],
    ]
    assert found["labels"].tolist() == [[0, 1], [0, -1], [1, 0]]
    store = FeatureStore(folder / "out")
    assert store.label_names == ["dog", "man"]
    np.testing.assert_array_equal(store.features, FEATURES)
    other = [*TABLE[:4], "c.jpg 0 10 6 20 dog 10 20"]
    with pytest.raises(InputError, match=r"\(other regions table\)\."):
        make(folder, table=RegionTable(write_table(folder, *other), KEYS))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (TABLE[:4], r"row 2 \(c\.jpg\) has 2 regions with features, and 1 lines in .*regions\.tsv\. 1 such"),
        ([*TABLE, TABLE[2]], r"row 1 \(b\.jpg\) has 1 regions with features, and 2 lines"),
        ([*TABLE, TABLE[0]], r"row 2 \(c\.jpg\) has 2 regions with features, and 3 lines"),
        (TABLE[:2] + TABLE[3:], r"row 1 \(b\.jpg\) has 1 regions with features, and 0 lines"),
    ],
)
def test_table_with_another_number_of_regions_is_refused(folder: Path, lines: list[str], message: str) -> None:
    refused(message, folder, "regions_table", table=RegionTable(write_table(folder, *lines), KEYS))


def test_table_in_pixels_without_sizes_is_refused_with_what_to_do(folder: Path) -> None:
    path = write_table(folder, *TABLE)
    path.write_text("".join("\t".join(line.split("\t")[:6]) + "\n" for line in path.read_text().splitlines()))
    message = r"row 0 \(a\.jpg\), region 0, has 0 0 100 50\. .* give the pictures' widths and heights"
    refused(message, folder, "regions_table", "box_sizes", table=RegionTable(path, KEYS))


def test_table_in_0_to_1_beside_widths_and_heights_is_refused_with_what_to_take_out(folder: Path) -> None:
    lines = [" ".join([key, "0 0 0.5 1", "dog 100 50"]) for key, *_ in map(str.split, TABLE)]
    message = (
        r"all boxes of row 0 \(a\.jpg\), 100 x 50 pixels, lie in 0\.\.1.*where they are columns of .*tsv, take these"
    )
    refused(message, folder, "regions_table", table=RegionTable(write_table(folder, *lines), KEYS))


def test_table_fits_a_folder_and_its_missing_images(folder: Path) -> None:
    write_npz(folder)
    (folder / "npz/a.jpg.npz").unlink()
    make(folder, arrays="npz", reading=READING, table=RegionTable(write_table(folder, *TABLE), KEYS))
    found = gathered(folder)
    assert (found["labels"][0] == -1).all() and found["labels"][2].tolist() == [1, 0, -1]


def test_table_and_columns_beside_the_features_exclude_each_other(folder: Path) -> None:
    table = RegionTable(write_table(folder, *TABLE), KEYS)
    refused(r"from .*regions\.tsv, or from boxes beside", folder, "boxes", beside=beside(folder, "boxes"), table=table)
    refused(r"boxes of a table are x1, y1, x2, y2, but the format is xywh", folder, table=table, box_format="xywh")
    np.save(folder / "box_sizes.npy", np.ones((3, 2)))
    refused(r"has the pictures' widths and heights", folder, beside=beside(folder, "box_sizes"), table=table)


def test_interrupted_import_with_columns_continues_to_the_same_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = beside(folder, "boxes", "labels", "scores")
    make(folder, "whole", beside=files)
    write, written = importers.StoreWriter.write, []

    def interrupted(self: importers.StoreWriter, *arguments: Any) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(write(self, *arguments))

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(importers.StoreWriter, "write", interrupted)
        make(folder, beside=files)
    make(folder, beside=files)
    for path in (folder / "whole").iterdir():
        assert (folder / "out" / path.name).read_bytes() == path.read_bytes()
    np.save(folder / "boxes.npy", BOXES / 2)
    with pytest.raises(InputError, match=r"out was made with other choices \(other boxes\)\."):
        make(folder, beside=files)


def test_who_made_the_features_goes_into_the_signature(folder: Path) -> None:
    make(folder, "said", made_by="ResNet-152 | pool5")
    np.save(folder / "other.npy", FEATURES + 1)
    make(folder, "other said", "other.npy", made_by="ResNet-152 | pool5")
    make(folder, "silent")
    make(folder, "other silent", "other.npy")
    signed = {path: FeatureStore(folder / path).signature for path in ("said", "other said", "silent", "other silent")}
    assert signed["said"].startswith("import|images:3|normalise:no|made_by:ResNet-152 / pool5|version:")
    assert made_alike(signed["said"], signed["other said"])
    assert not made_alike(signed["silent"], signed["other silent"])
    assert not made_alike(signed["said"], signed["silent"])
    with pytest.raises(InputError, match=r"made_by was 'ResNet-152 \| pool5', now 'VGG'"):
        make(folder, "said", made_by="VGG")
    for text in ("", " ", "a\nb"):
        refused(r"what made the features should be one line of text, but is", folder, "made_by", made_by=text)


def test_another_array_of_the_same_file_is_another_plan(folder: Path) -> None:
    torch.save({"a": torch.from_numpy(FEATURES), "b": torch.from_numpy(FEATURES) * 2}, folder / "f.pt")
    make(folder, arrays="f.pt", reading={"array_name": "a"})
    with pytest.raises(InputError, match=r"array was 'a', now 'b'"):
        make(folder, arrays="f.pt", reading={"array_name": "b"})


@pytest.mark.data
def test_real_regions_come_through_unchanged(real_data: Path, tmp_path: Path) -> None:
    regions = real_data / "flickr8k/regions"
    lines = (real_data / "flickr8k/images.tsv").read_text().splitlines()[1:]
    (tmp_path / "keys.txt").write_text("".join(line.split("\t")[1] + "\n" for line in lines))
    files = {name: str(regions / f"{name}.npy") for name in ("boxes", "labels", "scores")}
    source = open_arrays(regions / "features.npy", tmp_path / "keys.txt", beside=files)
    names = (regions / "label_names.txt").read_text().splitlines()
    summary = import_features(source, tmp_path / "out", columns=Columns(source.columns, names), made_by="DEIMv2-Femto")
    assert summary.cleared == 0 and summary.zero == 0
    store, rows = FeatureStore(tmp_path / "out"), np.array([0, 4000, 7347])
    features, mask = store.gather(rows)
    counts = np.load(regions / "num_regions.npy")
    assert (~mask).sum(axis=1).tolist() == counts[rows].tolist() and store.label_names[0] == "person"
    found = store.gather_columns(rows)
    for name in ("boxes", "labels", "scores"):
        np.testing.assert_array_equal(found[name], np.load(regions / f"{name}.npy", mmap_mode="r")[rows])
    np.testing.assert_array_equal(features, np.load(regions / "features.npy", mmap_mode="r")[rows])


def test_arrays_read_the_other_way_round_are_another_plan(folder: Path) -> None:
    np.save(folder / "square.npy", np.arange(1.0, 13).reshape(3, 2, 2))  # (I, R, F) or (I, F, R): both fit
    make(folder, arrays="square.npy", reading={"channels_first": True})
    with pytest.raises(InputError, match=r"channels_first was True, now None"):
        make(folder, arrays="square.npy")


def test_best_regions_by_the_scores_of_a_table(folder: Path) -> None:
    lines = ["a.jpg\t0\t0\t0.5\t0.5\t0.1", "a.jpg\t0\t0\t1\t1\t0.9", "b.jpg\t0\t0\t1\t1\t0.2"]
    lines += ["c.jpg\t0\t0\t1\t1\t0.4", "c.jpg\t0.5\t0\t1\t1\t0.3"]
    (folder / "t.tsv").write_text("\n".join(["image\tx1\ty1\tx2\ty2\tscore", *lines]) + "\n")
    source = open_arrays(folder / "features.npy", folder / "keys.txt", regions=1)
    summary = import_features(source, folder / "out", table=RegionTable(folder / "t.tsv", KEYS), min_score=0.25)
    store = FeatureStore(folder / "out")
    assert store.features[:, 0].tolist() == [[3, 4], [0, 0], [7, 8]]
    assert store.column("boxes")[:, 0].tolist() == [[0, 0, 1, 1], [0] * 4, [0, 0, 1, 1]]
    assert (summary.weak, summary.surplus, summary.zero) == (2, 1, 1)
