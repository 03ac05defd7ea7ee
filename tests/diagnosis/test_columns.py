"""The doctor's look at boxes, labels, attributes and scores of a store."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_store
from visual_grounding.diagnosis.artefacts import Parts, check_store, chosen_blocks
from visual_grounding.diagnosis.columns import check_columns
from visual_grounding.diagnosis.findings import Level
from visual_grounding.features.store import FeatureStore


def sound() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """5 images with 2 regions each, but the third has one and the last none."""
    features = np.ones((5, 2, 3))
    features[2, 1] = features[4] = 0
    absent = ~features.any(axis=2)
    boxes = np.tile([0.25, 0.25, 0.5, 1], (5, 2, 1))
    columns = {
        "boxes": boxes,
        "labels": np.ones((5, 2)),
        "attributes": np.zeros((5, 2)),
        "scores": np.full((5, 2), 0.5),
    }
    for name, values in columns.items():
        values[absent] = -1 if name in ("labels", "attributes") else 0
    return features, columns


def findings(folder: Path) -> list[tuple[Level, str]]:
    return [(finding.level, finding.text) for finding in check_store(folder, Parts(), everything=False)]


def test_store_with_sound_columns_is_well(tmp_path: Path) -> None:
    features, columns = sound()
    write_store(tmp_path / "store", features, columns=columns)
    ((level, text),) = findings(tmp_path / "store")
    assert level is Level.OK
    assert "5 images, 2 regions of 3 numbers with boxes, labels, attributes, scores; all rows were scanned" in text


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        (
            "boxes",
            3,
            [0, 0, 1.5, 1],
            r"boxes.npy should hold x0 y0 x1 y1 in 0..1 with x0 <= x1 and y0 <= y1, but 1 images,",
        ),
        ("boxes", 3, [0.5, 0, 0.25, 1], "such as row 3 (image3.jpg), hold something else; all rows were scanned"),
        ("boxes", 3, [0, 0, np.nan, 1], "hold something else"),
        ("labels", 0, 2, "labels.npy should hold -1 for none, or 0 to 1, a line of label_names.txt"),
        ("attributes", 1, -2, "attributes.npy should hold -1 for none, or 0 to 0, a line of attribute_names.txt"),
        (
            "scores",
            3,
            np.inf,
            "scores.npy should hold finite numbers that float16 can hold, but 1 images, such as row 3",
        ),
        ("labels", 4, 0, "labels.npy should say nothing of absent regions, whose features are all zero, but 1 images,"),
        ("boxes", 4, [0, 0, 1, 1], "such as row 4 (image4.jpg), have something there"),
        ("scores", 4, 0.5, "scores.npy should say nothing of absent regions"),
        ("attributes", 4, 0, "attributes.npy should say nothing of absent regions"),
    ],
)
def test_values_that_should_not_be_there_are_wrong(
    tmp_path: Path, name: str, row: int, value: object, message: str
) -> None:
    features, columns = sound()
    columns[name][row, 0] = value
    write_store(tmp_path / "store", features, None, columns, ["man", "dog"], ["red"])
    (level, text), (fine, _) = findings(tmp_path / "store")
    assert level is Level.WRONG and fine is Level.OK and message in text


def test_empty_boxes_are_a_note(tmp_path: Path) -> None:
    features, columns = sound()
    columns["boxes"][:2, 0] = [0.5, 0, 0.5, 1]
    write_store(tmp_path / "store", features, columns=columns)
    assert (
        Level.NOTE,
        f"{tmp_path / 'store/boxes.npy'}: 2 boxes of regions with features are empty; all rows were scanned.",
    ) in (findings(tmp_path / "store"))


def test_names_and_files_that_do_not_fit_are_refused_at_opening(tmp_path: Path) -> None:
    features, columns = sound()
    write_store(tmp_path / "store", features, columns=columns)
    (tmp_path / "store/label_names.txt").write_text("dog\nman\n")
    from visual_grounding.diagnosis.findings import findings_of

    (finding,) = findings_of(lambda: check_store(tmp_path / "store", Parts(), False), "the store")
    assert finding.level is Level.WRONG and "label_names.txt was changed after the store was made" in finding.text


def test_columns_of_a_large_store_are_looked_at_in_spread_blocks(tmp_path: Path) -> None:
    features, labels = np.ones((1000, 1, 2)), np.zeros((1000, 1), np.int64)
    labels[[0, 500, 999]] = 7
    store = FeatureStore(write_store(tmp_path / "store", features, None, {"labels": labels}, ["man"]))
    blocks = list(chosen_blocks(1000, 4, 400))
    assert blocks[0] == (0, 100) and blocks[-1] == (900, 100) and len(blocks) < 10
    (finding,) = check_columns(store, blocks, "some rows")
    assert "2 images, such as row 0 (image0.jpg), hold something else; some rows were scanned" in finding.text


def test_what_is_broken_where_no_region_is_counts_once(tmp_path: Path) -> None:
    features, columns = sound()
    columns["boxes"][4, 0] = [0, 0, 7, np.nan]
    write_store(tmp_path / "store", features, columns=columns)
    (_, text), (level, _) = findings(tmp_path / "store")
    assert "should say nothing of absent regions" in text and level is Level.OK
