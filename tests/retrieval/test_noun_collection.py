"""A noun collection: which nouns are kept, their vectors by hand, and what is refused."""

import numpy as np
import pytest
from conftest import write_store
from small_word_vectors import write_vectors

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.noun_collection import NounCollection, iterate_nouns, key_of
from visual_grounding.text.stop_words import ENGLISH
from visual_grounding.text.word_vectors import WordVectors

VECTORS = {"dog": [1.0, 0.0], "domestic": [0.0, 1.0], "animal": [0.0, 3.0], "cat": [3.0, 4.0], "up": [-1.0, 0.0]}


@pytest.fixture
def vectors(tmp_path):
    return WordVectors(write_vectors(tmp_path / "vectors", VECTORS))


def make_collection(folder, lines, vectors, images=2, seed=1):
    (folder / "nouns.tsv").write_text("".join(f"{line}\n" for line in lines))
    store = FeatureStore(write_store(folder / "store", np.ones((9, 1, 2))))
    return NounCollection(folder / "nouns.tsv", store, vectors, ENGLISH, images, seed)


def test_keys_agree_with_an_example_worked_by_hand(vectors):
    # Lemmas: dog (1, 0); domestic dog, the mean of both, (.5, .5). Their mean: (.75, .25).
    assert key_of(["dog", "domestic dog"], "", vectors, ENGLISH).tolist() == [0.75, 0.25]
    # The definition: the mean of animal and dog, (.5, 1.5); a and the are stop words, zebra has no vector. Averaged:
    found = key_of(["dog", "domestic dog"], "the animal, a dog, zebra", vectors, ENGLISH)
    assert found.tolist() == [0.625, 0.875]
    assert key_of(["zebra"], "an animal", vectors, ENGLISH).tolist() == [0, 3]
    # `up` has a vector, and is a stop word; in a lemma it counts.
    assert "up" in ENGLISH
    assert key_of(["zebra"], "up an animal", vectors, ENGLISH).tolist() == [0, 3]
    assert key_of(["zebra"], "up an animal", vectors, frozenset()).tolist() == [-0.5, 1.5]
    assert key_of(["up"], "", vectors, ENGLISH).tolist() == [-1, 0]
    assert key_of(["zebra"], "", vectors, ENGLISH) is None
    assert key_of(["dog", "up"], "", vectors, ENGLISH) is None  # they cancel


def test_nouns_with_enough_images_are_kept(tmp_path, vectors):
    lines = [
        "Dog, domestic dog\tan animal\timage0.jpg",
        "cat\t\timage1.jpg",
        "dog, domestic dog\tan animal\timage5.jpg",
        "dog, domestic dog\tan animal\timage5.jpg",  # once
        "dog, domestic dog\tthe upper dog\timage2.jpg",  # another meaning, with one image
        "cat\t\timage3.jpg",
        "zebra\t\timage3.jpg",
        "zebra\t\timage4.jpg",
        "cat\t\tnowhere.jpg",
        "bird\t\tnowhere.jpg",
    ]
    found = make_collection(tmp_path, lines, vectors)
    assert found.lemmas == [["dog", "domestic dog"], ["cat"]]
    assert [sorted(rows.tolist()) for rows in found.rows] == [[0, 5], [1, 3]]
    assert np.allclose(found.keys[1], [0.6, 0.8]) and np.allclose(np.linalg.norm(found.keys, axis=1), 1)
    assert (found.lines, found.unknown, found.few, found.wordless) == (10, 2, 2, 1)


def test_the_order_of_images_is_drawn_by_seed(tmp_path, vectors):
    lines = [f"dog\t\timage{number}.jpg" for number in range(9)]
    orders = {}
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / folder).mkdir()
        rows = make_collection(tmp_path / folder, lines, vectors, seed=seed).rows[0].tolist()
        assert sorted(rows) == list(range(9)) and orders.setdefault(seed, rows) == rows
    assert orders[1] != orders[2] and orders[1] != list(range(9))


@pytest.mark.parametrize("line", ["dog\timage0.jpg", "dog\t\t", "\t\timage0.jpg", "a\tb\tc\td"])
def test_a_line_of_another_form_is_refused(tmp_path, line):
    (tmp_path / "n").write_text(f"dog\t\timage0.jpg\n{line}\n")
    with pytest.raises(InputError, match="n:2 should be `noun<TAB>definition or empty<TAB>key`"):
        list(iterate_nouns(tmp_path / "n"))


def test_what_makes_no_collection_is_refused(tmp_path, vectors):
    (tmp_path / "n").write_text("")
    with pytest.raises(InputError, match="should hold nouns and their images, but is empty"):
        list(iterate_nouns(tmp_path / "n"))
    for name in "abc":
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=r"names none of them, such as 'x\.jpg'; the store's are like 'image0\.jpg'"):
        make_collection(tmp_path / "a", ["dog\t\tx.jpg"], vectors)
    with pytest.raises(InputError, match=r"at least 2 images .* but of 1 1 have fewer, and 0 no vector") as caught:
        make_collection(tmp_path / "b", ["dog\t\timage0.jpg"], vectors)
    assert caught.value.choices == ("images_per_noun",)
    with pytest.raises(InputError, match="of 1 0 have fewer, and 1 no vector"):
        make_collection(tmp_path / "c", ["zebra\t\timage0.jpg", "zebra\t\timage1.jpg"], vectors)
