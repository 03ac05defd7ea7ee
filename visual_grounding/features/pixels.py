"""Pictures as a network's input, batch by batch: what a feature store is to features, without a store."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..images.sources import ImageSource, UnreadableImage, read_image
from ..storage.lines import sha256_of_lines

_IMAGES = "images "  # what a signature begins with; a feature store's begins with what made it, and a bar


def is_of_pixels(signature: str) -> bool:
    """Whether a signature is of a `PixelSource`, not of a feature store."""
    return signature.startswith(_IMAGES)


class PixelSource:
    """Images of a source, read and framed when they are asked for; whatever can't be read is absent.

    It answers like `FeatureStore`, so captions and an index are made from either.

    Args:
        images: where they lie.
        preprocessing: of the network that will see them.
        folder: what a message calls them.
        threads: that read and decode; a data loader's worker is enough by itself.

    Attributes:
        keys_sha256: the collection; equal to that of a feature store of the same images.
        digest: of the files' names and sizes and of the preprocessing.
        signature: for an index.
        unreadable: rows that couldn't be read so far, and why.
    """

    def __init__(self, images: ImageSource, preprocessing: Any, folder: str, threads: int = 1) -> None:
        self.images = images
        self.preprocessing = preprocessing
        self.folder = folder
        self.threads = threads
        self.unreadable: dict[int, str] = {}
        self.keys_sha256 = sha256_of_lines(list(images.keys))
        self.signature = f"{_IMAGES}{images.digest[:8]}, {preprocessing.describe()}"
        self.digest = hashlib.sha256(f"{images.digest} {preprocessing.describe()}".encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.images.keys)

    def keys(self) -> Iterator[str]:
        """Image keys in row order."""
        return iter(self.images.keys)

    def rows_of(self, wanted: Iterable[str]) -> dict[str, int]:
        """Rows of the wanted keys; a key that the source doesn't have is left out."""
        wanted = set(wanted)
        return {key: row for row, key in enumerate(self.images.keys) if key in wanted}

    def gather(
        self, rows: np.ndarray, draws: Sequence[np.random.Generator] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Read images; with `draws` each is framed at random by its own generator, else as its network prescribes.

        Shapes:
            rows: (B,)
            returns: pixels (B, crop, crop, 3) uint8, zero where absent; padding mask (B, 1), True where absent
        """
        side = self.preprocessing.crop
        pixels = np.zeros((len(rows), side, side, 3), dtype=np.uint8)
        mask = np.ones((len(rows), 1), dtype=bool)

        if draws is not None:
            from .augmentation import augment  # imports torchvision, which features don't need

        def load(place: int) -> None:
            try:
                image = read_image(self.images, int(rows[place]))
                if draws is None:
                    pixels[place] = self.preprocessing.pixels(image)
                else:
                    pixels[place] = augment(image, side, self.preprocessing.interpolation, draws[place])
            except UnreadableImage as reason:
                self.unreadable[int(rows[place])] = str(reason)
                return
            mask[place] = False

        if self.threads == 1:
            for place in range(len(rows)):
                load(place)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(load, range(len(rows))))
        return pixels, mask
