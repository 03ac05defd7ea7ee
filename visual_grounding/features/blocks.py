"""What an import reads: features and columns that people already have, block by block."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..errors import InputError
from .array_files import as_numpy
from .columns import COLUMNS, NAMES, NO_LABEL

SIZES = "box_sizes"


class Block(NamedTuple):
    """Some images.

    Attributes:
        features: (images, R', F); R' is more than the source's R where an image has more regions than are kept.
        columns: name -> (images, R', ...), as they were found.
        sizes: (images, 2), width and height of the pictures, 1 where unreadable; None where they weren't asked for.
        unreadable: row -> why there is nothing.
    """

    features: np.ndarray
    columns: dict[str, np.ndarray]
    sizes: np.ndarray | None
    unreadable: dict[int, str]


class ArraySource(Protocol):
    """Features of I images, and columns beside them.

    Attributes:
        keys: one per image.
        regions: R, the most that an image shall have.
        asked_regions: the same as it was asked for; None where it wasn't, for all.
        size: F.
        columns: names of the columns that a block has.
        box_format: of boxes, unless it is said otherwise.
        plan: digests of enough of it to notice other input, and the choices of what is read.
        notes: what whoever imports should know, as sentences.
        found: which arrays were taken as what, by their names; empty where that was chosen.
    """

    keys: Sequence[str]
    regions: int
    asked_regions: int | None
    size: int
    columns: tuple[str, ...]
    box_format: str
    plan: dict[str, Any]
    notes: list[str]
    found: str

    def block(self, start: int, stop: int) -> Block:
        """Some rows."""
        ...


def regions_first(array: Any, channels_first: bool) -> np.ndarray:
    """Copy a piece of an array (numpy or torch) into the store's order.

    Shapes:
        array: (n, F), (n, R, F); with channels first (n, F, R), (n, F, h, w)
        returns: (n, R, F), regions of a map row by row from the top left
    """
    array = as_numpy(array)
    if channels_first:
        array = array.reshape(*array.shape[:2], -1).swapaxes(1, 2)
    return np.array(array[:, None] if array.ndim == 2 else array)


def check_kind(array: Any, name: str, place: object) -> None:
    """Refuse a column of another kind of numbers, from numpy or torch.

    Raises:
        InputError: with the type found.
    """
    found = array.dtype.name if isinstance(array, np.ndarray) else str(array.dtype).removeprefix("torch.")
    whole = found.startswith(("int", "uint"))
    if not (whole or (name not in NAMES and found.startswith(("float", "bfloat")))):
        kind = "whole numbers" if name in NAMES else "numbers"
        raise InputError(f"{place} should hold {kind} as {name.replace('_', ' ')}, but holds {found}.", name)


def empty_column(name: str, images: int, regions: int) -> np.ndarray:
    """A column of nothing but absent regions, wide enough for any input."""
    shape = (images, regions, *COLUMNS[name].shape)
    return np.full(shape, NO_LABEL, np.int64) if name in NAMES else np.zeros(shape)


def hint_of_four_axes(shape: tuple[int, ...], channels_first: bool) -> tuple[str, ...]:
    """What to say, and the choice that it is about, where an array may be a map."""
    if len(shape) == 4 and not channels_first:
        return " Is it a map with channels first? Then say so.", "channels_first"
    return ("",)
