"""Random framing of training pictures, from a generator of one's own: the same in any process and after a restart."""

import math

import numpy as np
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

# What torchvision's RandomResizedCrop, which the retriever's reference code uses, takes by default.
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
_TRIES = 10


def random_box(width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Left, top, width and height of a random part: area uniform in `AREA`, logarithm of the aspect in `ASPECT`.

    Where ten draws don't fit into a long thin picture, it is the largest central part whose aspect is allowed.
    """
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*AREA)
        aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
            return left, top, wide, high
    wide = max(1, min(width, round(height * ASPECT[1])))
    high = max(1, min(height, round(width / ASPECT[0])))
    return (width - wide) // 2, (height - high) // 2, wide, high


def augment(image: Image.Image, side: int, interpolation: str, rng: np.random.Generator) -> np.ndarray:
    """A random part of a picture as a square, mirrored half of the time.

    Shapes:
        returns: (side, side, 3) uint8
    """
    left, top, wide, high = random_box(*image.size, rng)
    image = F.resized_crop(image, top, left, high, wide, [side, side], InterpolationMode(interpolation))
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image)
