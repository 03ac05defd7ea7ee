"""LMDB of pickled dicts, with arrays or base64 in them."""

import base64
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.imports.published import IDS, bottom_up, check_store, import_all
from visual_grounding.errors import InputError
from visual_grounding.features.imports.region_lmdb import is_lmdb

lmdb = pytest.importorskip("lmdb")
ALL = ("boxes", "labels", "attributes", "scores")


def write_lmdb(path: Path, listed: bool = True, encoded: bool = True, **changed: Any) -> Path:
    """As VOLTA has it: id -> pickled dict; `keys` lists the ids. Changed are values by the id of their image."""
    database = lmdb.open(str(path), map_size=1 << 20, subdir=path.suffix != ".mdb")
    with database, database.begin(write=True) as transaction:
        for row, identity in enumerate(IDS):
            value = changed.get(f"of_{identity}", bottom_up(row, encoded))
            transaction.put(identity.encode(), value if isinstance(value, bytes) else pickle.dumps(value))
        if listed:
            ids = changed.get("keys", [identity.encode() for identity in IDS])
            transaction.put(b"keys", pickle.dumps(ids))
    return path


@pytest.mark.parametrize("encoded", [True, False])
def test_values_in_base64_and_as_arrays_come_through(tmp_path: Path, encoded: bool) -> None:
    path = write_lmdb(tmp_path / "a.lmdb", encoded=encoded)
    assert is_lmdb(path)
    check_store(import_all(path, tmp_path / "out", regions=3), *ALL)


def test_database_without_a_list_is_gone_through_in_its_own_order(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "a.mdb", listed=False)
    order = sorted(range(len(IDS)), key=IDS.__getitem__)
    check_store(import_all(path, tmp_path / "out", regions=3), *ALL, keys=sorted(IDS), rows=order)


def test_images_are_chosen_by_their_keys(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("3.jpg\n7.jpg\n")
    path = write_lmdb(tmp_path / "a")
    store = import_all(path, tmp_path / "out", tmp_path / "keys.txt", regions=3, key_format="{id}.jpg", min_score=0.01)
    check_store(store, *ALL, keys=["3.jpg", "7.jpg"], rows=[2, 0])


def test_features_alone_without_a_number_of_regions_say_what_is_missing(tmp_path: Path) -> None:
    bare = {"features": bottom_up(0)["features"]}
    path = write_lmdb(tmp_path / "a", **{f"of_{identity}": bare for identity in IDS})
    with pytest.raises(InputError, match=r"All 3 images are unreadable.*nothing says how many regions it has: none"):
        import_all(path, tmp_path / "out")


def test_boxes_that_should_say_how_many_regions_there_are_but_are_broken_leave_the_image_out(tmp_path: Path) -> None:
    records = {f"of_{identity}": bottom_up(row) for row, identity in enumerate(IDS)}
    for record in records.values():
        del record["num_boxes"]
    check_store(import_all(write_lmdb(tmp_path / "a", **records), tmp_path / "out", regions=3), *ALL)
    records[f"of_{IDS[1]}"]["boxes"] = "QUJD?"
    store = import_all(write_lmdb(tmp_path / "b", **records), tmp_path / "broken", regions=3)
    assert not np.any(store.features[1]) and np.any(store.features[0])
    for record in records.values():  # six numbers a region, of which four are its box: not a store of other sizes
        record["spatial_features"] = base64.b64encode(np.ones((2, 6), "<f4")).decode()
    with pytest.raises(InputError, match=r"48 bytes of boxes aren't any of float32, float64, float16 for 2 regions"):
        import_all(write_lmdb(tmp_path / "c", **records), tmp_path / "six", regions=3)


class Malicious:
    """Makes a folder when it is loaded by pickle itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


def test_value_or_list_that_would_run_something_is_refused(tmp_path: Path) -> None:
    evil = Malicious(tmp_path / "ran")
    for name, changed in (("value", {"of_12": {"features": evil}}), ("list", {"keys": [evil]})):
        path = write_lmdb(tmp_path / name, **changed)
        with pytest.raises(InputError, match=rf"{name}.*asks for posix\.mkdir when loaded\. Nothing was run"):
            import_all(path, tmp_path / "out", regions=3)
    assert not (tmp_path / "ran").exists()


def test_broken_and_missing_images_are_listed(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "a", of_12=b"broken", keys=[*(identity.encode() for identity in IDS), b"99"])
    store = import_all(path, tmp_path / "out", regions=3)
    assert store.features.any(axis=(1, 2)).tolist() == [True, False, True, False]
    listed = dict(line.split("\t") for line in (tmp_path / "out/unreadable.tsv").read_text().splitlines())
    assert listed["12"].startswith("broken or truncated") and listed["99"] == "missing"


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (float("nan"), "it has nan regions"),
        (float("inf"), "it has inf regions"),
        ([], "the number of regions should be one number, but is 0"),
        ([3, 3], "the number of regions should be one number, but is 2"),
    ],
)
def test_number_of_regions_that_is_none_leaves_the_image_out(tmp_path: Path, count: object, reason: str) -> None:
    record = {**bottom_up(1), "num_boxes": count}
    store = import_all(write_lmdb(tmp_path / "a", of_12=record), tmp_path / "out", regions=3)
    assert store.features.any(axis=(1, 2)).tolist() == [True, False, True]
    assert (tmp_path / "out/unreadable.tsv").read_text() == f"12\t{reason}\n"


def test_what_should_say_how_many_regions_there_are_but_holds_no_number_is_refused_with_its_place(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=r"a \(12\) should hold arrays of numbers, but one is of type object"):
        import_all(write_lmdb(tmp_path / "a", of_12={**bottom_up(1), "num_boxes": 10**30}), tmp_path / "out", regions=3)
    lonely = {f"of_{identity}": {"features": np.ones((2, 5), np.float32), "boxes": 5} for identity in IDS}
    with pytest.raises(InputError, match=r"b \(7\) should hold boxes of shape \(2, 4\), .* but boxes has \(\)"):
        import_all(write_lmdb(tmp_path / "b", **lonely), tmp_path / "out", regions=3)


def test_database_that_was_cut_off_is_refused_and_one_with_a_broken_page_is_listed(tmp_path: Path) -> None:
    data = write_lmdb(tmp_path / "a") / "data.mdb"
    whole = data.read_bytes()
    data.write_bytes(whole[:-100])
    message = (
        rf"data\.mdb should have the {len(whole)} bytes of its \d+ pages, but has {len(whole) - 100}: it was cut off"
    )
    with pytest.raises(InputError, match=message):
        import_all(tmp_path / "a", tmp_path / "out", regions=3)
    database = lmdb.open(str(tmp_path / "a"), readonly=True, lock=False)
    page = database.stat()["psize"]
    with database:
        pages = range(2, len(whole) // page)
    for broken in pages:  # each is read, listed or refused, whatever it holds
        data.write_bytes(whole[: broken * page] + bytes([255]) * page + whole[(broken + 1) * page :])
        with pytest.raises(InputError, match=r"a should be an LMDB, but can't be read: |All 3 images are unreadable"):
            import_all(tmp_path / "a", tmp_path / f"out{broken}", regions=3)


def test_what_is_no_such_database_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.lmdb").write_bytes(b"no database" * 1000)
    with pytest.raises(InputError, match=r"b\.lmdb should be an LMDB, but can't be read: "):
        import_all(tmp_path / "b.lmdb", tmp_path / "out")
    with pytest.raises(InputError, match=r"should list its images' ids as 'keys', but that is something else"):
        import_all(write_lmdb(tmp_path / "a", keys={"a": 1}), tmp_path / "out")
    with pytest.raises(InputError, match=r"c \(7\) should hold arrays by name, .* but holds a list\. Is it a file of"):
        import_all(write_lmdb(tmp_path / "c", of_7=[np.ones(2)]), tmp_path / "out")
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(InputError, match=r"a is read with lmdb, .* pip install 'visual_grounding\[imports\]'"):
        import_all(tmp_path / "a", tmp_path / "out")
