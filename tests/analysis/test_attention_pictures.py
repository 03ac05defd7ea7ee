"""Boxes shaded by attention."""

from pathlib import Path

import numpy as np
from PIL import Image

from visual_grounding.analysis.attention_pictures import draw_shares, draw_tokens, shade
from visual_grounding.analysis.intervals import Interval


def test_boxes_are_shaded_by_their_weight_and_the_highest_counts_where_they_overlap() -> None:
    pixels = np.full((4, 8, 3), 0.5)
    boxes = np.array([[0, 0, 0.5, 1], [0.25, 0, 0.75, 0.5], [0.9, 0, 0.9, 0]])
    shaded = shade(pixels, boxes, np.array([1.0, 0.3, 0.0]))
    assert (shaded[:, 6:] == 0.5).all()  # outside of both; what has no weight isn't drawn
    assert (shaded[:, :4] == shaded[0, 0]).all()  # the first box, also where the second overlaps it
    assert (shaded[:2, 4:6] == shaded[0, 4]).all() and (shaded[2:, 4:6] == 0.5).all()
    change = np.abs(shaded - 0.5).max(axis=2)
    assert change[0, 0] > change[0, 4] > 0
    alone = shade(pixels, boxes[1:2], np.array([0.3]))
    assert (alone[0, 2] == shaded[0, 4]).all()  # the colour is of the weight alone
    thin = shade(pixels, np.array([[0.5, 0, 0.5, 1]]), np.array([1.0]))
    assert (thin[:, 4] != 0.5).all() and (thin[:, 5] == 0.5).all()  # a box of no width is seen all the same


def test_pictures_are_drawn_whatever_letters_and_numbers_of_tokens(tmp_path: Path) -> None:
    # A few draws may all lie on one side of the value.
    intervals = [Interval(0.2, 0.1, 0.3), Interval(0.5, 0.51, 0.6), Interval(0.3, 0.2, 0.29)]
    draw_shares(tmp_path / "shares.png.tmp", {"congruent": intervals}, {"congruent": 0.4}, "test, 3 sentences")
    photo = Image.new("RGBA", (64, 32))
    tokens = ["ein@@", r"$\frac$", "</s>", "▁Hund", "a", "b", "c"]
    weights = np.random.default_rng(0).random((7, 2))
    for number, some in enumerate((tokens, tokens[:1])):
        path = tmp_path / f"{number}.tmp"
        draw_tokens(path, photo, np.array([[0, 0, 1, 1], [0, 0, 0.5, 0.5]]), weights[: len(some)], some, "a_$photo.jpg")
        with Image.open(path) as drawn:
            assert drawn.size[0] == 240 * (1 if number else 6)
    draw_tokens(tmp_path / "0.tmp", photo, np.zeros((1, 4)), np.zeros((1, 1)), ["none"], "no weight at all")
    with Image.open(tmp_path / "shares.png.tmp") as drawn:
        assert drawn.size == (900, 540)
