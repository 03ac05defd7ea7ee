"""The piece that overlaps most, by hand and against all pairs."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from visual_grounding.vokenization import overlap
from visual_grounding.vokenization.overlap import most_overlapping

Span = tuple[int, int]


def naive(pieces: list[Span], others: list[Span]) -> list[int]:
    """VOK §3.3, word by word: every pair, sets of characters, exact fractions; the first of the best."""
    nearest = []
    for other in others:
        best, found = Fraction(0), -1
        for number, piece in enumerate(pieces):
            own, its = set(range(*piece)), set(range(*other))
            if own & its and Fraction(len(own & its), len(own | its)) > best:
                best, found = Fraction(len(own & its), len(own | its)), number
        nearest.append(found)
    return nearest


def found(pieces: list[Span], others: list[Span]) -> list[int]:
    arrays = [np.array(spans, dtype=np.int64).reshape(-1, 2).T for spans in (pieces, others)]
    return most_overlapping(*arrays[0], *arrays[1]).tolist()


def test_nearest_neighbour_by_hand():
    """A sentence "birdsong ends", cut in two ways.

        characters   0 b i r d s o n g   e n d s 13
        w            bird|song|ends                       [0, 4) [4, 8) [9, 13)
        u            birds|ong|en|ds                      [0, 5) [5, 8) [9, 11) [11, 13)

        IoU          bird    song    ends
        birds        4/5     1/8     0          -> bird
        ong          0       3/4     0          -> song
        en, ds       0       0       2/4        -> ends
    The other way: bird -> birds (4/5); song -> ong (3/4 against 1/8); ends -> en, the first of two with 2/4.
    """
    w, u = [(0, 4), (4, 8), (9, 13)], [(0, 5), (5, 8), (9, 11), (11, 13)]
    assert found(w, u) == naive(w, u) == [0, 1, 2, 2]
    assert found(u, w) == naive(u, w) == [0, 1, 2]


def test_neighbour_is_the_one_of_the_highest_share_not_of_the_most_characters():
    """[0, 10) has three characters of [7, 11), 3/11; [10, 11) has one, 1/4 < 3/11; [9, 11) two, 2/4."""
    assert found([(0, 10), (10, 11)], [(7, 11)]) == [0]
    assert found([(0, 10), (9, 11)], [(7, 11)]) == [1]


def test_what_overlaps_none_has_no_neighbour():
    assert found([(0, 2), (5, 6)], [(2, 5), (3, 3), (5, 5), (6, 9), (0, 1)]) == [-1, -1, -1, -1, 0]
    assert found([], [(0, 1)]) == [-1] and found([(3, 3)], [(2, 5)]) == [-1] and found([(0, 1)], []) == []


def test_pieces_of_one_character_give_the_first_of_them():
    assert found([(0, 1), (1, 2), (1, 2), (1, 2)], [(0, 1), (1, 2), (1, 2), (0, 2)]) == [0, 1, 1, 0]


SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda span: (min(span), max(span))), max_size=8)
ASCENDING = st.lists(st.integers(0, 20), max_size=16).map(lambda ends: [*zip(sorted(ends)[::2], sorted(ends)[1::2])])


@given(SPANS | ASCENDING, SPANS | ASCENDING)
@example([(0, 9), (1, 2), (3, 4)], [(5, 6), (1, 2)])  # a later piece ends before an earlier one
@example([(4, 5), (0, 9), (4, 5)], [(4, 5)])  # they descend; two are the best
@settings(max_examples=150, deadline=None)
def test_neighbours_are_those_of_all_pairs(pieces, others):
    assert found(pieces, others) == naive(pieces, others)


@pytest.mark.parametrize("pairs", [1, 3, 7])
def test_neighbours_are_the_same_however_many_pairs_are_looked_at_at_a_time(monkeypatch, pairs):
    rng = np.random.default_rng(0)
    starts, others = np.sort(rng.integers(0, 60, 40)), np.sort(rng.integers(0, 60, 50))
    spans = [(int(start), int(start) + int(size)) for start, size in zip(starts, rng.integers(0, 9, 40))]
    wanted = [(int(start), int(start) + int(size)) for start, size in zip(others, rng.integers(0, 9, 50))]
    whole = found(spans, wanted)
    monkeypatch.setattr(overlap, "_PAIRS", pairs)
    assert found(spans, wanted) == whole == naive(spans, wanted)


def test_fractions_that_hardly_differ_are_told_apart():
    """Pieces of 2^26 characters that have one more or one less in common: exact in floats, too."""
    many = 2**26 - 2
    # overlap many/(many + 1) of the first, (many - 1)/many of the second: the difference is 1/(many (many + 1))
    assert found([(0, many), (1, many)], [(0, many + 1)]) == [0]
    assert found([(1, many), (0, many)], [(0, many + 1)]) == [1]
    assert found([(0, many + 1), (0, many - 1)], [(0, many)]) == [0]  # many/(many + 1) > (many - 1)/many
    assert found([(0, many - 1), (0, many + 1)], [(0, many)]) == [1]
