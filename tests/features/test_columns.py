"""Boxes, labels, attributes and scores of a store: written whole, looked up by row, refused where they don't fit."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_store
from visual_grounding.errors import InputError
from visual_grounding.features.columns import COLUMNS, NO_COLUMNS, Columns
from visual_grounding.features.store import FeatureStore
from visual_grounding.features.store_writer import StoreSummary, StoreWriter
from visual_grounding.storage.shards import ShardedArtefact

ALL = Columns(tuple(COLUMNS), ["man", "dog"], ["red", "wet", "old"])


def regions() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """3 images, R = 2, F = 2: image 0 has two regions, image 1 one, image 2 none."""
    features = np.array([[[1, 2], [3, 4]], [[5, 6], [0, 0]], [[0, 0], [0, 0]]], np.float32)
    return features, {
        "boxes": np.array([[[0, 0, 1, 1], [0.25, 0.5, 0.5, 0.75]], [[0, 0, 0.5, 1], [0] * 4], [[0] * 4] * 2]),
        "labels": np.array([[0, 1], [-1, -1], [-1, -1]]),
        "attributes": np.array([[2, -1], [0, -1], [-1, -1]]),
        "scores": np.array([[0.5, 0.25], [0.125, 0], [0, 0]]),
    }


def write(
    out: Path,
    columns: Columns = ALL,
    strict: bool = False,
    unreadable: dict[int, str] | None = None,
    **changed: np.ndarray,
) -> StoreSummary:
    features, values = regions()
    features = changed.pop("features", features)
    values = {name: values[name] for name in columns.present if name in values} | changed
    writer = StoreWriter(out, ["a.jpg", "b.jpg", "c.jpg"], 2, 2, {"choice": 1}, 2, strict, columns)
    for shard in writer.missing():
        rows = slice(shard.start, shard.stop)
        listed = {row: why for row, why in (unreadable or {}).items() if shard.start <= row < shard.stop}
        writer.write(shard, features[rows].copy(), listed, {name: array[rows] for name, array in values.items()})
    return writer.publish("signed")


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_columns_come_back_as_they_were_written(tmp_path: Path) -> None:
    summary = write(tmp_path / "out")
    store, (_, values) = FeatureStore(tmp_path / "out"), regions()
    assert store.columns == ("boxes", "labels", "attributes", "scores")
    assert (store.label_names, store.attribute_names) == (["man", "dog"], ["red", "wet", "old"])
    ids = np.array([[1, 0], [2, 1]])
    found = store.gather_columns(ids)
    assert {name: (array.shape, array.dtype.name) for name, array in found.items()} == {
        "boxes": ((2, 2, 2, 4), "float32"),
        "labels": ((2, 2, 2), "int32"),
        "attributes": ((2, 2, 2), "int32"),
        "scores": ((2, 2, 2), "float16"),
    }
    for name, array in found.items():
        np.testing.assert_array_equal(array, values[name][ids])
    assert list(store.gather_columns(ids, ["scores", "boxes"])) == ["scores", "boxes"]
    assert summary.columns == store.columns and summary.cleared == 0
    assert "3 images, 2 regions of 2 numbers each, with boxes, labels, attributes, scores." in summary.describe("out")
    for name, column in COLUMNS.items():
        array = np.load(tmp_path / f"out/{name}.npy")
        assert (array.shape, array.dtype.name) == ((3, 2, *column.shape), column.dtype)


def test_no_image_has_the_columns_of_absent_regions(tmp_path: Path) -> None:
    write(tmp_path / "out")
    found = FeatureStore(tmp_path / "out").gather_columns(np.array([-1, 0]))
    assert found["boxes"].tolist() == [[[0] * 4] * 2, [[0, 0, 1, 1], [0.25, 0.5, 0.5, 0.75]]]
    assert found["labels"].tolist() == [[-1, -1], [0, 1]] and found["attributes"].tolist() == [[-1, -1], [2, -1]]
    assert found["scores"].tolist() == [[0, 0], [0.5, 0.25]]


def test_gathering_leaves_the_store_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "out")
    store = FeatureStore(tmp_path / "out")
    store.gather_columns(np.array([0]))["labels"][:] = 9
    assert store.gather_columns(np.array([0]))["labels"].tolist() == [[0, 1]]


def test_store_without_columns_has_none_and_says_nothing_of_them(tmp_path: Path) -> None:
    summary = write(tmp_path / "out", NO_COLUMNS)
    store = FeatureStore(tmp_path / "out")
    assert (store.columns, store.label_names, store.attribute_names) == ((), [], [])
    assert store.gather_columns(np.array([0])) == {}
    assert "columns" not in (tmp_path / "out/meta.json").read_text() and "with" not in summary.describe("out")
    assert "cleared" not in (tmp_path / "out/meta.json").read_text()
    with pytest.raises(InputError, match=r"out should have boxes, but has features alone"):
        store.gather_columns(np.array([0]), ["boxes"])


def test_gather_columns_names_the_row_outside_the_store_and_the_column_it_lacks(tmp_path: Path) -> None:
    write(tmp_path / "out", Columns(("boxes",)))
    store = FeatureStore(tmp_path / "out")
    with pytest.raises(InputError, match=r"row 3, but .*out has 3 images \(rows 0\.\.2\)"):
        store.gather_columns(np.array([3]))
    with pytest.raises(InputError, match=r"out should have labels, scores, but has boxes\."):
        store.gather_columns(np.array([0]), ["labels", "boxes", "scores"])


def test_store_with_columns_travels_to_another_process_by_its_path(tmp_path: Path) -> None:
    write(tmp_path / "out")
    sent = pickle.dumps(FeatureStore(tmp_path / "out"))
    assert len(sent) < 500
    assert pickle.loads(sent).gather_columns(np.array([0]))["labels"].tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "boxes",
            [0, 0, 1.5, 1],
            r"x0 y0 x1 y1 in 0\.\.1 .*row 1 \(b\.jpg\), region 0, has 0 0 1\.5 1\. 1 such images",
        ),
        ("boxes", [-0.1, 0, 1, 1], r"region 0, has -0\.1 0 1 1"),
        ("boxes", [0.5, 0, 0.25, 1], r"x0 <= x1 and y0 <= y1, but row 1 \(b\.jpg\), region 0, has 0\.5 0 0\.25 1"),
        ("boxes", [0, 0.5, 1, 0.25], r"region 0, has 0 0\.5 1 0\.25"),
        ("boxes", [0, 0, np.nan, 1], r"region 0, has 0 0 nan 1"),
        ("boxes", [0, 0, 1, np.inf], r"region 0, has 0 0 1 inf"),
        ("labels", 2, r"labels should be -1 for none, or 0 to 1, a line of label_names\.txt.* row 1 .*, has 2\."),
        ("labels", -2, r"row 1 \(b\.jpg\), region 0, has -2"),
        ("labels", 2**32, r"row 1 \(b\.jpg\), region 0, has 4294967296|4\.29497e\+09"),
        ("attributes", 3, r"attributes should be -1 for none, or 0 to 2, a line of attribute_names\.txt"),
        ("scores", np.nan, r"scores should be finite numbers .*row 1 \(b\.jpg\), region 0, has nan"),
        ("scores", 1e6, r"scores should be finite numbers that float16 can hold, but .* has 1e\+06"),
    ],
)
def test_value_that_a_column_can_not_have_is_refused_with_row_and_key(
    tmp_path: Path, name: str, value: Any, message: str
) -> None:
    values = regions()[1][name]
    values[1, 0] = value
    with pytest.raises(InputError, match=message):
        write(tmp_path / "out", **{name: values})
    assert not (tmp_path / "out").exists()
    values[1, 0] = 0
    values[1, 1] = value if np.isfinite(value).all() else 0  # of an absent region: left out and counted
    assert write(tmp_path / "out", **{name: values}).cleared == int(np.isfinite(value).all())
    assert np.load(tmp_path / f"out/{name}.npy")[1, 1].tolist() == (
        [0] * 4 if name == "boxes" else COLUMNS[name].absent
    )


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("boxes", np.zeros((3, 2)), r"boxes should be numbers of shape \(2, 2, 4\), but are float64 of \(2, 2\)"),
        ("labels", np.zeros((3, 2)), r"labels should be whole numbers of shape \(2, 2\), but are float64 of \(2, 2\)"),
        ("scores", np.zeros((3, 3)), r"scores should be numbers of shape \(2, 2\), but are float64 of \(2, 3\)"),
        ("masks", np.zeros((3, 2)), r"columns should be boxes, labels, .*, but are boxes, labels, .*, masks"),
    ],
)
def test_columns_of_another_form_are_refused(tmp_path: Path, name: str, values: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write(tmp_path / "out", **{name: values})


def test_descriptions_that_are_none_are_refused(tmp_path: Path) -> None:
    def refused(message: str, *described: Any) -> None:
        with pytest.raises(InputError, match=message):
            write(tmp_path / "out", Columns(*described))
        assert not list(tmp_path.iterdir())

    refused(r"columns should be some of boxes, labels, .*, but are masks", ("masks",))
    refused(r"each once and in this order, but are scores, boxes", ("scores", "boxes"))
    refused(r"labels are numbers of names, but there are no names", ("labels",))
    refused(r"names are what attributes stand for, but there are no attributes", ("boxes",), (), ["red"])
    refused(r"names of labels should be one a line, but number 1 is ''", ("labels",), ["man", ""])
    refused(r"names of labels should be one a line, but number 0 is 'a\\nb'", ("labels",), ["a\nb"])


def test_what_columns_say_of_absent_regions_is_left_out_counted_and_strictly_refused(tmp_path: Path) -> None:
    labels = np.array([[0, 1], [0, 1], [0, 0]])  # image 1: region 1 is absent, but a dog; zeros may be padding
    summary = write(tmp_path / "out", labels=labels)
    assert summary.cleared == 1
    assert (
        "1 of 6 regions (16.7 %) have only zeros as features, so they are absent; what boxes, labels, attributes, "
        "scores say of them was left out." in summary.describe("out")
    )
    assert np.load(tmp_path / "out/labels.npy").tolist() == [[0, 1], [0, -1], [-1, -1]]
    message = r"1 regions have only zeros .*; strictly, no such region is allowed"
    with pytest.raises(InputError, match=message + r"\. The first is region 1 of row 1 \(b\.jpg\)\."):
        write(tmp_path / "strict", strict=True, labels=labels)
    with pytest.raises(InputError, match=message):  # it is there already
        write(tmp_path / "out", strict=True, labels=labels)
    assert write(tmp_path / "out", labels=labels) == summary


def test_strictly_what_an_interrupted_run_left_out_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.array([[0, 1], [0, 1], [0, 0]])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StoreWriter, "publish", killed)
        write(tmp_path / "out", labels=labels)
    with pytest.raises(InputError, match=r"1 regions have only zeros as features, .*strictly, no such region"):
        write(tmp_path / "out", strict=True, labels=labels)
    assert not (tmp_path / "out").exists()


def test_unreadable_image_has_no_columns_and_is_not_counted_as_left_out(tmp_path: Path) -> None:
    summary = write(tmp_path / "out", unreadable={0: "missing"})
    assert (summary.unreadable, summary.cleared) == (1, 0)
    found = FeatureStore(tmp_path / "out").gather_columns(np.array([0]))
    assert found["labels"].tolist() == [[-1, -1]] and not found["boxes"].any() and not found["scores"].any()


def test_column_file_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    for number, file in enumerate(("boxes.npy", "labels.npy", "scores.npy", "label_names.txt", "attribute_names.txt")):
        write(tmp_path / f"{number}", NO_COLUMNS)
        (tmp_path / f"{number}" / file).write_bytes(b"x")
        with pytest.raises(InputError, match=rf"{file} is there, but meta\.json names no \w+: it isn't part"):
            FeatureStore(tmp_path / f"{number}")


def test_column_that_is_declared_and_missing_or_of_another_form_is_refused(tmp_path: Path) -> None:
    for number, file in enumerate(("boxes.npy", "labels.npy", "attributes.npy", "scores.npy")):
        write(tmp_path / f"{number}")
        (tmp_path / f"{number}" / file).unlink()
        with pytest.raises(InputError, match=rf"{file} is missing"):
            FeatureStore(tmp_path / f"{number}")
    write(tmp_path / "out")
    np.save(tmp_path / "out/boxes.npy", np.zeros((3, 2, 4)))
    with pytest.raises(InputError, match=r"boxes\.npy should be float32 of shape \(3, 2, 4\), but is float64"):
        FeatureStore(tmp_path / "out")


def test_names_that_are_missing_or_changed_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "out")
    names = tmp_path / "out/label_names.txt"
    names.write_text("dog\nman\n")  # two lines swapped
    with pytest.raises(InputError, match=r"label_names\.txt was changed after the store was made: its sha256"):
        FeatureStore(tmp_path / "out")
    names.unlink()
    with pytest.raises(InputError, match=r"label_names\.txt can't be read"):
        FeatureStore(tmp_path / "out")


@pytest.mark.parametrize("said", ["boxes", ["scores", "boxes"], ["masks"], {"boxes": 1}])
def test_broken_declaration_is_refused(tmp_path: Path, said: Any) -> None:
    write(tmp_path / "out")
    meta = json.loads((tmp_path / "out/meta.json").read_text())
    (tmp_path / "out/meta.json").write_text(json.dumps({**meta, "columns": said}))
    with pytest.raises(InputError, match=r"meta\.json should have some of boxes, labels, .* as 'columns'"):
        FeatureStore(tmp_path / "out")


@pytest.mark.parametrize(("name", "value"), [("boxes", np.nan), ("labels", 7), ("scores", np.inf)])
def test_gather_columns_refuses_values_that_were_broken_since(tmp_path: Path, name: str, value: float) -> None:
    write(tmp_path / "out")
    array = np.load(tmp_path / f"out/{name}.npy")
    array[1, 0] = value
    np.save(tmp_path / f"out/{name}.npy", array)
    store = FeatureStore(tmp_path / "out")
    store.gather_columns(np.array([0, 2, -1]))
    with pytest.raises(
        InputError, match=rf"out: {name} should be .* row 1 \(b\.jpg\), region 0, has .*Delete the store"
    ):
        store.gather_columns(np.array([[0], [1]]))


@pytest.mark.parametrize("killed_at", ["second shard", "add_lines", "publish"])
def test_store_with_columns_that_was_interrupted_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    write(tmp_path / "whole")
    name = "write" if killed_at == "second shard" else killed_at
    done, method = [], getattr(ShardedArtefact, name)

    def killed(self: ShardedArtefact, *arguments: Any) -> Any:
        if done or name == "publish":
            raise KeyboardInterrupt
        done.append(method(self, *arguments))

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ShardedArtefact, name, killed)
        write(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write(tmp_path / "out")
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")
    assert len(content_of(tmp_path / "out")) == 9


def test_other_columns_or_names_are_another_plan(tmp_path: Path) -> None:
    write(tmp_path / "out")
    with pytest.raises(InputError, match=r"made with other choices \(other label names\)"):
        write(tmp_path / "out", ALL._replace(label_names=["dog", "man"]))
    with pytest.raises(InputError, match=r"columns was \['boxes', .*'scores'\], now \['boxes'\]"):
        write(tmp_path / "out", Columns(("boxes",)))
    with pytest.raises(InputError, match=r"columns was \['boxes', .*'scores'\], now None"):
        write(tmp_path / "out", NO_COLUMNS)


def test_store_of_a_test_has_columns_on_demand(tmp_path: Path) -> None:
    features, values = regions()
    store = FeatureStore(write_store(tmp_path / "out", features, columns=values))
    assert store.columns == tuple(COLUMNS) and store.label_names == ["label 0", "label 1"]
    assert store.gather_columns(np.array([0]))["attributes"].tolist() == [[2, -1]]
