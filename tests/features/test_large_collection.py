"""One unreadable image in a hundred over 20,000: counted, listed, and every other one done."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.features.maps import extract_map
from tests.images.containers import encoded, picture, write_parquet, write_zip
from visual_grounding.features.backbones import Backbone, Preprocessing
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images

IMAGES = 20_000
REASONS = ["empty file", "not an image", "broken or truncated: "]


class Colour(nn.Module):
    """The mean colour: cheap, and different for each picture."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3), keepdim=True)


def coloured(row: int) -> bytes:
    """A bitmap of one colour, told from its number: 2x2 pixels, 24 bits, no compression."""
    header = struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, 24, 0, 16, 0, 0, 0, 0)
    line = bytes([row & 255, row >> 8, 77]) * 2 + bytes(2)
    return b"BM" + struct.pack("<IHHI", 54 + 16, 0, 0, 54) + header + line * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zip", "parquet"])
def test_one_unreadable_image_in_a_hundred_is_counted_and_listed_and_the_rest_is_done(
    tmp_path: Path, kind: str
) -> None:
    broken = [b"", b"<html>", encoded(picture(40, 40))[:300]]
    names = [f"{row:05}.bmp" for row in range(IMAGES)]
    bad = np.sort(np.random.default_rng(0).choice(IMAGES, IMAGES // 100, replace=False)).tolist()
    contents = [coloured(row) for row in range(IMAGES)]
    for place, row in enumerate(bad):
        contents[row] = broken[place % 3]
    if kind == "zip":
        source = write_zip(tmp_path / "i.zip", dict(zip(names, contents)), zipfile.ZIP_DEFLATED)
    else:
        source = tmp_path / "shards"
        source.mkdir()
        for start in range(0, IMAGES, 5000):
            rows = slice(start, start + 5000)
            write_parquet(source / f"{start:05}.parquet", contents[rows], names[rows], group=1000)
    backbone = Backbone("colour", Colour(), Preprocessing(2, 2), "none")
    summary = extract_map(open_images(source), backbone, tmp_path / "out", device="cpu", batch_size=256)
    assert (summary.images, summary.unreadable, summary.zero) == (IMAGES, IMAGES // 100, 0)
    assert f"200 of {IMAGES} images (1.0 %) are unreadable" in summary.describe(tmp_path / "out")
    listed = [line.split("\t") for line in (tmp_path / "out/unreadable.tsv").read_text().splitlines()]
    assert [key for key, _ in listed] == [names[row] for row in bad]
    assert all(reason.startswith(REASONS[place % 3]) for place, (_, reason) in enumerate(listed))
    store = FeatureStore(tmp_path / "out")
    assert list(store.keys()) == names
    # A bitmap is blue, green, red.
    expected = np.array([[77, row >> 8, row & 255] for row in range(IMAGES)], np.float32) / 255
    expected[bad] = 0
    np.testing.assert_allclose(np.array(store.features, np.float32)[:, 0], expected, atol=5e-4)
