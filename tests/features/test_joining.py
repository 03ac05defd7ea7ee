"""Stores joined: every image has what it had, models take it, and what doesn't belong together is refused."""

import json
import os
import shutil

import numpy as np
import pytest
from conftest import write_store

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features.joining import join_stores
from visual_grounding.features.store import FeatureStore
from visual_grounding.storage.signature import made_alike


def make(folder, seed, images, regions, size=3, names=("dog", "cat"), columns=True, signature="extract|images:9|net:a"):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(images, regions, size)).astype(np.float16)
    features[0, -1] = 0  # an absent region
    low, width = rng.random((2, images, regions, 2))
    told = {
        "boxes": np.concatenate([low / 2, low / 2 + width / 2], axis=-1).astype(np.float32),
        "labels": rng.integers(-1, 2, (images, regions)),
        "scores": rng.random((images, regions)).astype(np.float16),
    }
    for name, absent in (("boxes", 0), ("labels", -1), ("scores", 0)):
        told[name][0, -1] = absent
    keys = [f"{folder.name}{row}.jpg" for row in range(images)]
    given = {"columns": told, "label_names": list(names)} if columns else {}
    return FeatureStore(write_store(folder, features, keys, signature=signature, **given))


@pytest.fixture
def stores(tmp_path):
    return [make(tmp_path / "a", 0, 5, 2), make(tmp_path / "b", 1, 4, 3), make(tmp_path / "c", 2, 3, 1)]


@pytest.mark.parametrize("shard_size", [1, 4, 100])
def test_every_image_has_what_it_had(stores, tmp_path, shard_size):
    summary = join_stores(stores, tmp_path / "all", shard_size)
    joined = FeatureStore(tmp_path / "all")
    assert (len(joined), joined.num_regions, summary.images) == (12, 3, 12)
    assert list(joined.keys()) == [key for store in stores for key in store.keys()]  # noqa: SIM118
    row = 0
    for store in stores:
        features, absent = joined.gather(np.arange(row, row + len(store)))
        had, missing = store.gather(np.arange(len(store)))
        np.testing.assert_array_equal(features[:, : store.num_regions], had)
        np.testing.assert_array_equal(absent[:, : store.num_regions], missing)
        assert absent[:, store.num_regions :].all()
        told, had = joined.gather_columns(np.arange(row, row + len(store))), store.gather_columns(range(len(store)))
        for name, absent_value in (("boxes", 0), ("labels", -1), ("scores", 0)):
            np.testing.assert_array_equal(told[name][:, : store.num_regions], had[name])
            assert (told[name][:, store.num_regions :] == absent_value).all()
        row += len(store)
    assert joined.label_names == ["dog", "cat"]
    assert made_alike(joined.signature, stores[0].signature) and "images:12" in joined.signature


def test_command_joins_again_to_the_same_bytes_and_takes_no_other_choices(stores, tmp_path, capsys):
    folders = [str(store.folder) for store in stores]
    assert main(["import", "--stores", *folders, "--out", str(tmp_path / "all")]) == 0
    assert "12 images, 3 regions of 3 numbers each, with boxes, labels, scores." in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in (tmp_path / "all").iterdir()}
    shutil.rmtree(tmp_path / "all")
    join_stores(stores, tmp_path / "all")
    assert {path.name: path.read_bytes() for path in (tmp_path / "all").iterdir()} == before
    assert main(["import", "--stores", *folders, "--regions", "2", "--strict", "--out", str(tmp_path / "x")]) == 2
    assert "so nothing else is chosen. See --regions and --strict." in capsys.readouterr().err


def test_unreadable_images_stay_listed(tmp_path, capsys):
    (tmp_path / "keys").write_text("x.jpg\ny.jpg\n")
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays/x.jpg.npy", np.ones(3, np.float32))
    flags = ["--arrays", tmp_path / "arrays", "--keys", tmp_path / "keys", "--made-by", "net", "--out", tmp_path / "a"]
    assert main(["import", *map(str, flags)]) == 0
    (tmp_path / "arrays").rename(tmp_path / "old")
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays/z.jpg.npy", np.ones(3, np.float32))
    flags = ["--arrays", tmp_path / "arrays", "--made-by", "net", "--out", tmp_path / "b"]
    assert main(["import", *map(str, flags)]) == 0
    stores = [FeatureStore(tmp_path / name) for name in "ba"]
    assert join_stores(stores, tmp_path / "all", shard_size=1).unreadable == 1
    assert (tmp_path / "all/unreadable.tsv").read_text().startswith("y.jpg\t")
    assert FeatureStore(tmp_path / "all").gather([2])[1].all()


def test_other_stores_are_not_taken_for_those_of_an_output_that_is_there(stores, tmp_path):
    join_stores(stores[:2], tmp_path / "all")
    meta = json.loads((tmp_path / "b/meta.json").read_text())
    (tmp_path / "b/meta.json").write_text(json.dumps({**meta, "plan": {**meta["plan"], "net": "another"}}))
    with pytest.raises(ValueError, match="other choices"):
        join_stores([stores[0], FeatureStore(tmp_path / "b")], tmp_path / "all")


def test_a_store_that_is_joined_is_not_written_over_nor_said_to_be_deleted(stores, tmp_path):
    (tmp_path / "link").symlink_to(stores[1].folder)
    with pytest.raises(InputError, match=r"link is one of the stores that are joined\. Choose another folder for all"):
        join_stores(stores, tmp_path / "link")


def test_an_image_with_features_that_is_listed_as_unreadable_is_refused(stores, tmp_path):
    (tmp_path / "b/unreadable.tsv").write_text("b1.jpg\tbroken\n")
    with pytest.raises(ValueError, match=r"b/unreadable\.tsv lists images that have features"):
        join_stores(stores, tmp_path / "all")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"signature": "extract|images:4|net:b"}, r"b was made otherwise than .*a: extract\|images:4\|net:b ≠ extract"),
        ({"size": 4}, r"of one size, but .*a has 3 numbers a region and .*b 4\."),
        ({"columns": False}, "a has boxes, labels, scores, .*b has features alone"),
        ({"names": ("dog", "cow")}, r"labels should stand for the same names .* 1 is 'cat' in .*a and 'cow' in .*b\."),
        ({"names": ("dog", "cat", "cow")}, r"2 is None in .*a and 'cow' in .*b\."),
    ],
)
def test_stores_of_another_making_are_refused(tmp_path, other, message):
    stores = [make(tmp_path / "a", 0, 5, 2), make(tmp_path / "b", 1, 4, 2, **other)]
    with pytest.raises(ValueError, match=message):
        join_stores(stores, tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_an_image_of_two_stores_is_refused(stores, tmp_path):
    with pytest.raises(ValueError, match=r"5 of .*a are in another one, too; the first is 'a0\.jpg'"):
        join_stores([stores[0], stores[1], stores[0]], tmp_path / "all")


def test_a_pipe_in_a_store_is_refused_at_once(stores, tmp_path):
    os.mkfifo(tmp_path / "a/unreadable.tsv")
    with pytest.raises(InputError, match=r"unreadable\.tsv can't be read: is a pipe or a device, not a file"):
        join_stores(stores, tmp_path / "out")
