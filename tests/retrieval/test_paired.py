"""Paired images: rows of keys, unknown keys, and what is refused."""

import numpy as np
import pytest
from conftest import write_store
from small_retriever import make_store

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.finder import write_image_ids
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.paired import PairedFinder

KEYS = ["image7.jpg", "", "image0.jpg", "other.jpg", "image7.jpg"]


def retrieve_paired(store, keys, out, sentences=None, strict=False):
    return write_image_ids(PairedFinder(store, strict), keys, out, text=sentences)


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store")


def test_retrieve_paired_gives_each_sentence_the_row_of_its_key(store, tmp_path):
    counts = retrieve_paired(FeatureStore(store), KEYS, tmp_path / "ids", sentences=["a"] * 5)
    table = ImageIds(tmp_path / "ids")
    assert table.ids.tolist() == [[7], [-1], [0], [-1], [7]]
    assert table.scores.tolist() == [[1], [0], [1], [0], [1]]
    assert counts == table.counts == {"empty": 1, "unknown": 1}
    table.check_against(FeatureStore(store))


def test_retrieve_paired_refuses_an_unknown_key_when_strict(store, tmp_path):
    with pytest.raises(InputError, match=r"1 of 5 aren't, the first 'other.jpg' in line 4"):
        retrieve_paired(FeatureStore(store), KEYS, tmp_path / "ids", strict=True)


def test_retrieve_paired_refuses_keys_of_which_the_store_has_none(store, tmp_path):
    message = r"but it has none of them, such as 'photos/image7' in line 2; the store's are like 'image0.jpg'\."
    for strict in (False, True):
        with pytest.raises(InputError, match=message) as refused:
            retrieve_paired(FeatureStore(store), ["", "photos/image7", "other"], tmp_path / "ids", strict=strict)
        assert refused.value.choices == ("keys",)
    assert list(tmp_path.iterdir()) == [store]


def test_retrieve_paired_takes_parts_without_a_known_key_and_texts_without_keys(store, tmp_path):
    finder = PairedFinder(FeatureStore(store))
    write_image_ids(finder, ["image7.jpg", "other", "another"], tmp_path / "ids", shard_size=1)
    assert ImageIds(tmp_path / "ids").ids.tolist() == [[7], [-1], [-1]]
    assert list(finder.warnings({"empty": 0, "unknown": 2}, 3)) == [
        "2 of 3 sentences (66.7 %) have no image; 2 of them have a key that the store doesn't have, such as 'other' in "
        "line 2; the store's are like 'image0.jpg'."
    ]
    retrieve_paired(FeatureStore(store), ["", ""], tmp_path / "empty")
    assert ImageIds(tmp_path / "empty").ids.tolist() == [[-1], [-1]]


def test_retrieve_paired_refuses_keys_of_another_length_than_the_text(store, tmp_path):
    with pytest.raises(InputError, match="for each of the 4 sentences of the text, but there are 5"):
        retrieve_paired(FeatureStore(store), KEYS, tmp_path / "ids", sentences=["a"] * 4)


def test_retrieve_paired_of_no_sentence_is_an_empty_table(store, tmp_path):
    retrieve_paired(FeatureStore(store), [], tmp_path / "ids")
    assert ImageIds(tmp_path / "ids").ids.shape == (0, 1)


@pytest.mark.parametrize(("keys", "hint"), [([*KEYS, ""], " Line 6 of the keys is empty."), ([*KEYS, "x"], "")])
def test_one_key_too_many_is_refused_and_an_empty_line_named(store, tmp_path, keys, hint):
    keys = [key or "x" for key in KEYS] + keys[5:]
    with pytest.raises(InputError, match=rf"one image key for each of the 5 sentences .*, but there are 6\.{hint}$"):
        retrieve_paired(FeatureStore(store), keys, tmp_path / "ids", sentences=["a"] * 5)


def test_images_of_which_the_store_has_nothing_are_counted_and_refused_when_strict(tmp_path):
    features = np.ones((4, 2, 3))
    features[1], features[2, 0] = 0, 0  # of the third something is there
    store = FeatureStore(write_store(tmp_path / "store", features, ["a", "b", "c", "d"]))
    finder = PairedFinder(store)
    counts = write_image_ids(finder, ["a", "b", "", "c", "b"], tmp_path / "ids")
    assert counts == {"empty": 1, "unknown": 0, "absent": 2} and ImageIds(tmp_path / "ids").ids[1, 0] == 1
    said = list(finder.warnings(counts, 5))
    assert len(said) == 2 and "2 of 5 sentences (40.0 %) have an image of which" in said[1]
    with pytest.raises(InputError, match=r"of those of 2 of 5 lines it has nothing, the first 'b'") as refused:
        retrieve_paired(store, ["a", "b", "", "c", "b"], tmp_path / "strict", strict=True)
    assert refused.value.choices == ("strict",)
    retrieve_paired(store, ["a", "", "c"], tmp_path / "strict", strict=True)
