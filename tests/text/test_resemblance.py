"""A text is known again by a few of its lines, however they are written, and another isn't taken for it."""

import random

from visual_grounding.text.resemblance import KEPT, LINES, UNLIKE, places, resemblance, sketch

WORDS = ["dog", "ball", "grass", "child", "street", "woman", "yellow", "running", "jumps", "table", "market", "crowd"]


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
