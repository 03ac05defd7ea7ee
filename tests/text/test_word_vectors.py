"""Word vectors are read whatever the file is called; broken ones are refused; a text is the mean of its words."""

import gzip
import pickle

import numpy as np
import pytest
from small_word_vectors import write_fasttext, write_vectors

from visual_grounding.errors import InputError
from visual_grounding.text.word_vectors import WordVectors, unit

VECTORS = {"dog": [1.0, 0.0, 2.0], "cat": [0.0, 1.0, 0.0], "böse": [0.5, -0.5, 0.0], "nothing": [0.0, 0.0, 0.0]}


@pytest.mark.parametrize("binary", [False, True])
def test_both_plain_formats_are_read(tmp_path, binary):
    vectors = WordVectors(write_vectors(tmp_path / "any.name", VECTORS, binary))
    assert vectors.size == 3 and len(vectors.sha256) == 64
    for word in ("dog", "cat", "böse"):
        assert vectors.of(word).tolist() == VECTORS[word]
        assert vectors.of(word).dtype == np.float32
    assert vectors.of("Dog") is None and vectors.of("nothing") is None


def test_fasttext_has_vectors_of_unknown_words(tmp_path):
    from gensim.models.fasttext import load_facebook_vectors

    path = write_fasttext(tmp_path / "model", [["dog", "runs"], ["cat", "sits"]] * 3)
    vectors, theirs = WordVectors(path), load_facebook_vectors(str(path))
    assert "dogs" not in theirs.key_to_index
    assert vectors.of("dogs").tolist() == theirs["dogs"].tolist()
    assert vectors.size == 6


def test_a_text_is_the_mean_of_its_words_that_count(tmp_path):
    vectors = WordVectors(write_vectors(tmp_path / "v", VECTORS))
    found = vectors.of_text("The DOG, a cat; zebra 2 dog!", frozenset({"the", "a"}))
    assert found.tolist() == pytest.approx([2 / 3, 1 / 3, 4 / 3])  # dog, cat, dog
    signs = WordVectors(write_vectors(tmp_path / "signs", {"!": [1.0, 0.0], "2": [1.0, 0.0], "dog": [0.0, 1.0]}))
    assert signs.of_text("dog! 2", frozenset()).tolist() == [0, 1]
    assert vectors.of_text("the zebra", frozenset({"the"})) is None
    assert vectors.of_text("the dog", frozenset({"the", "dog"})) is None
    assert vectors.mean_of([]) is None


def test_words_that_cancel_say_nothing(tmp_path):
    vectors = WordVectors(write_vectors(tmp_path / "v", {"up": [1.0, 0.0], "down": [-1.0, 0.0]}))
    assert vectors.of_text("up down", frozenset()) is None


def test_copies_in_other_processes_are_equal(tmp_path):
    vectors = WordVectors(write_vectors(tmp_path / "v", VECTORS))
    assert pickle.loads(pickle.dumps(vectors)).of("dog").tolist() == VECTORS["dog"]


def test_unit_has_length_1_and_leaves_zeros():
    assert unit(np.array([3.0, 4.0], dtype=np.float32)).tolist() == pytest.approx([0.6, 0.8])
    assert unit(np.zeros(2, dtype=np.float32)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "that line is b''"),
        (
            gzip.compress(b"1 2\ndog 1 2\n", mtime=0),
            "v should hold word vectors as they are, but is compressed: gunzip it",
        ),
        (b"dog 1 2 3\ncat 2 3 4\n", "whose first line says how many words and numbers follow"),
        (b"0 3\n", "whose first line says"),
        (b"3 2\ndog 1 2\ncat 3 4\n", "should have 3 words, as its first line says, but has 2"),
        (b"2 3\ndog 1 2\ncat 3 4\n", "v:2 should have 3 numbers behind a word, as the first line says, but has 2"),
        (b"2 2\ndog 1 2\ncat 3 4 5\n", "v:3 should have 2 numbers behind a word, .* but has 3"),
        (b"1 2\ndog 1 2\ncat 3 4\n", "should have 1 words, as its first line says, but has 2"),
        (b"1 2\ndog 1 nan\n", "holds NaN or infinity"),
        (b"1 2\ndog inf 1\n", "holds NaN or infinity"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0abc", "reading failed: .*It may have been cut short"),
        (b"5 100\n" + b"dog " + bytes(40), "reading failed: .*It may have been cut short"),
    ],
)
def test_what_is_no_file_of_vectors_is_refused(tmp_path, content, message):
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(InputError, match=message):
        WordVectors(tmp_path / "v")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere should be a file of word vectors, but can't be read"):
        WordVectors(tmp_path / "nowhere")


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_fasttext_model_that_was_cut_is_refused(tmp_path, share):
    whole = write_fasttext(tmp_path / "model", [["dog", "runs"], ["cat", "sits"]] * 3).read_bytes()
    (tmp_path / "cut").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match="cut"):
        WordVectors(tmp_path / "cut")


def test_a_fasttext_model_that_ends_within_its_words_is_refused(tmp_path):
    """gensim would look for the end of a word for ever."""
    whole = write_fasttext(tmp_path / "model", [["dog", "runs"], ["cat", "sits"]] * 3).read_bytes()
    second = whole.index(b"\0", whole.index(b"runs" if whole.index(b"runs") > whole.index(b"dog") else b"dog"))
    (tmp_path / "cut").write_bytes(whole[: second - 1])
    with pytest.raises(InputError, match=r"cut should have \d words, as its beginning says, but ends after \d"):
        WordVectors(tmp_path / "cut")
