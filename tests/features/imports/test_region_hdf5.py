"""HDF5 in every form in which region features are published."""

import os
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.imports.published import (
    COUNTS,
    IDS,
    RECORDS,
    SIZES,
    bottom_up,
    check_store,
    import_all,
    pixels,
)
from visual_grounding.errors import InputError
from visual_grounding.features.imports import region_hdf5

h5py = pytest.importorskip("h5py")
CORNERS = ("image_id", "features", "boxes", "image_w", "image_h", "num_boxes", "objects_id", "objects_conf")


def filled(arrays: list[np.ndarray], most: int = 3) -> np.ndarray:
    """(I, R, ...), filled up with what must not be read."""
    return np.stack([np.concatenate([a, np.full((most - len(a), *a.shape[1:]), 7, a.dtype)]) for a in arrays])


def write_tables(path: Path, **changed: object) -> Path:
    """All images in one array each, filled up, with the number of regions and the ids."""
    arrays = {
        "image_id": np.array([identity.encode() for identity in IDS]),
        "features": filled([own["features"] for own in RECORDS]),
        "boxes": filled([pixels(row) for row in range(len(IDS))]),
        "num_boxes": np.array(COUNTS),
        "image_w": np.array([width for width, _ in SIZES]),
        "image_h": np.array([height for _, height in SIZES]),
        "objects_id": filled([own["labels"] for own in RECORDS]),
        "objects_conf": filled([own["scores"] for own in RECORDS]),
    }
    with h5py.File(path, "w") as file:
        for name, array in {**arrays, **changed}.items():
            if array is not None:
                file[name] = array
    return path


def write_one_behind_the_other(path: Path, **changed: object) -> Path:
    """As BAN's converter: no ids, no sizes, but spatial_features, whose first four numbers are the box in 0..1."""
    ends = np.cumsum(COUNTS)
    boxes = np.concatenate([own["boxes"] for own in RECORDS])
    arrays = {
        "image_features": np.concatenate([own["features"] for own in RECORDS]),
        "image_bb": np.concatenate([pixels(row) for row in range(len(IDS))]),
        "spatial_features": np.concatenate([boxes, boxes[:, 2:] - boxes[:, :2]], axis=1),
        "pos_boxes": np.stack([ends - COUNTS, ends], axis=1).astype(np.int32),
    }
    with h5py.File(path, "w") as file:
        for name, array in {**arrays, **changed}.items():
            file[name] = array
    return path


def write_groups(path: Path, in_attributes: bool = False) -> Path:
    """A group for each image, its sizes as arrays or as attributes."""
    with h5py.File(path, "w") as file:
        for row, identity in enumerate(IDS):
            group = file.create_group(identity)
            for name, value in bottom_up(row, encoded=False).items():
                if name in ("img_w", "img_h") and in_attributes:
                    group.attrs[name] = value
                elif name in (*CORNERS, "img_w", "img_h"):
                    group[name] = value
    return path


def test_tables_of_all_images(tmp_path: Path) -> None:
    store = import_all(write_tables(tmp_path / "a.h5"), tmp_path / "out")
    check_store(store, "boxes", "labels", "scores")
    keys = tmp_path / "keys.txt"
    keys.write_text("3\n7\n")
    check_store(import_all(tmp_path / "a.h5", tmp_path / "two", keys), "boxes", "labels", "scores", keys=["3", "7"],
                rows=[2, 0])  # fmt: skip


def test_tables_without_ids_take_keys_from_lines_or_from_the_pickle_beside_them(tmp_path: Path) -> None:
    path = write_one_behind_the_other(tmp_path / "train.hdf5")
    with pytest.raises(InputError, match=r"doesn't say which image each of its 3 rows is .*pickle of ids") as caught:
        import_all(path, tmp_path / "out")
    assert caught.value.choices == ("keys",)
    keys = tmp_path / "train_imgid2idx.pkl"
    keys.write_bytes(pickle.dumps({int(identity): row for row, identity in reversed([*enumerate(IDS)])}, protocol=2))
    store = import_all(path, tmp_path / "out", keys, key_format="{id}.jpg")
    check_store(store, "boxes", keys=[f"{identity}.jpg" for identity in IDS])
    assert store.num_regions == 3 and store.plan["boxes"] == "spatial_features"
    sides = {"image_w": np.array([width for width, _ in SIZES]), "image_h": np.array([height for _, height in SIZES])}
    sized = write_one_behind_the_other(tmp_path / "sized.hdf5", **sides)  # sizes are of boxes in pixels, not of these
    check_store(import_all(sized, tmp_path / "sized", keys), "boxes")
    (tmp_path / "keys.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match=r"train\.hdf5 has 3 rows, but there are 2 keys"):
        import_all(path, tmp_path / "two", tmp_path / "keys.txt")


def test_boxes_in_pixels_without_sizes_are_refused_and_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"If boxes are in pixels, give the pictures' widths and heights") as caught:
        import_all(write_tables(tmp_path / "a.h5", image_w=None), tmp_path / "out")
    assert "box_sizes" in caught.value.choices


@pytest.mark.parametrize("in_attributes", [False, True])
def test_groups_of_images(tmp_path: Path, in_attributes: bool) -> None:
    path = write_groups(tmp_path / "a.hdf5", in_attributes)
    order = sorted(range(len(IDS)), key=IDS.__getitem__)
    store = import_all(path, tmp_path / "out", regions=3)
    check_store(store, "boxes", "labels", "scores", keys=sorted(IDS), rows=order)
    with pytest.raises(InputError, match=r"a\.hdf5 \(12\) has 3 regions, but .*\(3\) has 1\. Where images differ"):
        import_all(path, tmp_path / "none")


def test_arrays_named_by_their_image(tmp_path: Path) -> None:
    """As M2's detections of COCO: ID_features, ID_boxes; an image may lack one of them."""
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        for row, identity in enumerate(IDS):
            file[f"{identity}_features"] = RECORDS[row]["features"]
            file[f"{identity}_boxes"] = RECORDS[row]["boxes"]
    order = sorted(range(len(IDS)), key=IDS.__getitem__)
    check_store(import_all(path, tmp_path / "out", regions=3), "boxes", keys=sorted(IDS), rows=order)
    with h5py.File(path, "a") as file:
        del file["7_boxes"]
    with pytest.raises(InputError, match=r"a\.hdf5 \(7\) holds features, but not boxes"):
        import_all(path, tmp_path / "none", regions=3)


def test_one_array_for_each_image(tmp_path: Path) -> None:
    """As VLP's: features alone, also in float16."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for row, identity in enumerate(IDS):
            file[identity] = RECORDS[row]["features"].astype(np.float16)
    order = sorted(range(len(IDS)), key=IDS.__getitem__)
    check_store(import_all(path, tmp_path / "out", regions=3), keys=sorted(IDS), rows=order)


def test_names_are_chosen_where_they_vary(tmp_path: Path) -> None:
    path = write_tables(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        for name, other in (("features", "v"), ("boxes", "b"), ("image_w", "wide"), ("image_h", "high")):
            file.move(name, other)
        del file["num_boxes"]
    beside = {"boxes": "b", "box_sizes": "wide,high"}
    with pytest.raises(InputError, match=r"boxes should be x0 y0 x1 y1 in 0\.\.1"):  # what fills up is read, too
        import_all(path, tmp_path / "none", array_name="v", beside={"boxes": "b"})
    store = import_all(path, tmp_path / "out", array_name="v", beside={**beside, "boxes": "b"})
    for row, count in enumerate(COUNTS):
        np.testing.assert_allclose(store.column("boxes")[row, :count], RECORDS[row]["boxes"], atol=1e-6)


BROKEN: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda path: write_one_behind_the_other(path, pos_boxes=np.array([[0, 2], [2, 99]])),
        r"pos_boxes should be .* begin and end among 6, but are \(2, 2\), int64, from 0 to 99",
    ),
    (lambda path: write_one_behind_the_other(path, pos_boxes=np.ones(3)), r"pos_boxes should be .*\(3,\), float64"),
    (lambda path: write_tables(path, image_id=np.array([1, 2])), r"has features of 3 images, but 2 image_id"),
    (lambda path: write_tables(path, image_id=np.array([1, 2, 1])), r"should be unique, but '1' is number 1 and again"),
    (
        lambda path: write_tables(path, num_boxes=np.array([2, 4, 1])),
        r"\(12\) should have as many regions as num_boxes says, but that is 4",
    ),
    (
        lambda path: write_tables(path, num_boxes=np.array([2, np.nan, 1])),
        r"\(12\) should have as many regions as num_boxes says, but that is nan",
    ),
    (
        lambda path: write_tables(path, boxes=np.zeros((2, 3, 4), np.float32)),
        r"a\.h5 should have 3 rows in each of its tables, as its features have, but boxes has 2",
    ),
    (
        lambda path: write_one_behind_the_other(
            path, spatial_features=np.zeros((5, 6), np.float32), image_id=np.array([7, 12, 3])
        ),
        r"should have 3 or 6 rows in each of its tables, as its features have, but spatial_features has 5",
    ),
    (lambda path: write_tables(path, features=np.ones(3, np.float32)), r"should have shape \(I, F\), .* has \(3,\)"),
    (lambda path: write_tables(path, features=np.ones((3, 3, 5), int)), r"should hold features of a type among"),
    (lambda path: path.write_bytes(b"no HDF5"), r"should be HDF5, but can't be read: "),
    (lambda path: path.write_bytes(write_tables(path).read_bytes()[:3000]), r"should be HDF5, but can't be r.*trunc"),
    (lambda path: h5py.File(path, "w").close(), r"should hold features of images, but is empty"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_file_that_does_not_fit_is_refused(tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    (tmp_path / "keys.txt").write_text("7\n12\n3\n")
    change(tmp_path / "a.h5")
    with pytest.raises(InputError, match=message):
        import_all(tmp_path / "a.h5", tmp_path / "out", tmp_path / "keys.txt" if "pos" in message else None)


def test_nothing_is_read_from_outside_the_file(tmp_path: Path) -> None:
    """A pipe in the place of numbers would be waited for, and any file of the user's could be read as features."""
    os.mkfifo(tmp_path / "pipe")
    other = write_tables(tmp_path / "other.h5")
    features = filled([own["features"] for own in RECORDS])

    def external(file: Any) -> None:
        file.create_dataset("features", features.shape, "f4", external=[(str(tmp_path / "pipe"), 0, features.nbytes)])

    def linked(file: Any) -> None:
        file["features"] = h5py.ExternalLink(str(other), "features")

    def soft(file: Any) -> None:
        file["elsewhere"] = h5py.ExternalLink(str(other), "/")
        file["features"] = h5py.SoftLink("/elsewhere/features")

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout(features.shape, "f4")
        layout[:] = h5py.VirtualSource(str(other), "features", features.shape)
        file.create_virtual_dataset("features", layout)

    for number, (add, message) in enumerate(
        ((external, "numbers of features lie in other files"), (linked, "features is a link to another place"),
         (soft, "is a link to another place"), (virtual, "numbers of features lie in other files"))
    ):  # fmt: skip
        path = write_tables(tmp_path / f"{number}.h5", features=None)
        with h5py.File(path, "a") as file:
            add(file)
        with pytest.raises(InputError, match=message):
            import_all(path, tmp_path / "out")


def test_what_is_asked_for_may_not_lie_elsewhere(tmp_path: Path) -> None:
    path, other = write_tables(tmp_path / "a.h5", boxes=None), write_tables(tmp_path / "other.h5")
    with h5py.File(path, "a") as file:
        file["boxes"] = h5py.ExternalLink(str(other), "boxes")
    with pytest.raises(InputError, match="should hold its arrays itself, but boxes is a link to another place"):
        import_all(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["image_id", "features", "pos_boxes"])
def test_arrays_larger_than_what_is_stored_of_them_are_refused(tmp_path: Path, name: str) -> None:
    write = write_one_behind_the_other if name == "pos_boxes" else write_tables
    path = write(tmp_path / "a.h5")
    shapes = {"image_id": (10**9,), "features": (len(IDS), 3, 10**9), "pos_boxes": (10**9, 2)}
    with h5py.File(path, "a") as file:
        del file[name]
        file.create_dataset(name, shapes[name], "i4", chunks=True)
    assert path.stat().st_size < 10**5
    with pytest.raises(InputError, match=rf"should hold what it says, but of {name}, \d+ bytes, there are 0"):
        import_all(path, tmp_path / "out")


def test_what_is_not_asked_for_may_lie_elsewhere_or_be_empty(tmp_path: Path) -> None:
    path = write_tables(tmp_path / "a.h5")
    expected = import_all(path, tmp_path / "expected")
    with h5py.File(path, "a") as file:
        file["alias"] = h5py.SoftLink("/features")
        file.create_dataset("to_be_filled", (100_000,), "i4")
    found = import_all(path, tmp_path / "found")
    np.testing.assert_array_equal(found.features, expected.features)


def test_how_much_is_stored_is_asked_once_of_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 looks through all parts of it for that: asked for each image it would be quadratic."""
    asked = []
    inside = region_hdf5._Inside.__getitem__
    monkeypatch.setattr(
        region_hdf5._Inside, "__getitem__", lambda group, name: asked.append(name) or inside(group, name)
    )
    import_all(write_tables(tmp_path / "a.h5"), tmp_path / "out")
    assert asked.count("boxes") == asked.count("image_h") == 1


def test_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tables(tmp_path / "a.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"a\.h5 is read with h5py, .* pip install 'visual_grounding\[imports\]'"):
        import_all(path, tmp_path / "out")


def test_fuzzed_files_are_refused_or_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, read = random.Random(0), 0
    whole = [write_tables(tmp_path / "a.h5").read_bytes(), write_groups(tmp_path / "g.h5").read_bytes()]
    for number in range(60):
        content = bytearray(whole[number % 2])
        for _ in range(6):
            content[rng.randrange(len(content))] = rng.randrange(256)
        (tmp_path / f"{number}.h5").write_bytes(content)
        try:
            import_all(tmp_path / f"{number}.h5", tmp_path / f"out{number}", regions=3)
            read += 1
        except InputError:
            pass
    assert 0 < read < 60
