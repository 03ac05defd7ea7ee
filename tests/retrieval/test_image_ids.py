"""Tables of image ids: what they say, and what doesn't belong to them."""

import json
import re

import numpy as np
import pytest
from conftest import write_image_ids, write_store

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.image_ids import ImageIds


@pytest.fixture
def store(tmp_path):
    return FeatureStore(write_store(tmp_path / "store", np.ones((5, 1, 2))))


def change(folder, **fields):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, **fields}))


def test_table_says_what_was_counted_and_nothing_of_the_rest(store, tmp_path):
    write_image_ids(tmp_path / "ids", np.array([[0, 4], [-1, -1]], np.int32), store.keys_sha256)
    change(tmp_path / "ids", counts={"empty": 1, "odd": "many"}, recall=0.75, text_sha256=None)
    table = ImageIds(tmp_path / "ids")
    assert (len(table), table.ids.tolist(), table.scores.shape) == (2, [[0, 4], [-1, -1]], (2, 2))
    assert table.counts == {"empty": 1} and table.counts["short"] == 0
    assert (table.recall, table.text_sha256) == (0.75, None)
    table.check_against(store)
    table.check_lines(2, "text")


def test_table_is_refused_for_another_collection_and_for_rows_that_are_not_there(store, tmp_path):
    other = FeatureStore(write_store(tmp_path / "other", np.ones((4, 1, 2))))
    write_image_ids(tmp_path / "ids", np.array([[0, 4]], np.int32), store.keys_sha256)
    table = ImageIds(tmp_path / "ids")
    message = (
        f"refer to row 4, but feature store {other.folder} has 4 images (rows 0..3). They were made from different"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        table.check_against(other)
    write_image_ids(tmp_path / "low", np.array([[0, 2]], np.int32), store.keys_sha256)
    message = f"{tmp_path / 'low'} don't belong to feature store {other.folder}. They were made from different"
    with pytest.raises(InputError, match=re.escape(message) + f".*{store.keys_sha256[:8]}… ≠ {other.keys_sha256[:8]}…"):
        ImageIds(tmp_path / "low").check_against(other)
    for row in (5, -2):
        write_image_ids(tmp_path / f"ids{row}", np.array([[0, row]], np.int32), store.keys_sha256)
        with pytest.raises(InputError, match=f"refer to row {row}, but they should be rows 0..4 of feature store"):
            ImageIds(tmp_path / f"ids{row}").check_against(store)


def test_table_is_refused_for_a_text_of_another_length(store, tmp_path):
    write_image_ids(tmp_path / "ids", np.array([[0], [1]], np.int32), store.keys_sha256)
    message = f"train.en has 3 sentences, but image ids in {tmp_path / 'ids'} have 2 rows"
    with pytest.raises(InputError, match=re.escape(message)):
        ImageIds(tmp_path / "ids").check_lines(3, "train.en")


def test_table_that_is_no_table_is_refused(store, tmp_path):
    with pytest.raises(InputError, match=f"{store.folder} should hold image ids, but"):
        ImageIds(store.folder)
    write_image_ids(tmp_path / "ids", np.array([[0], [1]], np.int32), store.keys_sha256)
    change(tmp_path / "ids", sentences=3)
    with pytest.raises(
        InputError, match=re.escape("ids.npy should be int32 of shape (3, 1), but is int32 of shape (2, 1)")
    ):
        ImageIds(tmp_path / "ids")
