"""Text batches with images beside them: the one place where a fairseq dataset meets a feature store."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from ..features.pixels import PixelSource
from ..retrieval.finder import Finder
from ..retrieval.image_ids import NO_IMAGE
from ..storage.artefact import check_array_whole
from .changing_batches import ChangingBatches
from .image_tags import ImageTags


class ImageChoice(Protocol):
    """Which images go with the items of a batch. It is asked in the data loader's worker.

    Attributes:
        changes: whether an item may get other images in another epoch.
    """

    changes: bool

    def rows(self, places: np.ndarray, samples: list[Any], epoch: int) -> np.ndarray:
        """Rows of a store.

        Args:
            places: (B,) the dataset index of each row of the batch.
            samples: the items of the batch, in the order in which the dataset gave them: not that of `places`.
            epoch: counted from 1.

        Shapes:
            returns: (B, N), −1 = none
        """


class TabledImages:
    """Images that are known beforehand: a table of image ids, the same in every epoch.

    Args:
        ids: (S, N), row s for item s; −1 = none.
    """

    changes = False

    def __init__(self, ids: np.ndarray) -> None:
        self.ids = ids

    def rows(self, places: np.ndarray, samples: list[Any], epoch: int) -> np.ndarray:
        """Rows of the table.

        Shapes:
            places: (B,)
            returns: (B, N)

        Raises:
            InputError: the table was cut short since it was opened.
        """
        check_array_whole(self.ids)
        return np.asarray(self.ids[places])


class FoundImages:
    """Images that a finder finds for the text of each item as it is now: masked anew in every epoch, for instance.

    Args:
        finder: what finds them; copied into each worker.
        line_of: the text of an item, as the finder reads it; items have their dataset index as `sample["id"]`.
        excluded: (S,) for each item the row that it must not get, −1 for none.
        count: N, the best of those that are found; None for all.
        others: of each item the one for whose text its images are found instead, as that is now; None for its own.

    Shapes:
        others: (S,), and the items
    """

    changes = True

    def __init__(
        self,
        finder: Finder,
        line_of: Callable[[Any], str],
        excluded: np.ndarray | None = None,
        count: int | None = None,
        others: tuple[np.ndarray, Any] | None = None,
    ) -> None:
        self.others = others
        self.finder = finder
        self.line_of = line_of
        self.excluded = excluded
        self.count = count

    def rows(self, places: np.ndarray, samples: list[Any], epoch: int) -> np.ndarray:
        """What is found for the items of the batch, in the order of `places`.

        Shapes:
            places: (B,)
            returns: (B, N)
        """
        excluded = None if self.excluded is None else self.excluded[places]  # of those who get them, whoever asks
        if self.others is None:
            items = {int(sample["id"]): sample for sample in samples}
        else:
            partners, dataset = self.others
            places = partners[places]
            items = {place: dataset[place] for place in places.tolist()}
        return self.finder.find([self.line_of(items[place]) for place in places.tolist()], excluded).ids[
            :, : self.count
        ]


class VisualContextDataset(ChangingBatches):
    """Adds `net_input["visual"]` to every batch of a text dataset.

    Only the rows of a batch are read, when it is collated, so the cost doesn't grow with the collection.

    Batch keys (see the letters in `visual_grounding`):
        features: (B, N, R, F) float16; or from a `PixelSource`, with R = 1, pixels: (B, N, H, W, 3) uint8
        padding_mask: (B, N, R) bool, True = absent
        boxes (B, N, R, 4), labels, attributes, scores (B, N, R): those that the store has
        tags: (B, G) int64, the labels of regions as words of the source dictionary, padded, with `--image-tags`

    Args:
        dataset: any fairseq dataset whose batches have `id` (the dataset index of each row) and `net_input`.
        store: the images: a `FeatureStore`, or a `PixelSource` with the pictures themselves.
        choice: which of them go with each item.
        framing_seed: of the random parts of pictures that are shown, new ones every epoch; None for the whole picture.
        tags: what writes labels as words; None for none.

    Raises:
        InputError: when a batch needs a row outside the store, or finds NaN in it.
    """

    def __init__(
        self,
        dataset: FairseqDataset,
        store: Any,
        choice: ImageChoice,
        framing_seed: int | None = None,
        tags: ImageTags | None = None,
    ) -> None:
        super().__init__(dataset)
        self.store = store
        self.choice = choice
        self.framing_seed = framing_seed
        self.tags = tags

    @property
    def changes(self) -> bool:
        """Whether an item may have other images, or other parts of them, in another epoch."""
        return self.choice.changes or self.framing_seed is not None

    def collater(self, samples: list[Any], **kwargs: Any) -> dict[str, Any]:
        """Collate the text, then look up the images in the order that its collater chose."""
        batch = self.dataset.collater(samples, **kwargs)
        if batch:
            places = batch["id"].numpy()
            batch["net_input"]["visual"] = self._visual(places, self.choice.rows(places, samples, self.epoch))
        return batch

    def _visual(self, places: np.ndarray, rows: np.ndarray) -> dict[str, Tensor]:
        """The images of a batch.

        Shapes:
            places: (B,);  rows: (B, N)
            returns: as the class's batch keys
        """
        if isinstance(self.store, PixelSource):
            return self._pixels(self.store, places, rows)
        features, padding_mask = self.store.gather(rows)
        arrays = {"features": features, "padding_mask": padding_mask, **self.store.gather_columns(rows)}
        visual = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if self.tags is not None:
            visual["tags"] = self.tags.write(arrays["labels"], arrays["scores"])
        return visual

    def _pixels(self, source: PixelSource, places: np.ndarray, rows: np.ndarray) -> dict[str, Tensor]:
        """Pictures of a batch, framed by a seed of their own, so alike in any batch.

        Shapes:
            places: (B,);  rows: (B, N)
            returns: pixels (B, N, H, W, 3), padding_mask (B, N, 1)
        """
        sentence, number = np.nonzero(rows != NO_IMAGE)  # (P,) each: the pictures that are there
        draws = None
        if self.framing_seed is not None:
            places = places[sentence]
            # A sentence's first picture is framed as where it has one alone.
            seeds = [[self.framing_seed, self.epoch, place, *([n] if n else [])] for place, n in zip(places, number)]
            draws = [np.random.default_rng(seed) for seed in seeds]
        found, absent = source.gather(rows[sentence, number], draws)  # (P, H, W, 3), (P, 1)
        pixels = np.zeros((*rows.shape, *found.shape[1:]), dtype=np.uint8)
        padding_mask = np.ones((*rows.shape, 1), dtype=bool)
        pixels[sentence, number], padding_mask[sentence, number] = found, absent
        return {"pixels": torch.from_numpy(pixels), "padding_mask": torch.from_numpy(padding_mask)}
