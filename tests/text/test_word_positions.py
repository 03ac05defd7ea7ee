"""Words by their numbers, and the pieces that make them up."""

import random
from pathlib import Path

import pytest

from visual_grounding.errors import InputError
from visual_grounding.text.word_positions import (
    NO_WORD,
    check_positions,
    mask_words,
    read_positions,
    words_of_pieces,
    words_of_spans,
)


def test_positions_are_read_as_people_write_them(tmp_path: Path) -> None:
    (tmp_path / "nouns").write_text("2 7 \n-1\n\n-\n1,5,8\n3 3\n", encoding="utf-8")
    assert read_positions(tmp_path / "nouns") == [{2, 7}, set(), set(), set(), {1, 5, 8}, {3}]


@pytest.mark.parametrize("line", ["2 -1", "1.5", "man", "-2", "1 - 2", "٣", "9" * 5000])
def test_positions_that_are_no_numbers_are_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "nouns").write_text(f"1\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"nouns:2 should be numbers of words, .* but is '{line[:80]}'"):
        read_positions(tmp_path / "nouns")


def test_positions_beyond_a_sentence_or_of_another_number_of_lines_are_refused() -> None:
    lines = ["a man runs .", "a dog"]
    check_positions([{3}, {0, 1}], lines, "nouns", "test.en")
    check_positions([set(), set()], ["", "a"], "nouns", "test.en")
    with pytest.raises(
        InputError, match=r"nouns:2 .* the 2 words of that sentence \(0 to 1\), but has 2; so have 1 of 2"
    ):
        check_positions([{3}, {0, 2}], lines, "nouns", "test.en")
    with pytest.raises(InputError, match=r"each sentence of test.en, but has 1 for 2\.") as refused:
        check_positions([{3}], lines, "nouns", "test.en")
    assert refused.value.choices == ("positions", "text")


@pytest.mark.parametrize(
    ("pieces", "line", "words"),
    [
        ("ein Schl@@ ä@@ ger .", "ein Schläger .", [0, 1, 1, 1, 2]),
        ("▁ein ▁Schl äger .", "ein Schläger.", [0, 1, 1, 1]),  # the full stop stands in the word
        ("▁ein ▁ Schläger", "ein Schläger", [0, 1, 1]),  # a mark by itself
        ("castle - like , & apos ; s", "Castle-like , &apos;s", [0, 0, 0, 1, 2, 2, 2, 2]),  # WordPiece, uncased
        ("cr ##eme", "Crème", [0, 0]),
        ("a <unk> b", "a xyz b", [0, 1, 2]),
        ("a <unk> <unk> b", "a xy z b", [0, 1, 2, 3]),
        ("a xy@@ <unk> b", "a xyzu b", [0, 1, 1, 2]),
        ("<unk> z", "xyz u z", None),  # an unknown piece ends with its word
        ("a dog", "a cat", None),
        ("a dog", "a dog runs", None),
        ("a dog runs", "a dog", None),
        ("", "", []),
        ("", "a", None),
        ("a", "", None),
    ],
)
def test_pieces_are_found_in_their_words(pieces: str, line: str, words: list[int] | None) -> None:
    assert words_of_pieces(pieces.split(), line) == words


def test_pieces_of_cut_words_are_found_whatever_the_cuts() -> None:
    """The naive twin: words are cut at random, so their pieces are known."""
    draw = random.Random(1)
    for _ in range(200):
        words = ["".join(draw.choices("abü", k=draw.randint(1, 5))) for _ in range(draw.randint(1, 6))]
        pieces, expected = [], []
        for number, word in enumerate(words):
            cuts = sorted(draw.sample(range(1, len(word)), k=draw.randint(0, len(word) - 1)))
            parts = [word[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(word)])]
            pieces += [f"{part}@@" for part in parts[:-1]] + parts[-1:]
            expected += [number] * len(parts)
        assert words_of_pieces(pieces, " ".join(words)) == expected


def test_an_unknown_text_is_told_within_reason() -> None:
    """Many unknown pieces fit in many ways; all are followed at once."""
    assert words_of_pieces(["<unk>"] * 60 + ["b"], "a" * 400) is None
    assert words_of_pieces(["<unk>"] * 60, "a" * 400) == [0] * 60


def test_spans_of_a_tokenizer_are_found_in_their_words() -> None:
    assert words_of_spans([(1, 4), (4, 5), (7, 8), (8, 10), (10, 10)], " abcd  efg") == [0, 0, 1, 1, 1]
    assert words_of_spans([(0, 1), (2, 3), (4, 5), (6, 7)], "a b c d") == [0, 1, 2, 3]


def test_words_are_masked_and_removed_with_all_their_pieces() -> None:
    tokens, words = [5, 6, 7, 8, 9, 2], [0, 1, 1, 2, 3, NO_WORD]
    assert mask_words(tokens, words, {1, 3}, mask=4) == [5, 4, 8, 4, 2]
    assert mask_words(tokens, words, {1, 2}, mask=4) == [5, 4, 4, 9, 2]  # neighbours keep a mask each
    assert mask_words(tokens, words, {1, 3}, mask=None) == [5, 8, 2]
    assert mask_words(tokens, words, {0, 1, 2, 3}, mask=None) == [2]
    assert mask_words(tokens, words, set(), mask=4) == tokens
