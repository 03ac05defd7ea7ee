"""A text is known again by a few of its lines, however they are written, and another isn't taken for it."""

import random

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from visual_grounding.text.resemblance import (
    KEPT,
    LINES,
    UNLIKE,
    mean_share,
    places,
    shares_in_common,
    sketch,
    strangers,
)

WORDS = ["dog", "ball", "grass", "child", "street", "woman", "yellow", "running", "jumps", "table", "market", "crowd"]


def resemblance(sketches, candidates) -> float | None:
    return mean_share(shares_in_common(sketches, candidates))


def captions(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [f"A {' '.join(draw.sample(WORDS, 7))}." for _ in range(count)]


def alike(text: list[str], other: list[str]) -> float | None:
    sketches = [sketch(text[place]) for place in places(len(text))]
    return resemblance(sketches, lambda number: [other[places(len(text))[number]]])


def test_places_are_spread_over_the_whole_text() -> None:
    assert places(0) == [] and places(2) == [0, 1] and places(LINES) == list(range(LINES))
    found = places(10**6)
    assert len(found) == len(set(found)) == LINES and found[0] < 20_000 and found[-1] > 980_000
    assert places(33)[-1] < 33


def test_sketch_by_hand() -> None:
    """Three groups of four letters; a short line is a group of its own."""
    one = set(sketch("ab, cdef").split())
    assert len(one) == 3 and one == {sketch(group) for group in ("abcd", "bcde", "cdef")}
    assert sketch("ab") != sketch("ac") and sketch("") == sketch("... !") == ""
    assert len(sketch("the quick brown fox jumps over the lazy dog and so on").split()) == KEPT


def test_resemblance_is_the_share_of_groups_in_common() -> None:
    """{abcd, bcde, cdef} and {bcde, cdef, defg}: 2 of 4."""
    assert resemblance([sketch("abcdef")], lambda _: ["bcdefg"]) == 0.5
    assert resemblance([sketch("abcdef"), sketch("ghijk")], lambda number: [["bcdefg"], ["ghijk"]][number]) == 0.75
    assert resemblance([sketch("abcdef")], lambda _: ["zzzz", "abcdef"]) == 1  # the most alike counts


def test_same_text_written_otherwise_resembles_itself_and_another_does_not() -> None:
    text = captions(500, 1)
    assert alike(text, [line.lower().replace(".", " .").replace("ll", "l@@ l") for line in text]) == 1
    masked = [
        " ".join("[MASK]" if number in (2, 5) else word for number, word in enumerate(line.split())) for line in text
    ]
    assert UNLIKE < alike(text, masked) < 1
    assert alike(text, text[::-1]) < 0.5
    assert alike(text, [f"Ein {line[::-1]}" for line in text]) < UNLIKE


def test_nothing_is_said_where_there_is_nothing_to_compare() -> None:
    assert resemblance([], lambda _: ["abc"]) is None
    assert resemblance([""], lambda _: ["abc"]) is None
    assert resemblance([sketch("abc")], lambda _: ["17 204 9"]) is None  # numbers of pieces


def letters(count: int, seed: int) -> list[str]:
    """Lines of words that no two have in common, as good as."""
    draw = random.Random(seed)
    return [" ".join("".join(draw.choices("abcdefghijklmnop", k=6)) for _ in range(8)) for _ in range(count)]


@pytest.mark.parametrize(("size", "first"), [(500, 60), (500, 170), (500, 430), (12, 6), (6, 3)])
def test_lines_that_are_others_from_one_on_are_told(size: int, first: int) -> None:
    text = letters(size, 2)
    shifted = [*text[:first], *text[first + 1 :], "one more line than there was"]
    numbers = places(size)
    shares = shares_in_common([sketch(text[place]) for place in numbers], lambda place: [shifted[numbers[place]]])
    assert [numbers[place] for place in strangers(shares)] == [place for place in numbers if place >= first]
    assert sum(share for share in shares if share is not None) / len(shares) > UNLIKE


@pytest.mark.parametrize("masked", [0.0, 0.15, 0.4, 0.6, 1.0])
def test_masked_lines_and_those_of_another_language_are_no_strangers(masked: float) -> None:
    draw, text = random.Random(3), letters(32, 3)
    for _ in range(20):
        other = [" ".join("mask" if draw.random() < masked else word for word in line.split()) for line in text]
        shares = shares_in_common(map(sketch, text), lambda place, other=other: [other[place]])
        assert strangers(shares) == []


def test_one_odd_line_is_nothing_to_speak_of() -> None:
    text = letters(32, 4)
    assert strangers(shares_in_common(map(sketch, text), lambda place: [text[place] if place else "!a"])) == []
    assert strangers([None] * 3 + [1.0] * 3) == strangers([]) == []
    assert strangers([1.0] * 4 + [None, 0.0, None, 0.0, 0.05]) == [5, 7, 8]


def test_short_lines_of_unknown_words_are_nothing_to_speak_of() -> None:
    """A third of the lines has no known word but `a`; a sixth of the text is in another script."""
    draw = random.Random(5)
    for _ in range(200):
        assert strangers([0.0 if draw.random() < 1 / 3 else 1.0 for _ in range(32)]) == []


def test_byte_level_pieces_are_the_text_that_they_are_of() -> None:
    tokenizer = ByteLevel(add_prefix_space=False)
    for line in ("Русский текст", "一只狗在跑", "Zwei Bären – schön", "a dog"):
        pieces = " ".join(piece for piece, _ in tokenizer.pre_tokenize_str(line))
        assert resemblance([sketch(line)], lambda _, pieces=pieces: [pieces]) == 1
        assert resemblance([sketch(line)], lambda _, line=line: [line]) == 1
