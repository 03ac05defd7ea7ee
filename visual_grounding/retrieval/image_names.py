"""Which images were found for one sentence, as a person reads it: `key:score key:score …`, whatever found them."""

import numpy as np

from ..storage.artefact import check_keys_sha256
from ..text.line_index import LineIndex
from .exclusion import Collection
from .image_ids import NO_IMAGE


class ImageNames:
    """Keys of a collection's rows; other processes may have copies.

    Raises:
        InputError: the key list can't be read, or isn't what it was when the collection was made.
    """

    def __init__(self, collection: Collection) -> None:
        self._keys = LineIndex(collection.folder / "keys.txt")
        check_keys_sha256(self._keys.path, self._keys.sha256, collection.keys_sha256)

    def describe(self, ids: np.ndarray, scores: np.ndarray) -> list[str]:
        """`key:score` of each image that was found for one sentence.

        Shapes:
            ids, scores: (N,)
        """
        return [f"{self._keys[row]}:{score:.4f}" for row, score in zip(ids.tolist(), scores) if row != NO_IMAGE]
