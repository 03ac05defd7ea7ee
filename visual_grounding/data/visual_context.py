"""Text batches with images beside them: the one place where a fairseq dataset meets a feature store."""

import logging
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from ..errors import InputError
from ..features.store import FeatureStore
from ..retrieval.image_ids import ImageIds
from .complete_batches import CompleteBatches
from .image_order import IMAGE_ORDERS, arrange_images

logger = logging.getLogger(__name__)


@dataclass
class VisualContextConfig(FairseqDataclass):
    """The flags of every task that has images beside its text."""

    image_features: Optional[str] = field(
        default=None, metadata={"help": "feature store; without it the batches hold text alone"}
    )
    image_ids: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder with one table of image ids a split: DIR/<split>; as many, colon-separated, as data paths"
        },
    )
    images_per_sentence: int = field(
        default=0, metadata={"help": "use the best N of the retrieved images; 0 for all (8 with --retriever)"}
    )
    image_order: ChoiceEnum(IMAGE_ORDERS) = field(  # type: ignore[valid-type]
        default="congruent",
        metadata={"help": "give each sentence its own images, those of another sentence, or none"},
    )
    image_seed: int = field(default=1, metadata={"help": "seed of --image-order shuffled"})


class VisualContextDataset(CompleteBatches):
    """Adds `net_input["visual"]` to every batch of a text dataset.

    Only the rows of a batch are read, when it is collated, so the cost doesn't grow with the collection.

    Batch keys (see the letters in `visual_grounding`):
        features: (B, N, R, F) float16
        padding_mask: (B, N, R) bool, True = absent

    Args:
        dataset: any fairseq dataset whose batches have `id` (the dataset index of each row) and `net_input`.
        store: the images.
        ids: (S, N), row s for item s of `dataset`; −1 = none.

    Raises:
        InputError: when a batch needs a row outside the store, or finds NaN in it.
    """

    def __init__(self, dataset: FairseqDataset, store: FeatureStore, ids: np.ndarray) -> None:
        super().__init__(dataset)
        self.store = store
        self.ids = ids

    def collater(self, samples: list[Any], **kwargs: Any) -> dict[str, Any]:
        """Collate the text, then look up the images in the order that its collater chose."""
        batch = self.dataset.collater(samples, **kwargs)
        if batch:
            features, padding_mask = self.store.gather(np.asarray(self.ids[batch["id"].numpy()]))
            batch["net_input"]["visual"] = {
                "features": torch.from_numpy(features),
                "padding_mask": torch.from_numpy(padding_mask),
            }
        return batch


def load_image_ids(folders: list[str], images_per_sentence: int) -> tuple[np.ndarray, list[ImageIds]]:
    """Image ids of one split, or of several that are concatenated.

    Returns:
        ids: (S, N), the best N of each table (all for 0), and the tables.

    Raises:
        InputError: a table is missing or broken, or has fewer than N images a sentence.
    """
    if images_per_sentence < 0:
        raise InputError(f"--images-per-sentence should be 0 (all) or more, but is {images_per_sentence}.")
    tables = [ImageIds(folder) for folder in folders]
    wanted = images_per_sentence or min(table.ids.shape[1] for table in tables)
    for table in tables:
        if table.ids.shape[1] < wanted:
            raise InputError(
                f"--images-per-sentence is {wanted}, but {table.folder} has {table.ids.shape[1]} images a sentence. "
                f"Retrieve more with: visual-grounding retrieve … -n {wanted} --out {table.folder}"
            )
    blocks = [table.ids[:, :wanted] for table in tables]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks), tables


def add_visual_context(
    dataset: FairseqDataset, cfg: VisualContextConfig, store: FeatureStore, folders: list[str], text: str
) -> VisualContextDataset:
    """Put images beside a text dataset, after checking that the two belong together.

    Args:
        dataset: S sentences.
        cfg: the image flags.
        store: the images.
        folders: the tables of image ids of this split.
        text: what the sentences are, for messages.

    Raises:
        InputError: another number of sentences than ids, or ids of another collection.
    """
    ids, tables = load_image_ids(folders, cfg.images_per_sentence)
    for table in tables:
        table.check_against(store)
    if len(ids) != len(dataset):
        if len(tables) == 1:
            tables[0].check_lines(len(dataset), text)
        raise InputError(
            f"{text} has {len(dataset)} sentences, but image ids in {', '.join(folders)} have {len(ids)} rows."
        )
    ids = arrange_images(ids, str(cfg.image_order), cfg.image_seed)
    blind = int((ids < 0).all(axis=1).sum())
    if blind and cfg.image_order != "blank":
        logger.warning(
            f"{blind} of {len(ids)} sentences of {text} ({blind / len(ids):.1%}) have no image: text alone must do."
        )
    return VisualContextDataset(dataset, store, ids)
