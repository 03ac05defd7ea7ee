"""Candidates are those that were asked for, and never absent ones."""

from types import SimpleNamespace

import numpy as np
import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.lines import sha256_of_lines
from visual_grounding.vokenization.candidates import choose_candidates

KEYS = [f"{number}.jpg" for number in range(6)]
PRESENT = np.array([True, False, True, True, True, True])


class Images(SimpleNamespace):
    folder = "index"

    def __len__(self):
        return len(KEYS)

    def keys(self):
        return iter(KEYS)


def choose(**options):
    return choose_candidates(Images(), PRESENT, **options)


def test_candidates_are_all_that_are_there():
    assert choose().rows.tolist() == [0, 2, 3, 4, 5] and choose().keys == [KEYS[row] for row in (0, 2, 3, 4, 5)]
    assert choose().sha256 == sha256_of_lines(choose().keys)


def test_candidates_are_the_first_ones_or_drawn():
    assert choose(count=3).rows.tolist() == [0, 2, 3]
    drawn = {tuple(choose(count=3, seed=seed).rows.tolist()) for seed in range(50)}
    assert len(drawn) > 5 and all(list(rows) == sorted(rows) and 1 not in rows for rows in drawn)
    assert choose(count=3, seed=4).keys == choose(count=3, seed=4).keys


def test_candidates_of_a_list_keep_its_order(tmp_path):
    path = tmp_path / "list"
    path.write_text("5.jpg\n0.jpg\n\n")
    assert choose(listed=path).rows.tolist() == [5, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5.jpg\n1.jpg\n", "1 of its 2 aren't there, the first '1.jpg'"),
        ("5.jpg\n9.jpg\n", "1 of its 2 aren't there, the first '9.jpg'"),
        ("5.jpg\n5.jpg\n", "each image once, but has '5.jpg' twice"),
        ("", "0 of its 0 aren't there"),
    ],
)
def test_candidates_of_a_wrong_list_are_refused(tmp_path, text, message):
    path = tmp_path / "list"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        choose(listed=path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 6}, "1 to 5 candidates, .* but 6 were asked for"),
        ({"count": 0}, "1 to 5 candidates, .* but 0 were asked for"),
        ({"seed": 1}, "should come with how many"),
        ({"count": 1, "listed": "list"}, "either listed or counted, but both"),
    ],
)
def test_candidates_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        choose(**options)
