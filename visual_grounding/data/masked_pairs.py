"""Sentences and tags with masks in them, beside their own or other images: batches of VLP's pre-training."""

from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from torch import Tensor

from ..modules.masking import LEFT, MASK_ALONE, draw_fates, generator_of, mask_words
from ..modules.vision_language_losses import UNKNOWN_PAIR
from .complete_batches import CompleteBatches
from .paired_images import OwnOrOtherImages

WORDS, TAGS = 1, 2  # what random numbers are drawn for; 0 is `paired_images.IMAGES`


class MaskedPairs(CompleteBatches):
    """Masks words and tags of a dataset with images, and says which images are a sentence's own.

    Masks depend on seed, epoch and item alone, whatever else is in the batch; in validation not on the epoch.

    Batch keys, beside those of the dataset:
        target: (B, T) words that a mask hides, padding elsewhere
        tag_target: (B, G) likewise of tags; only where there are tags
        paired: (B,) 1 for a sentence's own images, 0 for others, `UNKNOWN_PAIR` where there is none to be seen

    Args:
        dataset: whose batches have `net_input["visual"]`.
        dictionary: of words and tags; its mask is `<mask>`.
        mask: its number.
        choice: the images of the batches.
        probability: p, that a word or a tag is masked.
        seed: of the draws.
        fixed: the same in every epoch, for validation.
    """

    def __init__(
        self,
        dataset: FairseqDataset,
        dictionary: Dictionary,
        mask: int,
        choice: OwnOrOtherImages,
        probability: float,
        seed: int,
        fixed: bool,
    ) -> None:
        super().__init__(dataset)
        self.pad, self.eos = dictionary.pad(), dictionary.eos()
        self.mask = mask
        self.choice = choice
        self.probability = probability
        self.seed = seed
        self.fixed = fixed
        self.epoch = 1

    def set_epoch(self, epoch: int) -> None:
        """fairseq says which epoch begins."""
        super().set_epoch(epoch)
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """False where masks change: fairseq would keep the workers, which don't hear that another epoch begins."""
        return self.fixed and super().can_reuse_epoch_itr_across_epochs

    def collater(self, samples: list[Any], **kwargs: Any) -> dict[str, Any]:
        """Collate, then mask."""
        batch = super().collater(samples, **kwargs)
        if not batch:
            return batch
        places, net_input = batch["id"].numpy(), batch["net_input"]
        net_input["src_tokens"], batch["target"] = self._masked(net_input["src_tokens"], places, WORDS)
        visual = net_input["visual"]
        if "tags" in visual:
            visual["tags"], batch["tag_target"] = self._masked(visual["tags"], places, TAGS)
        paired = torch.from_numpy(self.choice.paired(places, self.epoch)).long()
        batch["paired"] = paired.masked_fill(visual["padding_mask"].flatten(1).all(dim=1), UNKNOWN_PAIR)
        return batch

    def _masked(self, tokens: Tensor, places: np.ndarray, purpose: int) -> tuple[Tensor, Tensor]:
        """Rows with masks, and what they hide.

        Shapes:
            tokens: (B, T);  places: (B,)
            returns: (B, T);  (B, T), padding where nothing is hidden
        """
        shown = tokens.numpy().copy()
        hidden = np.full_like(shown, self.pad)
        for row, place in enumerate(places.tolist()):
            there = np.flatnonzero(shown[row] != self.pad)
            words = shown[row, there]  # without padding, so that the draws are the same in any batch
            rng = generator_of(self.seed, 0 if self.fixed else self.epoch, place, purpose)
            fates = draw_fates(words != self.eos, self.probability, MASK_ALONE, rng)
            hidden[row, there] = np.where(fates == LEFT, self.pad, words)
            shown[row, there] = mask_words(words, fates, self.mask, range(self.mask, self.mask + 1), rng)
        return torch.from_numpy(shown), torch.from_numpy(hidden)
