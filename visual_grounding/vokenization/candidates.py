"""The images that a token may get: all of an index or a feature store, some of them, or those of a list.

A voken is a number among the candidates, 0 to V − 1, so that a language model's softmax has no more rows than there are
candidates; `keys.txt` says which image each number is.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..features.store import FeatureStore
from ..modules.masking import generator_of
from ..retrieval.exclusion import Collection, rows_of_keys
from ..retrieval.image_ids import NO_IMAGE
from ..storage.lines import read_lines

_BLOCK = 4096  # images at a time


class Candidates(NamedTuple):
    """Images of a collection, by the number that their voken has.

    Shapes:
        rows: (V,) int64, rows of the collection, ascending, but for a list in its order
    """

    rows: np.ndarray
    keys: list[str]

    @property
    def sha256(self) -> str:
        """Digest of the keys, as of the file of them."""
        return hashlib.sha256("".join(f"{key}\n" for key in self.keys).encode()).hexdigest()


def present_images(store: FeatureStore) -> np.ndarray:
    """Which images of a store have a feature that isn't zero, read block by block.

    Shapes:
        returns: (I,) bool

    Raises:
        InputError: as `FeatureStore.gather`.
    """
    parts = [np.arange(at, min(at + _BLOCK, len(store))) for at in range(0, len(store), _BLOCK)]
    return np.concatenate([np.zeros(0, bool), *(~store.gather(rows)[1].all(axis=-1) for rows in parts)])


def choose_candidates(
    collection: Collection,
    present: np.ndarray,
    count: int | None = None,
    seed: int | None = None,
    listed: Path | None = None,
) -> Candidates:
    """Choose among the images of a collection; absent ones never are.

    Args:
        collection: an index or a feature store.
        present: which of its images are there.
        count: how many (default: all); the first in its order, as in the paper's code.
        seed: draw them at random instead, the same ones for the same seed.
        listed: a file with one key a line, in place of both.

    Shapes:
        present: (I,) bool

    Raises:
        InputError: there aren't so many, a listed image isn't there or is listed twice, or the choices exclude
            each other.
    """
    if listed is not None and (count is not None or seed is not None):
        raise InputError("candidates are either listed or counted, but both were asked for.", "candidate_list")
    if seed is not None and count is None:
        raise InputError("a seed draws some of the candidates, so it should come with how many.", "candidates")
    if listed is not None:
        rows = _listed_rows(collection, present, listed)
    else:
        rows = np.flatnonzero(present)
        count = len(rows) if count is None else count
        if not 1 <= count <= len(rows):
            raise InputError(
                f"there should be 1 to {len(rows)} candidates, the images of {collection.folder} that are there, but "
                f"{count} were asked for.",
                "candidates",
            )
        rows = rows[:count] if seed is None else np.sort(generator_of(seed).choice(rows, count, replace=False))
    keys = np.array(list(collection.keys()), dtype=object)
    return Candidates(rows.astype(np.int64), keys[rows].tolist())


def _listed_rows(collection: Collection, present: np.ndarray, path: Path) -> np.ndarray:
    keys = [line for line in read_lines(path) if line]
    rows = rows_of_keys(collection, keys)
    missing = [key for key, row in zip(keys, rows) if row == NO_IMAGE or not present[row]]
    if missing or not keys:
        raise InputError(
            f"{path} should list images of {collection.folder}, but {len(missing)} of its {len(keys)} aren't there"
            + (f", the first {missing[0]!r}." if missing else "."),
            "candidate_list",
        )
    if len(set(keys)) < len(keys):
        twice = next(key for key, count in Counter(keys).items() if count > 1)
        raise InputError(f"{path} should list each image once, but has {twice!r} twice.", "candidate_list")
    return rows
