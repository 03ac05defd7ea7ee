"""Translation with images beside the source: `--task grounded_translation`.

fairseq's translation task, whose batches carry `net_input["visual"]` when `--image-features` names a feature store.
Without it nothing is added, so `--arch transformer` is the text-only twin on the same data.
"""

import logging
import os
from dataclasses import dataclass
from inspect import signature
from typing import Any

from fairseq import utils
from fairseq.data import ConcatDataset, Dictionary
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ..data.complete_batches import CompleteBatches
from ..data.visual_context import VisualContextConfig, add_visual_context
from ..errors import InputError
from ..features.store import FeatureStore

logger = logging.getLogger(__name__)


@dataclass
class GroundedTranslationConfig(VisualContextConfig, TranslationConfig):
    """Flags of the translation task and of its images."""


@register_task("grounded_translation", dataclass=GroundedTranslationConfig)
class GroundedTranslationTask(TranslationTask):
    """Translate sentences that have images beside them.

    Attributes:
        image_feature_size: F of the feature store, 0 without one; a model may ask for it.

    Raises:
        InputError: only one of `--image-features` and `--image-ids`, or the two don't belong together.
    """

    cfg: GroundedTranslationConfig

    def __init__(self, cfg: GroundedTranslationConfig, src_dict: Dictionary, tgt_dict: Dictionary) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        if bool(cfg.image_features) != bool(cfg.image_ids):
            given, missing = (
                ("--image-features", "--image-ids") if cfg.image_features else ("--image-ids", "--image-features")
            )
            raise InputError(f"{given} and {missing} belong together, but {missing} isn't given.")
        texts, tables = utils.split_paths(cfg.data), utils.split_paths(cfg.image_ids or "")
        if cfg.image_ids and len(tables) != len(texts):
            raise InputError(
                f"--image-ids should name as many folders as there are of text ({len(texts)}: {cfg.data}), but names "
                f"{len(tables)}: {cfg.image_ids}."
            )
        self.image_store = FeatureStore(cfg.image_features) if cfg.image_features else None
        self._said_blind = False

    @property
    def image_feature_size(self) -> int:
        """F of the feature store, 0 without one."""
        return self.image_store.feature_size if self.image_store is not None else 0

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: there are images, but the model takes text alone.
        """
        model = super().build_model(cfg, from_checkpoint)
        if self.image_store is not None and "visual" not in signature(model.forward).parameters:
            raise InputError(
                f"--image-features and --image-ids are for a model that looks at images, but {type(model).__name__} "
                "(--arch transformer and the like) takes text alone. Leave both flags out for the text-only twin, or "
                "choose an architecture with images, such as --arch visual_aware_transformer."
            )
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the text of a split, and put the images of `--image-ids DIR/<split>` beside it.

        Raises:
            InputError: there is no such split, or text, ids and store don't belong together.
        """
        try:
            super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        except FileNotFoundError as error:
            raise InputError(
                f"{self.cfg.data} should hold binarised text of the split {split!r}, as fairseq-preprocess writes it, "
                f"but there is none for {self.cfg.source_lang}-{self.cfg.target_lang}."
            ) from error
        dataset = self.datasets[split]
        if self.image_store is None:
            self.datasets[split] = CompleteBatches(dataset)
            return
        roots = utils.split_paths(self.cfg.image_ids)
        # As the text: the training set may come in several folders, one an epoch; the others use the first.
        root = roots[(epoch - 1) % len(roots)] if split == self.cfg.train_subset else roots[0]
        parts = len(dataset.src.datasets) if isinstance(dataset.src, ConcatDataset) else 1  # train, train1, train2 …
        if parts > 1 and self.cfg.upsample_primary != 1:
            raise InputError("--upsample-primary must be 1 with --image-features: repeated rows have no image ids.")
        folders = [os.path.join(root, split + (str(part) if part else "")) for part in range(parts)]
        text = f"{split}.{self.cfg.source_lang}-{self.cfg.target_lang}"
        self.datasets[split] = add_visual_context(dataset, self.cfg, self.image_store, folders, text)

    def build_dataset_for_inference(self, src_tokens: list, src_lengths: list, constraints: Any = None) -> Any:
        """Typed sentences have no images: the model translates them from text alone."""
        if not self._said_blind:
            logger.warning(
                "sentences given to fairseq-interactive have no images; they are translated from text alone."
            )
            self._said_blind = True
        return super().build_dataset_for_inference(src_tokens, src_lengths, constraints)
