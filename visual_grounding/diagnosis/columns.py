"""What a store says of regions beside their features: values that columns can have, and nothing of absent regions."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np

from ..errors import InputError
from ..features.columns import COLUMNS, expected, unfit
from ..features.store import AGAIN, FeatureStore
from .findings import Finding, note, wrong


def check_columns(store: FeatureStore, blocks: Iterable[tuple[int, int]], share: str) -> Iterator[Finding]:
    """Compare columns with what they may hold, and with where features are, block by block.

    Args:
        blocks: first row and number of rows of each.
        share: how many of all rows these are, for a message.
    """
    names = {"labels": len(store.label_names), "attributes": len(store.attribute_names)}
    broken = {name: _Culprits(store) for name in store.columns}
    leftover = {name: _Culprits(store) for name in store.columns}
    empty = 0
    for start, count in blocks if store.columns else ():
        rows = slice(start, start + count)
        present = np.asarray(store.features[rows]).any(axis=2)  # (rows, R)
        for name in store.columns:
            values = np.asarray(store.column(name)[rows])
            broken[name].add(start, unfit(name, values, names.get(name, 0)) & present)
            entries = values.reshape(*present.shape, -1)
            leftover[name].add(start, (entries != COLUMNS[name].absent).any(axis=2) & ~present)
            if name == "boxes":
                x0, y0, x1, y1 = np.moveaxis(values, -1, 0)
                empty += int((((x0 == x1) | (y0 == y1)) & present).sum())
    for name in store.columns:
        place = store.folder / f"{name}.npy"
        if broken[name].count:
            yield wrong(
                f"{place} should hold {expected(name, names.get(name, 0))}, but {broken[name]} hold something else; "
                f"{share} were scanned. {AGAIN}"
            )
        if leftover[name].count:
            yield wrong(
                f"{place} should say nothing of absent regions, whose features are all zero, but {leftover[name]} have "
                f"something there; {share} were scanned. {AGAIN}"
            )
    if empty:
        yield note(
            f"{store.folder / 'boxes.npy'}: {empty} boxes of regions with features are empty; {share} were scanned."
        )


class _Culprits:
    """How many images, and the first of them."""

    def __init__(self, store: FeatureStore) -> None:
        self.count, self._first, self._store = 0, 0, store

    def add(self, start: int, found: np.ndarray) -> None:
        """Count the images of a block, whose first row is `start`, that have a region with a fault.

        Shapes:
            found: (images, R), True = faulty
        """
        rows = np.flatnonzero(found.any(axis=1))
        if len(rows) and not self.count:
            self._first = start + int(rows[0])
        self.count += len(rows)

    def __str__(self) -> str:
        name = f"row {self._first}"
        with suppress(InputError):  # its keys are broken, too
            name += f" ({self._store.key(self._first)})"
        return f"{self.count} images, such as {name},"
