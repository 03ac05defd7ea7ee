"""A sentence's own images or those of another one: what paired image prediction asks for (VLP §3.2)."""

import logging
from typing import Any

import numpy as np

from ..errors import InputError
from ..modules.masking import generator_of
from ..shares import warn_of
from ..storage.artefact import check_array_whole
from .image_order import share_images

logger = logging.getLogger(__name__)

IMAGES = 0  # what random numbers are drawn for: images here, words and tags in `masked_pairs.py`
_LOOKED_AT = 200  # items, to say how many can't get others
_TRIES = 50  # draws of another sentence's images, before all are tried in order


class OwnOrOtherImages:
    """Every second item, by chance, gets other images than its own, drawn from those of the split.

    Those of another item are drawn as one, each choice of images equally likely however many sentences have it; none
    is the item's own. An item without images gets none. What it draws depends on seed, epoch and item alone.

    Args:
        ids: (S, N), row s for item s; −1 = none.
        seed: of the draws.
        fixed: the same in every epoch, for validation.
        place: what the items are, for messages.

    Attributes:
        changes: whether an item may get other images in another epoch.

    Raises:
        InputError: there are images, but all items have the same.
    """

    def __init__(self, ids: np.ndarray, seed: int, fixed: bool, place: str) -> None:
        self.ids = ids
        self.seed = seed
        self.changes = not fixed
        seen = np.unique(ids[(ids >= 0).any(axis=1)], axis=0)  # (K, N)
        self._choices = seen
        if len(seen) == 1:
            raise InputError(
                f"paired image prediction takes the images of other sentences, but all of {place} have the same. Give "
                "image ids of a larger collection."
            )
        looked_at = np.flatnonzero((ids >= 0).any(axis=1))
        looked_at = looked_at[:: -(-len(looked_at) // _LOOKED_AT) or 1]
        alone = sum(self._others(ids[item]) is None for item in looked_at.tolist())
        for said in warn_of(alone, len(looked_at), "share an image with all others, and always keep their own."):
            logger.warning(f"{place}, by a sample: {said} Paired image prediction learns nothing from these.")

    def rows(self, places: np.ndarray, samples: list[Any], epoch: int) -> np.ndarray:
        """Rows of the store.

        Shapes:
            places: (B,)
            returns: (B, N)
        """
        check_array_whole(self.ids)
        return np.stack([self._draw(place, epoch)[0] for place in places.tolist()])

    def paired(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Whether items have their own images.

        Shapes:
            places: (B,)
            returns: (B,) bool
        """
        check_array_whole(self.ids)
        return np.array([self._draw(place, epoch)[1] for place in places.tolist()], dtype=bool)

    def _draw(self, place: int, epoch: int) -> tuple[np.ndarray, bool]:
        """Images (N,) of an item, and whether they are its own."""
        own = self.ids[place]
        rng = generator_of(self.seed, epoch if self.changes else 0, place, IMAGES)
        if rng.random() < 0.5 or not (own >= 0).any():
            return own, True
        others = self._others(own, rng)
        return (own, True) if others is None else (others, False)  # who shares an image with all others keeps its own

    def _others(self, own: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray | None:
        """Images (N,) of another item, drawn from those that share none with these (N,); None where all do."""
        rng = rng or np.random.default_rng(0)
        for number in rng.integers(len(self._choices), size=_TRIES).tolist():
            if not share_images(own, self._choices[[number]])[0]:
                return self._choices[number]
        others = np.flatnonzero(~share_images(own, self._choices))
        return self._choices[rng.choice(others)] if len(others) else None
