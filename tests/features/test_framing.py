"""Which part of a picture the network saw: hand-worked windows, and the very pixels that preprocessing leaves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_dual_encoder import make_dual_encoder

from visual_grounding.errors import InputError
from visual_grounding.features.backbones import Preprocessing, load_backbone
from visual_grounding.features.backbones.timm_networks import preprocessing_of
from visual_grounding.features.framing import Box, Framing, framing_of_plan, parse_framing


def test_window_of_a_wide_picture_by_hand():
    # 600x300: short side 300 -> 256, long side 600 * 256 / 300 = 512. Crop 224: columns 144..368, rows 16..240.
    assert Framing(256, 224).window(600, 300) == Box(144 / 512, 16 / 256, 368 / 512, 240 / 256)
    # 300x600 is the same, turned.
    assert Framing(256, 224).window(300, 600) == Box(16 / 256, 144 / 512, 240 / 256, 368 / 512)


def test_window_rounds_as_torchvision_does():
    # 500x333: the long side is 256 * 500 / 333 = 384.38 -> 384; (384 - 224) / 2 = 80.
    assert Framing(256, 224).window(500, 333) == Box(80 / 384, 16 / 256, 304 / 384, 240 / 256)
    # 255x255 stays 255; (255 - 224) / 2 = 15.5 -> 16, the even one.
    assert Framing(255, 224).window(255, 255) == Box(16 / 255, 16 / 255, 240 / 255, 240 / 255)


def test_window_reaches_beyond_the_picture_when_the_crop_is_larger():
    # 100x100 resized to 10, crop 13: 3 pixels too few; the left gets 3 // 2 = 1 of them.
    assert Framing(10, 13).window(100, 100) == Box(-0.1, -0.1, 1.2, 1.2)


@settings(max_examples=25, deadline=None)
@given(st.integers(20, 90), st.integers(20, 90), st.integers(24, 40), st.integers(16, 48))
def test_window_is_what_the_preprocessing_leaves(width, height, resize, crop):
    """A picture whose red grows to the right and whose green grows downward tells where each of its pixels was."""
    across, down = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    picture = Image.fromarray((np.stack([across, down, down], axis=-1) * 255).round().astype(np.uint8))
    pixels = Preprocessing(resize, crop).pixels(picture).astype(float) / 255
    window = Framing(resize, crop).window(width, height)
    place = (np.arange(crop) + 0.5) / crop
    x, y = window.x0 + place * (window.x1 - window.x0), window.y0 + place * (window.y1 - window.y0)
    inner_x, inner_y = (x > 0.1) & (x < 0.9), (y > 0.1) & (y < 0.9)  # at the edges resizing averages less
    middle = pixels[inner_y][:, inner_x]
    if middle.size:
        assert np.abs(middle[..., 0] - x[inner_x]).max() < 0.02 + 1 / min(width, resize)
        assert np.abs(middle[..., 1] - y[inner_y][:, None]).max() < 0.02 + 1 / min(height, resize)
    outside = (y < 0)[:, None] | (y > 1)[:, None] | (x < 0) | (x > 1)
    assert not pixels[outside].any()  # padding is black


def test_framing_is_read_from_the_plan_that_extraction_writes():
    plan = Preprocessing(256, 224, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2), "bicubic").describe()
    assert framing_of_plan(plan) == Framing(256, 224)
    assert framing_of_plan("") is None
    assert framing_of_plan("something else") is None
    assert framing_of_plan("timm border, share 1 bicubic, crop 224x224, normalise 0 1") is None
    assert framing_of_plan("timm squash, share 0.9 bicubic, crop 224x224, normalise 0 1") is None
    assert framing_of_plan("timm center, share 0.9 bicubic, crop 224x192, normalise 0 1") is None
    for odd in (
        "resize 1 bilinear, crop 999",
        f"resize {'9' * 5000} bilinear, crop 224",
        "timm squash, share 1 b, crop 0x0",
    ):
        assert framing_of_plan(f"{odd}, normalise 0 1") is None


@pytest.mark.parametrize("share", [1.0, 0.95, 0.9, 0.875])
@pytest.mark.parametrize("mode", ["center", "squash"])
def test_framing_of_timms_preprocessing_is_what_it_leaves(mode, share):
    data = {"input_size": (3, 64, 64), "interpolation": "bilinear", "mean": (0.5,) * 3, "std": (0.5,) * 3}
    made = preprocessing_of({**data, "crop_mode": mode, "crop_pct": share})
    framing = framing_of_plan(made.describe())
    if mode == "squash" and share < 1:
        assert framing is None
        return
    check_window(made.pixels, framing, 64, 150, 97)


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_framing_of_a_dual_encoders_preprocessing_is_what_it_leaves(tmp_path, family):
    made = load_backbone(f"clip:{make_dual_encoder(tmp_path, family)}").preprocessing
    framing = framing_of_plan(made.describe())
    assert bool(framing.resize) == (family == "clip")
    check_window(made.pixels, framing, made.shape[0], 150, 97)


def check_window(pixels_of, framing, side, width, height):
    """A picture whose red grows to the right and whose green grows downward tells where each of its pixels was."""
    across, down = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    picture = Image.fromarray((np.stack([across, down, down], axis=-1) * 255).round().astype(np.uint8))
    pixels = pixels_of(picture).astype(float) / 255
    window = framing.window(width, height)
    place = (np.arange(side) + 0.5) / side
    x, y = window.x0 + place * (window.x1 - window.x0), window.y0 + place * (window.y1 - window.y0)
    inner_x, inner_y = (x > 0.1) & (x < 0.9), (y > 0.1) & (y < 0.9)
    middle = pixels[inner_y][:, inner_x]
    assert np.abs(middle[..., 0] - x[inner_x]).max() < 0.02
    assert np.abs(middle[..., 1] - y[inner_y][:, None]).max() < 0.02


@pytest.mark.parametrize(
    "text", ["256", "0/224", "256/0", "a/b", "squeezed", "256/224/1", "9" * 5000 + "/9", "1/100", "70000/224"]
)
def test_framing_refuses(text):
    with pytest.raises(
        InputError, match=f"the framing should be whole, or RESIZE/CROP such as 256/224, .* but is '{text[:79]}"
    ):
        parse_framing(text)


def test_framing_whole_is_all_of_the_picture():
    assert parse_framing("whole").window(37, 91) == Box(0, 0, 1, 1)


def test_boxes_hold_their_edges_and_overlap_only_with_an_area():
    box = Box(1, 1, 3, 2)
    assert box.holds(1, 1) and box.holds(3, 2) and not box.holds(3.1, 2) and not box.holds(2, 0.9)
    assert box.overlaps(Box(2, 0, 9, 9)) and not box.overlaps(Box(3, 0, 9, 9)) and not box.overlaps(Box(0, 2, 9, 9))
