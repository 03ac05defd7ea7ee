"""Boxes of other people's formats, worked by hand."""

import numpy as np
import pytest

from visual_grounding.features.boxes import ROUNDING, to_corners

# A picture of 200x100 pixels, a box from (50, 20) to (150, 60): x 0.25 to 0.75, y 0.2 to 0.6.
SIZES = np.array([[200, 100]])
CORNERS = [0.25, 0.2, 0.75, 0.6]


@pytest.mark.parametrize(
    ("box_format", "pixels"), [("xyxy", [50, 20, 150, 60]), ("xywh", [50, 20, 100, 40]), ("yxyx", [20, 50, 60, 150])]
)
@pytest.mark.parametrize("dtype", ["int16", "uint8", "float16", "float32", "float64"])
def test_boxes_in_pixels_become_corners_in_0_to_1(box_format: str, pixels: list[int], dtype: str) -> None:
    found = to_corners(np.array([[pixels]], dtype), box_format, SIZES)
    np.testing.assert_allclose(found, [[CORNERS]], rtol=1e-12)
    scaled = np.array(pixels) / ([100, 200, 100, 200] if box_format == "yxyx" else [200, 100, 200, 100])
    np.testing.assert_allclose(to_corners(scaled[None, None], box_format), [[CORNERS]], rtol=1e-12)


def test_each_picture_has_its_own_size() -> None:
    found = to_corners(np.full((2, 3, 4), 50.0), sizes=np.array([[50, 100], [200, 50]]))
    assert found[0].tolist() == [[1, 0.5, 1, 0.5]] * 3 and found[1].tolist() == [[0.25, 1, 0.25, 1]] * 3


def test_rounding_is_mended_and_nothing_more() -> None:
    third = np.float32(1 / 3)
    over = np.array([[[0, 0, third, third], [1 - third, 0, third + np.float32(1e-6), 1]]], np.float32)
    assert to_corners(over, "xywh")[0, 1].tolist() == [1 - third, 0, 1, 1]
    beyond = np.array([[[-2 * ROUNDING, 0, 1 + 2 * ROUNDING, 1]]])
    assert to_corners(beyond).tolist() == beyond.tolist()  # left as it is, to be refused


def test_what_is_no_number_stays_none() -> None:
    found = to_corners(np.array([[[np.nan, 0, np.inf, 1]]]), "xywh", SIZES)
    assert np.isnan(found[0, 0, 0]) and not np.isfinite(found[0, 0, 2])


def test_input_is_left_as_it_was() -> None:
    boxes = np.array([[[50.0, 20, 100, 40]]])
    to_corners(boxes, "xywh", SIZES)
    assert boxes.tolist() == [[[50, 20, 100, 40]]]
