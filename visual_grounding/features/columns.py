"""What a feature store may say about its regions beside their features: boxes, labels, attributes, scores.

A column is one array more, with a row for every image and an entry for every region. A region whose features are all
zero is absent, and nothing else says how many there are; of an absent region columns hold `Column.absent`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..storage.lines import sha256_of_lines

NO_LABEL = -1


class Column(NamedTuple):
    """Form of a column: the shape and type of one region's entry, and what an absent region's is."""

    shape: tuple[int, ...]
    dtype: str
    absent: int


COLUMNS = {
    "boxes": Column((4,), "float32", 0),  # x0, y0, x1, y1 in 0..1 of the whole picture
    "labels": Column((), "int32", NO_LABEL),
    "attributes": Column((), "int32", NO_LABEL),
    "scores": Column((), "float16", 0),
}
NAMES = {"labels": "label_names", "attributes": "attribute_names"}  # column -> what its numbers are lines of


class Columns(NamedTuple):
    """Which columns a store has, and the names that the numbers of its labels and attributes stand for.

    Attributes:
        present: names of columns, in the order of `COLUMNS`.
        label_names: label n is the n-th of these, counted from 0; empty without labels.
        attribute_names: likewise.
    """

    present: tuple[str, ...] = ()
    label_names: Sequence[str] = ()
    attribute_names: Sequence[str] = ()

    def names_of(self, column: str) -> Sequence[str]:
        """What the numbers of a column stand for; empty where they are no numbers of names."""
        return getattr(self, NAMES[column]) if column in NAMES else ()

    def arrays(self, regions: int) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> shape of one image's row, and type: what a writer of shards lays out."""
        return {name: ((regions, *COLUMNS[name].shape), COLUMNS[name].dtype) for name in self.present}

    def digests(self) -> dict[str, str]:
        """Digests of the lists of names, such as `label_names_sha256`: they decide what the numbers mean."""
        lists = ((NAMES[name], self.names_of(name)) for name in self.present if name in NAMES)
        return {f"{listed}_sha256": sha256_of_lines(list(names)) for listed, names in lists}

    def signed(self) -> dict[str, str]:
        """What a signature says of the names: the same numbers must mean the same wherever a model has learned them."""
        return {name.removesuffix("_sha256"): digest[:8] for name, digest in self.digests().items()}

    def described(self) -> dict[str, object]:
        """What the plan and `meta.json` say about them; nothing where there are none."""
        return {"columns": list(self.present), **self.digests()} if self.present else {}

    def files(self) -> dict[str, Sequence[str]]:
        """The lists of names as files: name -> lines."""
        return {f"{NAMES[name]}.txt": self.names_of(name) for name in self.present if name in NAMES}

    def check(self) -> None:
        """Refuse what is no description of columns.

        Raises:
            InputError: an unknown column, labels without names, names without labels, or names that are no lines.
        """
        unknown = [name for name in self.present if name not in COLUMNS]
        if unknown or list(self.present) != [name for name in COLUMNS if name in self.present]:
            raise InputError(
                f"columns should be some of {', '.join(COLUMNS)}, each once and in this order, but are "
                f"{', '.join(map(str, self.present))}."
            )
        for column, listed in NAMES.items():
            names = self.names_of(column)
            if column in self.present and not names:
                raise InputError(f"{column} are numbers of names, but there are no names. Give one a line.", listed)
            if names and column not in self.present:
                raise InputError(f"names are what {column} stand for, but there are no {column}.", column)
            bad = next((name for name in names if not name.strip() or "\n" in name or "\r" in name), None)
            if bad is not None:
                place = list(names).index(bad)
                raise InputError(f"names of {column} should be one a line, but number {place} is {bad!r}.", listed)


NO_COLUMNS = Columns()


def unfit(column: str, values: np.ndarray, names: int) -> np.ndarray:
    """Which regions have values that their column can't have.

    Args:
        names: how many there are for its numbers; ignored for boxes and scores.

    Shapes:
        values: (..., 4) for boxes, else (...,)
        returns: (...) bool

    >>> unfit("boxes", np.array([[0, 0, 1, 1], [0.5, 0, 0.4, 1], [0, 0, 1.5, 1], [0, float("nan"), 1, 1]]), 0).tolist()
    [False, True, True, True]
    >>> unfit("labels", np.array([-2, -1, 0, 2, 3]), 3).tolist()
    [True, False, False, False, True]
    """
    if column == "boxes":
        x0, y0, x1, y1 = np.moveaxis(np.asarray(values, COLUMNS[column].dtype), -1, 0)
        fits = (x0 >= 0) & (y0 >= 0) & (x1 >= x0) & (y1 >= y0) & (x1 <= 1) & (y1 <= 1)
        return ~fits  # not written the other way round: every comparison with NaN is false
    if column in NAMES:
        return (values < NO_LABEL) | (values >= names)
    with np.errstate(over="ignore", invalid="ignore"):
        return ~np.isfinite(np.asarray(values, COLUMNS[column].dtype))


def expected(column: str, names: int) -> str:
    """What every value of a column has to be, for a message."""
    if column == "boxes":
        return "x0 y0 x1 y1 in 0..1 with x0 <= x1 and y0 <= y1"
    if column in NAMES:
        return f"{NO_LABEL} for none, or 0 to {names - 1}, a line of {NAMES[column]}.txt counted from 0"
    return "finite numbers that float16 can hold"


def check_values(
    columns: Mapping[str, np.ndarray], described: Columns, present: np.ndarray, keys: Sequence[str], first_row: int
) -> None:
    """Refuse what a column can't hold. What it holds for absent regions isn't looked at.

    Args:
        columns: name -> values, of any type that fits.
        described: with the names that there are for labels and attributes.
        keys: of these images.
        first_row: of these images in the store, for the message.

    Shapes:
        columns: (images, R, 4) for boxes, else (images, R);  present: (images, R) bool

    Raises:
        InputError: the first column of another shape or type, or the first region with such a value, with its row and
            key.
    """
    for name, values in columns.items():
        shape, count = (*present.shape, *COLUMNS[name].shape), len(described.names_of(name))
        kind, kinds = ("whole numbers", "iu") if name in NAMES else ("numbers", "iuf")
        if values.shape != shape or values.dtype.kind not in kinds:
            raise InputError(
                f"{name} should be {kind} of shape {shape}, but are {values.dtype} of {values.shape}.", name
            )
        bad = unfit(name, values, count) & present
        if bad.any():
            row, region = (int(place) for place in np.argwhere(bad)[0])
            found = " ".join(f"{number:.6g}" for number in values[row, region].reshape(-1).tolist())
            raise InputError(
                f"{name} should be {expected(name, count)}, but row {first_row + row} ({keys[row]}), region {region}, "
                f"has {found}. {int(bad.any(axis=1).sum())} such images among these {len(bad)}.",
                name,
            )


def clear_absent(columns: Mapping[str, np.ndarray], present: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns as a store has them: in their types, and with nothing said of absent regions.

    Shapes:
        columns: (images, R, ...);  present: (images, R) bool
        returns: copies; (images, R) bool, absent regions that had something said of them: neither 0, -1 nor NaN
    """
    cleared, said = {}, np.zeros(present.shape, dtype=bool)
    for name, values in columns.items():
        entries = values.reshape(*present.shape, -1)
        said |= ((entries != 0) & (entries != NO_LABEL) & (entries == entries)).any(axis=-1)
        with np.errstate(over="ignore", invalid="ignore"):  # of absent regions; the others were checked
            cleared[name] = values.astype(COLUMNS[name].dtype)
        cleared[name][~present] = COLUMNS[name].absent
    return cleared, said & ~present
