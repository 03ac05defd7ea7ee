"""The image that a sentence must not find, its own say: from keys to rows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import numpy as np

from ..errors import InputError
from .image_ids import NO_IMAGE


class Collection(Protocol):
    """What has image keys: an index or a feature store.

    Attributes:
        folder: where it lies.
        keys_sha256: digest of its keys.
    """

    folder: Path
    keys_sha256: str

    def __len__(self) -> int:
        """I, how many images there are."""

    def keys(self) -> Iterable[str]:
        """Image keys in row order."""


def rows_of_keys(collection: Collection, keys: list[str]) -> np.ndarray:
    """Row of each key in a collection, −1 for a key that isn't there.

    Shapes:
        returns: (S,) int64
    """
    wanted = set(keys)
    rows = {key: row for row, key in enumerate(collection.keys()) if key in wanted}
    return np.array([rows.get(key, NO_IMAGE) for key in keys], dtype=np.int64)


def rows_to_exclude(collection: Collection, keys: list[str], sentences: int) -> np.ndarray:
    """`rows_of_keys`, if the keys can be meant for these sentences and this collection.

    Shapes:
        returns: (S,) int64

    Raises:
        InputError: not one key a sentence, or none is the collection's.
    """
    if len(keys) != sentences:
        raise InputError(
            f"the images to exclude should be one key for each of the {sentences} sentences, but there are "
            f"{len(keys)} lines.",
            "exclude_paired",
        )
    rows = rows_of_keys(collection, keys)
    if any(keys) and (rows == NO_IMAGE).all():
        raise InputError(
            f"the images to exclude should be keys of the collection, but it has none of them, such as "
            f"{next(key for key in keys if key)!r}; the collection's are like {next(iter(collection.keys()), '')!r}.",
            "exclude_paired",
        )
    return rows
