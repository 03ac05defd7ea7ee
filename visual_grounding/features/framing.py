"""Which part of a picture a network saw: what resizing and the centre crop left of it."""

import math
import re
from typing import NamedTuple

from ..errors import InputError

WHOLE = "whole"
_LARGEST = 65535  # pixels of a side
_PADDED = 4  # times its short side that a crop may reach beyond a picture


class Box(NamedTuple):
    """Corners; in pixels or in 0..1 of a picture, as whoever holds it says."""

    x0: float
    y0: float
    x1: float
    y1: float

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies in it; its edges belong to it."""
        return self.x0 <= x <= self.x1 and self.y0 <= y <= self.y1

    def overlaps(self, other: "Box") -> bool:
        """Whether both share an area."""
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1


class Framing(NamedTuple):
    """Short side to `resize`, then the square of side `crop` in the middle; `resize` 0: the whole picture, squeezed."""

    resize: int
    crop: int

    def window(self, width: int, height: int) -> Box:
        """The square that the network saw, in 0..1 of a picture of this size; beyond it where the crop was padded.

        By torchvision's rounding: the long side is cut down to whole pixels, and the crop's corner is rounded.

        >>> Framing(256, 224).window(512, 256)  # 512x256 pixels, of which columns 144..368 and rows 16..240 are left
        Box(x0=0.28125, y0=0.0625, x1=0.71875, y1=0.9375)
        >>> Framing(0, 224).window(512, 256)
        Box(x0=0.0, y0=0.0, x1=1.0, y1=1.0)
        """
        if not self.resize:
            return Box(0.0, 0.0, 1.0, 1.0)
        short = min(width, height)
        wide, high = (self.resize if side == short else int(self.resize * side / short) for side in (width, height))
        left, top = _offset(wide, self.crop), _offset(high, self.crop)
        return Box(left / wide, top / high, (left + self.crop) / wide, (top + self.crop) / high)


def _offset(side: int, crop: int) -> int:
    """Where the centre crop begins; negative where it is larger than the picture and zeros are added."""
    return round((side - crop) / 2) if side >= crop else -((crop - side) // 2)


def _sensible(resize: int, crop: int) -> Framing | None:
    """A framing; None where the crop is far larger than the picture, or both than any."""
    fits = resize <= _LARGEST and 0 < crop <= (_PADDED * resize if resize else _LARGEST)
    return Framing(resize, crop) if fits else None


def framing_of_plan(preprocessing: str) -> Framing | None:
    """The framing in a store's description of its preprocessing; None where it doesn't say, or says another one.

    What timm and transformers crop may lie half a pixel beside it: they round the corner otherwise.

    >>> framing_of_plan("resize 256 bilinear, crop 224, normalise 0.485 0.456")
    Framing(resize=256, crop=224)
    >>> framing_of_plan("timm center, share 0.875 bicubic, crop 224x224, normalise 0.485 0.456")
    Framing(resize=256, crop=224)
    >>> framing_of_plan("timm squash, share 1 bicubic, crop 224x224, normalise 0.5 0.5")
    Framing(resize=0, crop=224)
    >>> framing_of_plan("SiglipImageProcessor pil {size: {height: 224, width: 224}} bicubic, normalise 0.5 0.5")
    Framing(resize=0, crop=224)
    """
    found = re.match(r"resize (\d{1,5}) \w+, crop (\d{1,5})\b", preprocessing)
    if found:
        return _sensible(int(found[1]), int(found[2]))
    found = re.match(r"timm (center|squash), share (\d(?:\.\d{1,17})?) \w+, crop (\d{1,5})x(\d{1,5})\b", preprocessing)
    if found:
        mode, share, height, width = found[1], float(found[2]), int(found[3]), int(found[4])
        if mode == "center" and height == width and share:
            return _sensible(math.floor(height / share), height)
        return _sensible(0, height) if mode == "squash" and share == 1 else None
    edges = r"\{height: (\d{1,5}), width: \1\}"
    if found := re.match(rf"\w+ \w+ \{{crop_size: {edges}, size: \{{shortest_edge: (\d{{1,5}})\}}\}} ", preprocessing):
        return _sensible(int(found[2]), int(found[1]))
    if found := re.match(rf"\w+ \w+ \{{size: {edges}\}} ", preprocessing):
        return _sensible(0, int(found[1]))
    return None


def parse_framing(text: str) -> Framing:
    """Read `whole` or `RESIZE/CROP`.

    >>> parse_framing("256/224")
    Framing(resize=256, crop=224)

    Raises:
        InputError: anything else.
    """
    if text == WHOLE:
        return Framing(0, 1)
    resize, slash, crop = text.partition("/")
    numbers = [int(each) if each.isdecimal() and len(each) < 6 else 0 for each in (resize, crop)]
    found = _sensible(*numbers) if slash and all(numbers) else None
    if found is None:
        raise InputError(
            f"the framing should be {WHOLE}, or RESIZE/CROP such as 256/224, of at most {_LARGEST} pixels and no more "
            f"than {_PADDED} times the picture, but is {text!r:.80}.",
            "framing",
        )
    return found
