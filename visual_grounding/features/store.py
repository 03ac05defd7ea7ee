"""The feature store: every image of a collection as one row of a memory-mapped array.

Nothing here reads a whole store: opening costs the same for ten images and for ten million.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..storage.artefact import check_whole, open_array, read_keys, read_meta

FEATURE_STORE = "feature-store"


class FeatureStore:
    """Features of I images, R regions each, F numbers a region.

    A region whose features are all zero is absent: so an unreadable image, or a detector that found fewer than R
    regions, needs no second file.

    Attributes:
        features: (I, R, F) float16, memory-mapped.
        keys_sha256: digest of `keys.txt`: the identity of the collection.
        signature: how the features were made (`storage/signature.py` explains the three identities).
        plan: every choice and input that decided its bytes, such as `weights` and `pool`; empty where nothing says.
        digest: of the plan: other features of the same images differ in it.

    Raises:
        InputError: the folder isn't a whole feature store.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        counts = {"images": int, "regions": int, "size": int}
        meta = read_meta(self.folder, FEATURE_STORE, **counts, keys_sha256=str, signature=str)
        self.signature: str = meta["signature"]
        self.keys_sha256: str = meta["keys_sha256"]
        self.plan: dict[str, Any] = meta.get("plan", {})
        self.digest: str = hashlib.sha256(json.dumps(self.plan, sort_keys=True).encode()).hexdigest()
        self.features = open_array(
            self.folder / "features.npy", (meta["images"], meta["regions"], meta["size"]), "float16"
        )

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder}  # numpy would pickle a memory-mapped array by value

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["folder"])  # type: ignore[misc]

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def num_regions(self) -> int:
        """R, regions per image."""
        return self.features.shape[1]

    @property
    def feature_size(self) -> int:
        """F, numbers per region."""
        return self.features.shape[2]

    def gather(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Look images up.

        Shapes:
            ids: (...,) integers, −1 for no image.
            returns: features (..., R, F) float16, zero where absent; padding mask (..., R) bool, True where absent.

        Raises:
            InputError: a row outside the store, a feature that is NaN or infinite, or a file cut short meanwhile.
        """
        check_whole(self.folder / "features.npy", self.features.nbytes)
        if ids.size and (ids.max() >= len(self) or ids.min() < -1):
            worst = int(ids.max() if ids.max() >= len(self) else ids.min())
            raise InputError(
                f"image ids refer to row {worst}, but {self.folder} has {len(self)} images (rows 0..{len(self) - 1})."
            )
        features = (
            self.features[np.maximum(ids, 0)]
            if len(self)
            else np.zeros((*ids.shape, *self.features.shape[1:]), "float16")
        )
        features[ids < 0] = 0
        # The sum is finite only where every number is; float32, because float16 would overflow.
        if not np.isfinite(features.sum(dtype=np.float32)):
            bad = ids[~np.isfinite(features.astype(np.float32).sum(axis=(-2, -1)))]
            if bad.size:
                row = int(bad.flat[0])
                raise InputError(
                    f"{self.folder}: the features of row {row} ({self.key(row)}) hold NaN or infinity; "
                    f"{bad.size} such images in this batch. Delete the store, and extract or import it again."
                )
        return features, ~features.any(axis=-1)

    def keys(self) -> Iterator[str]:
        """Image keys in row order, read from disk one by one.

        Raises:
            InputError: as `read_keys`.
        """
        return read_keys(self.folder / "keys.txt", len(self))

    def key(self, row: int) -> str:
        """The key of one row."""
        return next((key for number, key in enumerate(self.keys()) if number == row), "without a key")

    def rows_of(self, wanted: Iterable[str]) -> dict[str, int]:
        """Rows of the wanted keys; a key that the store doesn't have is left out."""
        wanted = set(wanted)
        return {key: row for row, key in enumerate(self.keys()) if key in wanted}
