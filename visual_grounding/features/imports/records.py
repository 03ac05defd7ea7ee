"""Features of regions that lie image by image, in whatever file: one record of named arrays for each."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import InputError
from ..array_files import UnreadableArray, check_float
from ..blocks import SIZES, Block, check_kind, empty_column, hint_of_four_axes, regions_first
from ..columns import COLUMNS
from .field_names import COUNT, FEATURES, KNOWN, Wanted, find_fields


class Record(NamedTuple):
    """One image: features (R, F), columns (R, ...), and width and height (2,) or None."""

    features: np.ndarray
    columns: dict[str, np.ndarray]
    size: np.ndarray | None


class Records(ABC):
    """Images of which each has its own arrays. A form of file derives from it and says how arrays are read.

    Args:
        keys: of the images.
        wanted: which arrays are what.
        regions: the most that an image shall have; those with fewer are filled up with zeros, that is, absent regions.
            None: all must have as many as the first.
        plan: what notices another input.

    Raises:
        InputError: no image can be read, or the first that can has no region, no features, or arrays that disagree.
    """

    def __init__(
        self,
        keys: Sequence[str],
        wanted: Wanted,
        regions: int | None,
        plan: dict[str, Any],
        channels_first: bool = False,
    ) -> None:
        self.keys = keys
        self._channels_first = channels_first
        first = self._first_readable(wanted)
        self.columns = tuple(self._fields.columns)
        self.box_format = self._fields.box_format
        self.found = "" if wanted.features == self._fields.features else self._fields.said()
        found, self.size = first.features.shape
        self._fixed = regions is None
        self.regions = found if regions is None else regions
        self.asked_regions = regions
        if self.regions < 1:
            raise InputError(f"{self._first} has no region. Say the most that an image has.", "regions")
        self.plan: dict[str, Any] = {
            **plan,
            **self._fields.described(),
            **({"channels_first": True} if channels_first else {}),
        }

    @abstractmethod
    def place(self, row: int) -> object:
        """Where an image lies, for messages."""

    @abstractmethod
    def names(self, row: int) -> list[str]:
        """Names of an image's arrays.

        Raises:
            UnreadableArray: it is missing, empty or broken.
            InputError: it isn't such a file.
        """

    @abstractmethod
    def read(self, row: int, names: Sequence[tuple[str, str | None]]) -> list[np.ndarray]:
        """Arrays of an image.

        Args:
            names: each behind the choice that it is; None for the only one that there is.

        Raises:
            UnreadableArray: as `names`.
            InputError: it has no such array, or what it has is no array of numbers.
        """

    def _first_readable(self, wanted: Wanted) -> Record:
        reason = ""
        for row in range(len(self.keys)):
            try:
                self._fields, left_out = find_fields(wanted, self.names(row))
                self._first = self.place(row)
                self.notes = [
                    f"{what} were left out: nothing says what the numbers stand for. Give their names, one a line."
                    for what in left_out
                ]
                return self._record(row)
            except UnreadableArray as error:
                reason = reason or f"{self.place(row)} ({error})"
        raise InputError(f"All {len(self.keys)} images are unreadable; the first is {reason}.")

    def _record(self, row: int) -> Record:
        place, fields = self.place(row), self._fields
        array, *others = self.read(row, fields.asked())
        check_float(array, place)
        if fields.features == "detection_features" and array.ndim == 4:
            # VTLM's detector keeps a map (h, w, F) of each region; the mean over its places is the region's feature.
            array = array.mean(axis=(1, 2), dtype=np.float32)
        if array.ndim not in ((2, 3) if self._channels_first else (1, 2)) or 0 in array.shape[-1:]:
            wanted = "(F, h, w) or (F, R) with channels first" if self._channels_first else "(F,) or (R, F)"
            hint, *choices = hint_of_four_axes((1, *array.shape), self._channels_first)
            raise InputError(f"{place} should have shape {wanted}, but has {array.shape}.{hint}", *choices)
        features = regions_first(array[None], self._channels_first)[0]
        columns = dict(zip(fields.columns, others))
        for name, values in columns.items():
            check_kind(values, name, place)
            if name == "boxes" and fields.columns[name] == "spatial_features":
                columns[name] = values = values[..., :4]  # width and height behind the corners
            expected = (len(features), *COLUMNS[name].shape)
            if values.shape != expected:
                raise InputError(
                    f"{place} should hold {name} of shape {expected}, since it has features of {len(features)} "
                    f"regions, but {fields.columns[name]} has {values.shape}.",
                    name,
                )
        behind = others[len(columns) :]
        if fields.number:
            features, columns = self._counted(behind.pop(), features, columns, place)
        elif fields.columns.get("scores") == "detection_scores":
            # The detector fills up with detections of score 0; pooled files of VTLM have no number of detections.
            kept = ~(columns["scores"] <= 0)  # (R,); NaN stays, to be refused
            features, columns = features[kept], {name: values[kept] for name, values in columns.items()}
        return Record(features, columns, self._size(behind, place) if fields.sizes else None)

    def _counted(
        self, count: np.ndarray, features: np.ndarray, columns: dict[str, np.ndarray], place: object
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Without what only fills the arrays up."""
        check_kind(count, COUNT, place)
        if count.size != 1 or not 0 <= (number := count.ravel()[0].item()) <= len(features) or number != int(number):
            said = ", ".join(str(each) for each in count.ravel()[:3].tolist())
            raise InputError(
                f"{place} should have as many regions as {self._fields.number} says, but that is {said}, and there are "
                f"features of {len(features)}."
            )
        number = int(number)  # some write 36.0
        return features[:number], {name: values[:number] for name, values in columns.items()}

    def _size(self, sides: Sequence[np.ndarray], place: object) -> np.ndarray:
        for side in sides:
            check_kind(side, SIZES, place)
        size = np.concatenate([np.atleast_1d(side).ravel() for side in sides]).astype(np.float64)
        if size.shape != (2,):
            raise InputError(
                f"{place} should hold a width and a height, but {' and '.join(self._fields.sizes)} are {len(size)} "
                "numbers.",
                SIZES,
            )
        return size

    def block(self, start: int, stop: int) -> Block:
        """Some images, and which of these are unreadable."""
        count = stop - start
        found: dict[int, Record] = {}
        unreadable: dict[int, str] = {}
        for row in range(start, stop):
            try:
                found[row - start] = self._record(row)
                self._check_shape(found[row - start].features.shape, row)
            except UnreadableArray as error:
                unreadable[row] = str(error)
        most = max([self.regions, *(len(record.features) for record in found.values())])
        block = np.zeros((count, most, self.size), np.float32)
        columns = {name: empty_column(name, count, most) for name in self.columns}
        sizes = np.ones((count, 2)) if self._fields.sizes else None
        for place, record in found.items():
            block[place, : len(record.features)] = record.features
            for name, values in record.columns.items():
                columns[name][place, : len(values)] = values
            if sizes is not None and record.size is not None:
                sizes[place] = record.size
        return Block(block, columns, sizes, unreadable)

    def _check_shape(self, shape: tuple[int, ...], row: int) -> None:
        if shape[1] != self.size:
            raise InputError(
                f"All images should have features of one size, but {self._first} has {self.size} and {self.place(row)} "
                f"{shape[1]}."
            )
        if self._fixed and shape[0] != self.regions:
            raise InputError(
                f"{self._first} has {self.regions} regions, but {self.place(row)} has {shape[0]}. Where images differ, "
                "say the most that one has.",
                "regions",
            )


def the_only(names: Sequence[str], name: str | None, place: object, choice: str = FEATURES) -> str:
    """The name of an array that is there.

    Raises:
        InputError: there is none of this name, or none was chosen and there are several.
    """
    if name is None and len(names) == 1:
        return names[0]
    if name is None or name not in names:
        held = ", ".join(map(str, names[:8])) or "nothing"
        asked, which = f"not {name}", "Choose one by its name."
        if name is None:
            asked = f"nothing that is known as features ({', '.join(KNOWN[FEATURES])})"
            which = "Choose the array that holds them by its name; is it a feature file?"
        raise InputError(f"{place} holds {held}, but {asked}. {which}", choice)
    return name
