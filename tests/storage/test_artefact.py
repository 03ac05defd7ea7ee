"""`meta.json` and plain arrays: read back, or refused with the reason."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.artefact import META, Keys, claim_disk, open_array, read_meta, sha256_of_file, write_json


def test_sha256_of_file_matches_the_digest_of_its_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "f").write_bytes(content)
    assert sha256_of_file(tmp_path / "f") == hashlib.sha256(content).hexdigest()


def test_claim_disk_takes_room_behind_what_is_there(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as file:
        file.write(b"head")
        file.flush()
        claim_disk(file.fileno(), file.tell(), 8192)
    assert (tmp_path / "f").read_bytes() == b"head" + bytes(8192)
    assert os.stat(tmp_path / "f").st_blocks * 512 >= 8192


def test_claim_disk_begins_nothing_that_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *given: asked.append(given))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4000))
    with open(tmp_path / "f", "wb") as file:
        with pytest.raises(
            OSError, match=r"No space left on device \(4,001 bytes are needed, 4,000 are free\)"
        ) as told:
            claim_disk(file.fileno(), 0, 4001)
        assert told.value.errno == errno.ENOSPC and asked == []
        claim_disk(file.fileno(), 0, 4000)
        assert asked == [(file.fileno(), 0, 4000)]


def test_write_json_leaves_only_the_whole_file(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": "ü"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "a": "ü",\n  "b": 1\n}\n'


def test_read_meta_returns_what_was_written(tmp_path: Path) -> None:
    meta = {"format": "index", "version": 1, "images": 3}
    write_json(tmp_path / "meta.json", meta)
    assert read_meta(tmp_path, "index") == meta


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"should be the JSON description of an index, but is broken"),
        ("[]", r"should be the JSON description of an index, but is broken"),
        ('{"format": "index"}', r"is broken: KeyError\('version'\)"),
        ('{"format": "vokens", "version": 1}', r"should hold an index, but .*meta\.json says that it is vokens"),
        ('{"format": "index", "version": 2}', r"has format version 2, but this package reads version 1"),
    ],
)
def test_read_meta_refuses_another_description(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "meta.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_meta(tmp_path, "index")


def test_read_meta_names_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no .*store/meta\.json"):
        read_meta(tmp_path / "store", "feature-store")


def test_read_meta_tells_what_lies_there_instead(tmp_path: Path) -> None:
    for name in ("train", "val"):
        (tmp_path / "ids" / name).mkdir(parents=True)
        write_json(tmp_path / "ids" / name / "meta.json", {"format": "image-ids", "version": 1})
    (tmp_path / "ids/other").mkdir()
    write_json(tmp_path / "ids/other/meta.json", {"format": ["x"]})
    swapped = (
        r"/ids should hold a feature store, but there lie image ids \(train, val\) in it\. Is it .* another flag\?$"
    )
    with pytest.raises(InputError, match=swapped):
        read_meta(tmp_path / "ids", "feature-store")
    with pytest.raises(
        InputError, match=r"there is no .*ids/valid/meta\.json; beside it lie image ids \(train, val\)\. M"
    ):
        read_meta(tmp_path / "ids/valid", "image-ids")
    with pytest.raises(
        InputError, match=r"/train/valid should hold image ids, but .*/train is itself image ids\. Is it"
    ):
        read_meta(tmp_path / "ids/train/valid", "image-ids")


def test_read_meta_tells_to_rerun_when_only_the_partial_exists(tmp_path: Path) -> None:
    (tmp_path / "store.partial").mkdir()
    with pytest.raises(InputError, match=r"only .*store\.partial exists.*Run that command again"):
        read_meta(tmp_path / "store", "feature-store")
    with pytest.raises(InputError, match=r"store\.partial should hold a feature store, but is what an interrupted"):
        read_meta(tmp_path / "store.partial", "feature-store")


@pytest.mark.parametrize("folder", ["", ".", "..", "/"])
def test_read_meta_of_a_folder_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (tmp_path / "here/inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here/inner")
    with pytest.raises(InputError, match=r"should hold an index, but there"):
        read_meta(folder, "index")
    (tmp_path / "here/inner.partial").mkdir()
    with pytest.raises(InputError, match=r"\. should hold an index, but only /.*/here/inner\.partial exists"):
        read_meta(".", "index")


def test_open_array_maps_the_file(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    opened = open_array(tmp_path / "a.npy", (2, None), "float16")
    assert isinstance(opened, np.memmap)
    np.testing.assert_array_equal(opened, array)


def test_open_array_names_both_shapes_and_types_when_they_differ(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3), np.float32))
    with pytest.raises(InputError, match=r"float16 of shape \(2, any\), but is float32 of shape \(2, 3\)"):
        open_array(tmp_path / "a.npy", (2, None), "float16")
    with pytest.raises(InputError, match=r"float32 of shape \(4, 3\), but is float32 of shape \(2, 3\)"):
        open_array(tmp_path / "a.npy", (4, 3), "float32")


def test_open_array_refuses_a_missing_truncated_or_pickled_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with pytest.raises(InputError, match=r"a\.npy is missing"):
        open_array(path, (2,), "float32")
    np.save(path, np.zeros(1000, np.float32))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match=r"a\.npy should be a plain \.npy array, but can't be read"):
        open_array(path, (1000,), "float32")
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"a\.npy should be a plain \.npy array, but can't be read"):
        open_array(path, (1,), "float32")
    path.write_text(json.dumps([1]))
    with pytest.raises(InputError, match=r"a\.npy should be a plain \.npy array, but can't be read"):
        open_array(path, (1,), "float32")


def test_keys_that_are_fewer_than_said_are_refused_before_room_for_all_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("a\nb\n")
    digest = sha256_of_file(tmp_path / "keys.txt")
    assert list(Keys(tmp_path / "keys.txt", 2, digest)) == ["a", "b"]
    with pytest.raises(InputError, match=r"keys\.txt"):
        list(Keys(tmp_path / "keys.txt", 10**13, digest))  # 80 TB of places


def test_a_folder_without_the_artefact_is_told_what_lies_in_it_six_names_of_a_kind_at_most(tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / META, {"format": "image-ids", "version": 1})
    with pytest.raises(InputError) as refused:
        read_meta(tmp_path, "feature-store")
    assert "there lie image ids (a, b, c, d, e, f, …) in it" in str(refused.value)
    shutil.rmtree(tmp_path / "g")
    with pytest.raises(InputError) as refused:
        read_meta(tmp_path, "feature-store")
    assert "there lie image ids (a, b, c, d, e, f) in it" in str(refused.value)


def test_a_folder_of_something_else_is_not_to_be_written_into(tmp_path):
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(InputError, match=r"no meta\.json among its files.* Is it the folder of another flag\?$"):
        read_meta(tmp_path, "feature-store")
    (tmp_path / "config.json").touch()
    with pytest.raises(InputError, match=r"but is an exported model, .* Is it the folder of another flag\?$"):
        read_meta(tmp_path, "feature-store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"Make it with: visual-grounding extract … --out .*new$"):
        read_meta(tmp_path / "empty/new", "feature-store")
