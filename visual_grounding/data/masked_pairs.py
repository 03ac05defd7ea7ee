"""Sentences and tags with masks in them, beside their own or other images: batches of VLP's pre-training."""

from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from torch import Tensor

from ..modules.vision_language_losses import UNKNOWN_PAIR
from .changing_batches import ChangingBatches
from .paired_images import OwnOrOtherImages
from .region_masking import without_answers
from .word_masking import WordMasking

WORDS, TAGS = 1, 2  # what random numbers are drawn for; 0 is `paired_images.IMAGES`


class MaskedPairs(ChangingBatches):
    """Masks words and tags of a dataset with images, and says which images are a sentence's own.

    Batch keys, beside those of the dataset:
        target: (B, T) words that a mask hides, padding elsewhere
        tag_target: (B, G) likewise of tags; only where there are tags
        net_input["visual"]: without what would tell the tags (`without_answers`)
        paired: (B,) 1 for a sentence's own images, 0 for others, `UNKNOWN_PAIR` where there is none to be seen

    Assumption: words and tags are masked beside other images, too, and are to be predicted there (the paper doesn't
    say).

    Args:
        dataset: whose batches have `net_input["visual"]`.
        dictionary: of words and tags.
        choice: the images of the batches.
        masking: of words and of tags.
    """

    def __init__(
        self, dataset: FairseqDataset, dictionary: Dictionary, choice: OwnOrOtherImages, masking: WordMasking
    ) -> None:
        super().__init__(dataset)
        self.pad, self.eos = dictionary.pad(), dictionary.eos()
        self.choice = choice
        self.masking = masking

    @property
    def changes(self) -> bool:
        """Whether other words are masked in another epoch."""
        return self.masking.masking.changes

    def collater(self, samples: list[Any], **kwargs: Any) -> dict[str, Any]:
        """Collate, then mask."""
        batch = super().collater(samples, **kwargs)
        if not batch:
            return batch
        places, net_input = batch["id"].numpy(), batch["net_input"]
        net_input["src_tokens"], batch["target"] = self._masked(net_input["src_tokens"], places, WORDS)
        net_input["visual"] = visual = without_answers(net_input["visual"])
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
            seen, chosen = self.masking(words, words != self.eos, place, self.epoch, purpose)
            shown[row, there], hidden[row, there] = seen, np.where(chosen, words, self.pad)
        return torch.from_numpy(shown), torch.from_numpy(hidden)
