"""One picture to compare libraries on: drawn, or a real photo where the shared data is."""

import numpy as np
import pytest
from conftest import shared_data
from PIL import Image

from visual_grounding.images.sources import open_images, read_image


def drawn_photo(height: int = 300, width: int = 400) -> Image.Image:
    """Smooth colours, some edges, a little noise."""
    y, x = np.mgrid[0:height, 0:width] / 60
    colours = np.stack([np.sin(x), np.cos(y), np.sin(x * y / 4)], axis=-1) * 80 + 128
    colours[height // 3 : height // 2, width // 4 : width // 2] = (200, 40, 60)
    noise = np.random.default_rng(0).normal(0, 6, colours.shape)
    return Image.fromarray((colours + noise).clip(0, 255).astype(np.uint8))


def real_photo() -> Image.Image:
    """A photo of the shared data, its lower third cut off so that it isn't square."""
    tar = shared_data() / "flickr8k/images/dev.tar"
    if not tar.exists():
        pytest.skip("the shared real data isn't here (set VISUAL_GROUNDING_DATA)")
    image = read_image(open_images(tar), 7)
    return image.crop((0, 0, image.width, image.height * 2 // 3))


# Parameters of a test: a function that gives the picture.
PICTURES = [pytest.param(drawn_photo, id="drawn"), pytest.param(real_photo, id="real", marks=pytest.mark.data)]
