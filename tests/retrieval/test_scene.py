"""Scenes: the images whose captions are nearest, worked by hand, against a naive twin, resumed, and refused."""

import filecmp
import pickle

import numpy as np
import pytest
from conftest import write_store
from small_word_vectors import write_vectors

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval import caption_vectors
from visual_grounding.retrieval.finder import open_finder, write_image_ids
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.scene import SceneFinder
from visual_grounding.text.stop_words import ENGLISH
from visual_grounding.text.word_vectors import WordVectors

VECTORS = {"dog": [1.0, 0.0], "cat": [0.0, 2.0], "ball": [3.0, 4.0], "up": [0.0, 1.0], "down": [0.0, -1.0]}
CAPTIONS = "image0.jpg\tA dog.\nimage1.jpg\tthe cat\nimage2.jpg\ta ball\nimage2.jpg\tDog and cat\nimage3.jpg\tzebra\n"


def make_store(folder, images=5):
    return FeatureStore(write_store(folder, np.ones((images, 1, 2))))


def make_finder(folder, captions=CAPTIONS, vectors=VECTORS, count=2, images=5):
    (folder / "c.tsv").write_text(captions)
    words = WordVectors(write_vectors(folder / "vectors", vectors))
    return SceneFinder(folder / "c.tsv", make_store(folder / "store", images), words, count)


def test_scenes_agree_with_an_example_worked_by_hand(tmp_path):
    # Unit vectors of the captions: dog (1, 0) of image 0, cat (0, 1) of 1, ball (.6, .8) of 2, and also of image 2 the
    # mean of dog and cat, (.5, 1), which is (1, 2)/√5. Image 3's caption has no vector, image 4 has no caption.
    lines = [
        "The dog",  # image 0: 1; image 2: .6 by its ball, .447 by its other caption
        "a cat, a cat and a dog",  # mean (1, 4)/3: image 1 has 4/√17, image 2 9/√85 by its other caption
        "zebra",
        "",
        "up down",  # they cancel
    ]
    counts = write_image_ids(make_finder(tmp_path), lines, tmp_path / "ids")
    table = ImageIds(tmp_path / "ids")
    assert table.ids.tolist() == [[0, 2], [2, 1], [-1, -1], [-1, -1], [-1, -1]]
    expected = [[1, 0.6], [9 / 85**0.5, 4 / 17**0.5], [0, 0], [0, 0], [0, 0]]
    assert np.allclose(table.scores, expected, atol=1e-3)
    assert counts == table.counts
    assert counts == {
        "empty": 1, "no_vector": 2, "short": 0, "captions": 5, "unknown_captions": 0,
        "captions_without_vector": 1,
    }  # fmt: skip
    assert "scene" in table.signature and "stop_words" in table.signature


def test_vectors_that_workers_share_cannot_be_written(tmp_path):
    assert not make_finder(tmp_path).table._vectors.flags.writeable


def test_stop_words_count_neither_in_a_text_nor_in_captions(tmp_path):
    """Though they have vectors."""
    vectors = {**VECTORS, "the": [0.0, 50.0], "of": [0.0, 50.0]}
    captions = "image0.jpg\tthe dog of the\nimage1.jpg\tdog cat\nimage2.jpg\tcat of the\n"
    found = make_finder(tmp_path, captions, vectors, 3).find(["the dog", "of a cat"])
    # dog (1, 0): image 0 has 1, the mean of dog and cat, (.5, 1), 1/√5, cat 0; of the text about a cat: 1, 2/√5, 0.
    assert found.ids.tolist() == [[0, 1, 2], [2, 1, 0]]
    assert np.allclose(found.scores, [[1, 5**-0.5, 0], [1, 2 * 5**-0.5, 0]], atol=1e-6)


def test_an_image_that_is_excluded_leaves_its_place_to_the_next(tmp_path):
    counts = write_image_ids(make_finder(tmp_path, count=3), ["dog", "dog"], tmp_path / "ids", ["image0.jpg", ""])
    assert ImageIds(tmp_path / "ids").ids.tolist() == [[2, 1, -1], [0, 2, 1]]
    assert counts["short"] == 1


def naive_scene(captions, keys, vectors, line, count, excluded):
    def bag(text):
        words = [w.strip(".,!").lower() for w in text.split()]
        found = [np.array(vectors[w], np.float64) for w in words if w in vectors and w not in ENGLISH]
        return np.mean(found, axis=0) if found else None

    query = bag(line)
    if query is None:
        return []
    best = {}
    for key, text in captions:
        other = bag(text)
        if key in keys and other is not None and keys.index(key) != excluded:
            cosine = np.float32(query @ other / np.linalg.norm(query) / np.linalg.norm(other))
            row = keys.index(key)
            best[row] = max(best.get(row, -2), cosine)
    return sorted(best.items(), key=lambda item: -item[1])[:count]


@pytest.mark.parametrize("seed", range(4))
def test_scenes_agree_with_their_naive_twin(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(caption_vectors, "_CAPTIONS", 7)
    rng = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(12)]
    vectors = {word: rng.normal(size=5).round(3).tolist() for word in words}
    text = [" ".join(rng.choice([*words, "zebra", "the"], rng.integers(1, 6))) for _ in range(60)]
    images = 6 if seed else 40  # few images have so many captions that more have to be asked for
    captions = [(f"image{rng.integers(images + 2)}.jpg", line) for line in text]
    finder = make_finder(tmp_path, "".join(f"{k}\t{c}\n" for k, c in captions), vectors, 4, images)
    lines = [" ".join(rng.choice([*words, "zebra"], rng.integers(1, 5))) for _ in range(25)]
    excluded = rng.integers(-1, images, len(lines))
    found = finder.find(lines, excluded)
    for number, line in enumerate(lines):
        expected = naive_scene(captions, list(finder.collection.keys()), vectors, line, 4, excluded[number])
        rows = [row for row in found.ids[number].tolist() if row >= 0]
        assert len(rows) == len(expected) and len(set(rows)) == len(rows)
        assert np.allclose(found.scores[number, : len(rows)], [score for _, score in expected], atol=1e-6)
        scores = dict(expected)
        for row, score in zip(rows, found.scores[number]):  # equal ones may change places
            assert score == pytest.approx(scores.get(row, score), abs=1e-6)


def test_scenes_of_many_captions_an_image_are_found(tmp_path):
    captions = "".join(f"image0.jpg\tdog {'ball ' * (n % 3)}\n" for n in range(500)) + "image1.jpg\tcat\n"
    finder = make_finder(tmp_path, captions)
    assert finder.find(["dog"]).ids.tolist() == [[0, 1]]
    assert finder.find(["dog"], np.array([0])).ids.tolist() == [[1, -1]]


def test_copies_and_the_command_find_the_same(tmp_path, capsys):
    finder = make_finder(tmp_path)
    finder.make_shared()
    lines = ["The dog", "cat ball", "zebra"]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    expected = finder.find(lines).ids.tolist()
    assert pickle.loads(pickle.dumps(finder)).find(lines).ids.tolist() == expected
    flags = ["--captions", tmp_path / "c.tsv", "--image-features", tmp_path / "store"]
    flags += ["--word-vectors", tmp_path / "vectors", "-n", 2]
    assert open_finder(["scene", *map(str, flags)]).find(lines).ids.tolist() == expected
    command = ["retrieve", "--method", "scene", *flags, "--text", tmp_path / "text", "--out", tmp_path / "ids"]
    assert main(list(map(str, command))) == 0
    assert ImageIds(tmp_path / "ids").ids.tolist() == expected
    said = capsys.readouterr()
    assert f"1 of 3 sentences (33.3 %) have no word that {tmp_path / 'vectors'} has a vector of" in said.err
    assert "1 of 5 captions (20.0 %) have no word that" in said.err
    assert "3 sentences, 2 images each" in said.out


def test_shards_make_no_difference(tmp_path):
    finder = make_finder(tmp_path)
    lines = ["dog", "cat", "ball dog", "zebra", ""]
    for size in (2, 5):
        write_image_ids(finder, lines, tmp_path / f"ids{size}", shard_size=size)
    for name in ("ids.npy", "scores.npy"):
        assert filecmp.cmp(tmp_path / "ids2" / name, tmp_path / "ids5" / name, shallow=False)
    assert not list(tmp_path.glob("ids*.partial"))


def test_other_vectors_and_stop_words_make_another_table(tmp_path):
    write_image_ids(make_finder(tmp_path), ["dog"], tmp_path / "ids")
    store, vectors = _rest(tmp_path)
    others = WordVectors(write_vectors(tmp_path / "others", {**VECTORS, "dog": [1.0, 0.5]}))
    for words, stop_words in ((others, ENGLISH), (vectors, frozenset({"cat"}))):
        with pytest.raises(InputError, match="ids"):
            write_image_ids(SceneFinder(tmp_path / "c.tsv", store, words, 2, stop_words), ["dog"], tmp_path / "ids")
    flags = [
        "--captions",
        tmp_path / "c.tsv",
        "--image-features",
        tmp_path / "store",
        "--word-vectors",
        tmp_path / "vectors",
    ]
    (tmp_path / "stop").write_text("cat\n")
    found = open_finder(list(map(str, ["scene", *flags, "--stop-words", tmp_path / "stop"])))
    assert found.find(["cat"]).ids.tolist()[0] == [-1] * 8


def test_what_does_not_belong_together_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"should describe images of feature store .* has none of them, such as 'x\.jpg'"
    ):
        make_finder(tmp_path, "x.jpg\ta dog\n").find(["dog"])
    with pytest.raises(InputError, match=r"should have words that .*vectors has vectors of, but has none"):
        SceneFinder(_captions(tmp_path, "image0.jpg\tHund\n"), *_rest(tmp_path), 2).find(["dog"])
    with pytest.raises(InputError, match=r"images_per_sentence|at least 1"):
        SceneFinder(tmp_path / "c.tsv", *_rest(tmp_path), 0)
    with pytest.raises(InputError, match=r"c\.tsv should hold captions, but is empty"):
        SceneFinder(_captions(tmp_path, ""), *_rest(tmp_path), 2).find(["dog"])
    with pytest.raises(InputError, match=r"nowhere can't be read"):
        SceneFinder(tmp_path / "nowhere", *_rest(tmp_path), 2)


def _captions(folder, text):
    (folder / "c.tsv").write_text(text)
    return folder / "c.tsv"


def _rest(folder):
    return FeatureStore(folder / "store"), WordVectors(folder / "vectors")


def test_images_that_could_not_be_read_are_never_found(tmp_path):
    features = np.ones((5, 1, 2))
    features[0] = 0
    (tmp_path / "c.tsv").write_text(CAPTIONS)
    words = WordVectors(write_vectors(tmp_path / "vectors", VECTORS))
    store = FeatureStore(write_store(tmp_path / "store", features))
    finder = SceneFinder(tmp_path / "c.tsv", store, words, 1)
    counts = write_image_ids(finder, ["The dog"], tmp_path / "ids")
    assert ImageIds(tmp_path / "ids").ids.tolist() == [[2]] and counts["absent_captions"] == 1
    assert any("1 of 5 captions (20.0 %) are of images without features" in said for said in finder.warnings(counts, 1))
    sound = FeatureStore(write_store(tmp_path / "sound", np.ones((5, 1, 2))))
    sound.has_absent = False  # as a store says that was made by a command
    assert finder.plan != SceneFinder(tmp_path / "c.tsv", sound, words, 1).plan


@pytest.mark.parametrize("flag", ["--captions", "--word-vectors", "--image-features"])
def test_what_scenes_are_found_by_must_be_given(flag):
    words = ["scene", "--captions", "c.tsv", "--word-vectors", "vectors", "--image-features", "store"]
    place = words.index(flag)
    with pytest.raises(InputError, match=flag):
        open_finder(words[:place] + words[place + 2 :])
