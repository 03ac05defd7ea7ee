"""Reading a feature store: rows, masks, keys, and what is refused."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_store
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore, name_arrays
from visual_grounding.features.store_writer import StoreWriter, to_float16
from visual_grounding.storage.signature import made_alike


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    # 3 images, 2 regions, 2 numbers. Image 1 has one region only, image 2 none.
    features = np.array([[[1, 2], [3, 4]], [[5, 6], [0, 0]], [[0, 0], [0, 0]]], dtype=np.float16)
    return FeatureStore(write_store(tmp_path / "store", features, ["a.jpg", "ü.jpg", "c"]))


def test_store_knows_its_sizes_and_keys(store: FeatureStore) -> None:
    assert (len(store), store.num_regions, store.feature_size, store.signature) == (3, 2, 2, "test")
    assert list(store.keys()) == ["a.jpg", "ü.jpg", "c"]
    assert store.key(1) == "ü.jpg"
    assert store.rows_of(["c", "nothing", "a.jpg"]) == {"a.jpg": 0, "c": 2}


def test_store_whose_keys_were_swapped_names_no_row_and_finds_none(store: FeatureStore) -> None:
    """Nothing but the digest tells; both are asked for what stands before the swapped lines, too."""
    (store.folder / "keys.txt").write_text("a.jpg\nc\nü.jpg\n", encoding="utf-8")
    message = (
        r"keys\.txt was changed after its artefact was made: its sha256 is .* Rows no longer belong to their images"
    )
    for row in (0, 1):
        with pytest.raises(InputError, match=message):
            store.key(row)
    for wanted in (["a.jpg"], ["c"], []):
        with pytest.raises(InputError, match=message):
            store.rows_of(wanted)


def test_gather_returns_features_and_masks_what_is_absent(store: FeatureStore) -> None:
    features, mask = store.gather(np.array([[1, -1], [2, 0]]))
    assert features.tolist() == [[[[5, 6], [0, 0]], [[0, 0], [0, 0]]], [[[0, 0], [0, 0]], [[1, 2], [3, 4]]]]
    assert mask.tolist() == [[[False, True], [True, True]], [[True, True], [False, False]]]


def test_a_single_row_is_looked_up_as_many_are(store: FeatureStore) -> None:
    for row in (0, np.int64(0)):
        features, mask = store.gather(row)
        assert features.tolist() == [[1, 2], [3, 4]] and mask.tolist() == store.gather([0])[1][0].tolist()
    assert store.gather(-1)[1].all() and store.gather_columns(0) == {}
    with pytest.raises(InputError, match="as many rows for each sentence"):
        store.gather([[1], [2, 0]])
    with pytest.raises(InputError, match=r"keys should be a list of texts, but are one: \['a.jpg'\] is a list of it"):
        store.rows_of("a.jpg")


def test_gather_leaves_the_store_as_it_is(store: FeatureStore) -> None:
    features, _ = store.gather(np.array([0]))
    features[:] = 9
    assert store.gather(np.array([0]))[0].tolist() == [[[1, 2], [3, 4]]]


def test_gather_names_the_row_outside_the_store(store: FeatureStore) -> None:
    with pytest.raises(InputError, match=r"row 3, but .*store has 3 images \(rows 0\.\.2\)"):
        store.gather(np.array([0, 3]))
    with pytest.raises(InputError, match=r"row -2, but"):
        store.gather(np.array([-2]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gather_names_the_image_with_numbers_that_are_not_finite(tmp_path: Path, bad: float) -> None:
    features = np.ones((3, 1, 2), np.float16)
    features[1, 0, 1] = bad
    store = FeatureStore(write_store(tmp_path / "store", features, ["a", "b", "c"]))
    assert store.gather(np.array([0, 2]))[1].tolist() == [[False], [False]]
    with pytest.raises(InputError, match=r"row 1 \(b\) hold NaN or infinity; 1 such images in this batch"):
        store.gather(np.array([0, 1]))


def test_gather_accepts_large_numbers_whose_sum_leaves_float16(tmp_path: Path) -> None:
    store = FeatureStore(write_store(tmp_path / "store", np.full((1, 2, 3), 65504.0)))
    assert store.gather(np.array([0]))[1].tolist() == [[False, False]]


def test_store_travels_to_another_process_by_its_path(store: FeatureStore) -> None:
    content = pickle.dumps(store)
    assert len(content) < 500
    assert pickle.loads(content).gather(np.array([0]))[0].tolist() == [[[1, 2], [3, 4]]]


def test_store_whose_array_does_not_fit_its_description_is_refused(store: FeatureStore) -> None:
    meta = json.loads((store.folder / "meta.json").read_text())
    (store.folder / "meta.json").write_text(json.dumps({**meta, "images": 4}))
    with pytest.raises(
        InputError, match=r"features\.npy should be float16 of shape \(4, 2, 2\), but is float16 of shape \(3, 2, 2\)"
    ):
        FeatureStore(store.folder)


def test_writer_counts_images_that_hold_only_zeros(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "out", ["a", "b", "c"], 1, 2, {}, shard_size=2)
    features = np.array([[[1, 2]], [[0, 0]], [[3, 4]]], np.float32)
    for shard in writer.missing():
        writer.write(shard, features[shard.start : shard.stop].copy(), {2: "missing"} if shard.stop == 3 else {})
    summary = writer.publish("s")
    assert (summary.unreadable, summary.zero) == (1, 1)
    assert "1 of 3 images (33.3 %) have only zeros as features and count as absent" in summary.describe("out")
    assert FeatureStore(tmp_path / "out").features[2].tolist() == [[0, 0]]


def test_to_float16_keeps_the_largest_number_and_names_the_first_too_large() -> None:
    assert to_float16(np.array([[[65504.0, -65504.0]]]), ["a"], 0).tolist() == [[[65504, -65504]]]
    features = np.ones((3, 1, 2))
    features[2, 0, 1] = -70000
    with pytest.raises(InputError, match=r"row 12 \(c\) holds -70000, too large for float16 \(±65504\)"):
        to_float16(features, ["a", "b", "c"], 10)


def test_old_import_has_the_digest_of_its_arrays_in_its_signature(tmp_path: Path) -> None:
    signed, made = "import|images:3|normalise:no|version:0.1.0", []
    for name, plan in (("one", {"arrays": "3" * 64}), ("two", {"arrays": "4" * 64}), ("none", {})):
        folder = write_store(tmp_path / name, np.ones((3, 1, 2)), signature=signed)
        meta = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps({**meta, "plan": {**meta["plan"], **plan}}))
        made.append(FeatureStore(folder).signature)
    assert made == [
        f"import|images:3|normalise:no|arrays:{'3' * 16}|version:0.1.0",
        f"import|images:3|normalise:no|arrays:{'4' * 16}|version:0.1.0",
        signed,
    ]
    assert not made_alike(made[0], made[1])
    for said in ("import|images:3|made_by:x|version:0.2.0", "extract|images:3|version:0.1.0", "import|broken"):
        assert name_arrays(said, {"arrays": "3" * 64}) == said
