"""Cells of bottom-up attention's tables: numbers as text, arrays as base64 of their bytes, which say no type or shape.

Everybody writes float32 and int64; where the number of regions is known, the length tells others apart.
"""

import base64
import binascii
from typing import Any

import numpy as np

from ..array_files import UnreadableArray
from ..blocks import SIZES
from ..columns import COLUMNS, NAMES
from .field_names import COUNT, FEATURES
from .image_files import as_numbers

_INTEGERS = {8: "<i8", 4: "<i4", 2: "<i2"}  # bytes of a number -> its type
_FLOATS = {4: "<f4", 8: "<f8", 2: "<f2"}


def decode(value: Any, choice: str, count: int, place: object) -> np.ndarray:
    """One cell as an array.

    Args:
        value: an array or a number already, or a string: a number for sizes and counts, else base64.
        choice: what it is: the features, a column, a size or a count.
        count: n, the regions of the image.

    Shapes:
        returns: (n, F) for features, (n, 4) for boxes, (n,) for other columns, () for a size or a count

    >>> decode("AAAAPwAAgD8=", "scores", 2, "a.tsv:1").tolist()
    [0.5, 1.0]

    Raises:
        UnreadableArray: it is cut off, or no such cell.
        InputError: it holds no numbers.
    """
    if not isinstance(value, str | bytes):
        return as_numbers(value, place)
    if choice in (SIZES, COUNT):
        return np.array(parse_number(value, choice))
    content = _bytes_of(value, choice)
    if choice == FEATURES:
        if not content or len(content) % (4 * count):
            raise UnreadableArray(f"{len(content)} bytes of features aren't float32 of {count} regions")
        return np.frombuffer(content, "<f4").reshape(count, -1)
    shape = COLUMNS[choice].shape
    each = len(content) / count / (shape[0] if shape else 1)
    kinds = _INTEGERS if choice in NAMES else _FLOATS
    if each not in kinds:
        wanted = ", ".join(str(np.dtype(kind)) for kind in kinds.values())
        raise UnreadableArray(f"{len(content)} bytes of {_named(choice)} aren't any of {wanted} for {count} regions")
    return np.frombuffer(content, kinds[int(each)]).reshape(count, *shape)


def _bytes_of(value: str | bytes, choice: str) -> bytes:
    try:
        return base64.b64decode(b"".join((value.encode() if isinstance(value, str) else value).split()), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise UnreadableArray(f"{_named(choice)} are no base64: {error}") from error


def parse_number(value: str | bytes, what: str) -> float:
    """A number that stands as text.

    Raises:
        UnreadableArray: it is none.
    """
    try:
        return float(value)
    except ValueError as error:
        shown = value[:20]
        raise UnreadableArray(f"{_named(what)} should be a number, but is {shown!r}") from error


def count_regions(record: dict[str, Any], place: object) -> int:
    """How many regions an image has, by what says so, or by its arrays.

    Raises:
        UnreadableArray: nothing says so, there is none, or what would say so is broken.
        InputError: what would say so holds no numbers.
    """
    from .field_names import KNOWN

    said = next((record[name] for name in KNOWN[COUNT] if name in record), None)
    if said is not None:
        if isinstance(said, str | bytes):
            number = parse_number(said, COUNT)
        elif as_numbers(said, place).size != 1:
            raise UnreadableArray(f"{_named(COUNT)} should be one number, but is {as_numbers(said, place).size}")
        else:
            number = float(as_numbers(said, place).ravel()[0])
        if not 1 <= number < np.inf or number != int(number):  # NaN is nowhere between
            raise UnreadableArray(f"it has {number:g} regions")
        return int(number)
    for name in KNOWN["boxes"]:
        if isinstance(record.get(name), str | bytes):
            numbers = 6 if name == "spatial_features" else 4  # of float32
            return max(1, len(_bytes_of(record[name], "boxes")) // (4 * numbers))
        if name in record:
            return max(1, len(np.atleast_1d(as_numbers(record[name], place))))
    raise UnreadableArray(f"nothing says how many regions it has: none of {', '.join(KNOWN[COUNT])}")


def _named(choice: str) -> str:
    return {FEATURES: "features", COUNT: "the number of regions", SIZES: "width or height"}.get(choice, choice)
