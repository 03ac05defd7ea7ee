"""Topic words and the table of their images; test_keyword.py compares whole searches with a naive twin."""

import pickle

import numpy as np
from conftest import write_store

from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.topic_table import TopicTable, topic_words


def test_topic_words_are_the_rarest_and_the_most_frequent_first() -> None:
    rarity = {"a": 1.0, "b": 2.0, "c": 2.0, "d": -0.5}
    assert topic_words(["d", "c", "a", "b", "a", "unknown", "a"], rarity) == ["a", "c", "b", "d"]
    assert topic_words(["d", "c", "a", "b", "a", "a"], rarity, count=2) == ["a", "c"]
    many = [f"x{n}" for n in range(20)]
    assert topic_words(many, dict.fromkeys(many, 1.0)) == many[:8]


def test_table_lists_the_images_of_each_word_once_and_its_copies_read_the_same_files(tmp_path) -> None:
    (tmp_path / "c.tsv").write_text("image2.jpg\tball dog\nimage0.jpg\tball\nimage2.jpg\ta ball\nnowhere.jpg\tcat\n")
    (tmp_path / "table").mkdir()
    store = FeatureStore(write_store(tmp_path / "store", np.ones((3, 1, 2))))
    table = TopicTable(tmp_path / "c.tsv", store, frozenset({"a"}), tmp_path / "table")
    assert (table.captions, table.unknown, list(table.rarity)) == (4, 1, ["dog", "ball"])
    for found in (table, pickle.loads(pickle.dumps(table))):
        assert found.images("ball").tolist() == [0, 2] and found.images("dog").tolist() == [2]
        rows, shared = found.search(["dog", "ball"], 2)
        assert rows.tolist() == [2, 0] and shared.tolist() == [2, 1]
        assert found.search(["dog", "ball"], 2, excluded=2)[0].tolist() == [0]
