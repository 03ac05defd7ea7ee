"""Boxes are drawn where they are, in the colour of their label, the first on top."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import write_store
from PIL import Image

from visual_grounding.analysis.drawn_regions import Region, check_drawable, colour_of, draw_regions, regions_of_images
from visual_grounding.errors import InputError
from visual_grounding.features.framing import Box
from visual_grounding.features.store import FeatureStore


def pixels(regions: list[Region], size: tuple[int, int] = (100, 50)) -> np.ndarray:
    """(h, w, 3) of a grey picture with these regions, its long side 200."""
    return np.asarray(draw_regions(Image.new("RGB", size, (90, 90, 90)), regions, side=200))


def has(found: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return (found == np.array(colour)).all(axis=-1)


def test_box_is_drawn_where_it_is_and_nothing_beyond() -> None:
    """x 0.5..0.9 of 200, y 0.4..1 of 100 pixels."""
    found = pixels([Region(Box(0.5, 0.4, 0.9, 1.0), 2, "dog", 0.75)])
    assert found.shape == (100, 200, 3)
    ys, xs = np.nonzero((found != 90).any(axis=-1))
    assert (xs.min(), xs.max(), ys.min(), ys.max()) == (100, 179, 40, 99)
    drawn = has(found, colour_of(2))
    assert drawn[70, 101] and drawn[70, 178] and drawn[98, 140]  # left, right and lower edge
    assert has(found, (0, 0, 0))[70, [102, 103, 176]].all()  # with an edge that is seen on any colour
    assert not has(found, colour_of(2))[60:95, 110:170].any()  # the inside stays seen
    assert has(found, (0, 0, 0))[40:60, 100:170].any()  # letters


def test_labels_have_colours_of_their_own_and_none_is_white() -> None:
    assert len({colour_of(label) for label in range(60)}) == 60
    assert colour_of(-1) == (255, 255, 255) and colour_of(7) == colour_of(7)


def test_first_region_is_on_top() -> None:
    same = Box(0.1, 0.1, 0.9, 0.9)
    first, second = Region(same, 1), Region(same, 2)
    found = pixels([first, second])
    assert has(found, colour_of(1)).any() and not has(found, colour_of(2))[80:].any()


def test_text_stays_inside_the_picture_and_boxes_without_size_are_drawn() -> None:
    corner = [Region(Box(1, 1, 1, 1), 0, "a long name of something in the corner", 0.5)]
    assert has(pixels(corner), (0, 0, 0)).any()
    assert pixels(corner, (1, 500)).shape == (200, 1, 3)
    assert pixels([]).max() == pixels([]).min() == 90


def test_text_says_what_is_known() -> None:
    box = Box(0, 0, 1, 1)
    assert [Region(box).text, Region(box, 1, "dog").text, Region(box, score=1.0).text] == ["", "dog", "1.00"]


def test_stores_that_cannot_be_drawn_are_refused() -> None:
    boxes = SimpleNamespace(folder="store", columns={"boxes": None})
    check_drawable(boxes, None)
    scored = SimpleNamespace(folder="store", columns={"boxes": None, "scores": None}, highest_score=lambda: 0.5)
    check_drawable(scored, 0.3)
    with pytest.raises(InputError, match="the least score is for a store with scores, but store has boxes"):
        check_drawable(boxes, 0.3)
    with pytest.raises(InputError, match="store should have boxes, to be drawn, but has features"):
        check_drawable(SimpleNamespace(folder="store", columns={}), None)


def test_regions_of_a_store_are_those_that_are_there_in_its_order(tmp_path) -> None:
    """Two images of three regions: one is absent, one has no label, one a score that is too low."""
    features = np.ones((2, 3, 4), np.float16)
    features[0, 1] = 0
    boxes = np.tile(np.array([0, 0.25, 0.5, 1], np.float32), (2, 3, 1))
    scores = np.array([[0.75, 0, 0.5], [0.25, 0.5, 1]], np.float16)
    labels = np.array([[1, 0, -1], [0, 1, 0]], np.int32)
    columns = {"boxes": boxes, "scores": scores, "labels": labels}
    store = FeatureStore(write_store(tmp_path / "store", features, columns=columns, label_names=["dog", "ball"]))
    box = Box(0, 0.25, 0.5, 1)
    first = [Region(box, 1, "ball", 0.75), Region(box, -1, "", 0.5)]
    second = [Region(box, 0, "dog", 0.25), Region(box, 1, "ball", 0.5), Region(box, 0, "dog", 1.0)]
    assert regions_of_images(store, [1, 0]) == [second, first]
    assert regions_of_images(store, [0, 1], min_score=0.5) == [first, second[1:]]  # one of just this score stays
