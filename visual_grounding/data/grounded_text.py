"""Lines of text with hidden words, beside images with hidden regions: batches of grounded language modelling (GS §2.2).

One side is hidden at a time: where the words of a line are to be told, its regions are all there, and the other way
round. Masks are new in every epoch, and fixed in validation, where both sides of a line are asked, one after the other;
or a table of image ids brings the one that its images were found with.
"""

from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils
from torch import Tensor

from ..text.masked_words import WordsOfPieces
from .by_length import ByLength
from .changing_batches import ChangingBatches
from .word_masking import REGIONS, WORDS, Masking

SIDES = 2  # what random numbers are drawn for, beside WORDS and REGIONS
OBJECTIVES = ("jmlm", "jmrm", "both")

GivenMask = Callable[[int], np.ndarray]


class MaskedLines(ByLength):
    """Lines of a text, and which of their pieces are hidden.

    Items: `id`, `tokens` (T,) with `</s>` at the end, `hidden` (T,) bool.
    Batches: `id`, `nsentences`, `ntokens`, `net_input` with `src_tokens` (B, T), whole and padded on the right, and
    `src_lengths` (B,); `hidden_words` (B, T) bool.

    Args:
        texts: binarised, one behind another; each line ends in `</s>`.
        dictionary: of its pieces.
        max_positions: longer lines are cut, `</s>` stays.
        masking: how often pieces are hidden.
        given: a line's number -> which of its pieces are hidden, where that is fixed; None to draw.
        shuffle: whether batches are in random order.
    """

    def __init__(
        self,
        texts: Any,
        sizes: np.ndarray,
        dictionary: Dictionary,
        max_positions: int,
        masking: Masking,
        given: Optional[GivenMask] = None,
        shuffle: bool = True,
    ) -> None:
        self.texts = texts
        self.sizes = np.minimum(sizes, max_positions)
        self.dictionary = dictionary
        self.masking = masking
        self.given = given
        self.shuffle = shuffle
        self.epoch = 1

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def changes(self) -> bool:
        """Whether other pieces are hidden in another epoch."""
        return self.given is None and self.masking.changes

    def set_epoch(self, epoch: int) -> None:
        """fairseq says which epoch begins."""
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """False where items change: fairseq would keep the workers, which don't hear that another epoch begins."""
        return not self.changes

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = self.texts[index].long()
        if len(tokens) > self.sizes[index]:
            tokens = torch.cat([tokens[: self.sizes[index] - 1], tokens[-1:]])
        hidden = np.zeros(len(tokens), dtype=bool)
        if self.given is not None:
            hidden[:-1] = self.given(index)[: len(tokens) - 1]
        else:
            rng = self.masking.generator(index, self.epoch, WORDS)
            hidden[:-1] = rng.random(len(tokens) - 1) < self.masking.probability
        return {"id": index, "tokens": tokens, "hidden": torch.from_numpy(hidden)}

    def collater(self, samples: list[Any]) -> dict[str, Any]:
        """A batch, in the order of the items."""
        if not samples:
            return {}
        lengths = torch.tensor([len(sample["tokens"]) for sample in samples])
        hidden = data_utils.collate_tokens([sample["hidden"].long() for sample in samples], 0)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {
                "src_tokens": data_utils.collate_tokens(
                    [sample["tokens"] for sample in samples], self.dictionary.pad()
                ),
                "src_lengths": lengths,
            },
            "hidden_words": hidden.bool(),
        }


class QueryOfItem:
    """The text that an item leaves a finder to find images by: without the words that a mask touches.

    Args:
        words: of the tokenizer whose pieces the items are.
    """

    def __init__(self, words: WordsOfPieces) -> None:
        self.words = words

    def __call__(self, sample: dict[str, Any]) -> str:
        """A line of text."""
        return self.words.without(sample["tokens"][:-1].numpy(), sample["hidden"][:-1].numpy())


class GroundedBatches(ChangingBatches):
    """Says which side of each line is asked for, and hides regions.

    Batch keys, beside those of the dataset:
        word_side, region_side: (B,) bool: whether hidden words are told, with all regions; whether hidden regions are,
            with all words. In training one of both; in validation words always, and regions where they are learned.
        hidden_regions: (B, N, R) bool, none of an absent region; only where there are images

    Args:
        dataset: of `MaskedLines`, with images or without.
        objective: one of `OBJECTIVES`. A line without images has nothing but words to tell.
        masking: of regions.
    """

    def __init__(self, dataset: FairseqDataset, objective: str, masking: Masking) -> None:
        super().__init__(dataset)
        self.objective = objective
        self.masking = masking

    @property
    def changes(self) -> bool:
        """Whether something else is hidden in another epoch."""
        return self.masking.changes

    def collater(self, samples: list[Any], **kwargs: Any) -> dict[str, Any]:
        """Collate, then decide."""
        batch = super().collater(samples, **kwargs)
        if not batch:
            return batch
        visual = batch["net_input"].get("visual")
        words = torch.ones(len(batch["id"]), dtype=torch.bool)
        regions = torch.zeros_like(words)
        if visual is not None and self.objective != "jmlm":
            places = batch["id"].tolist()
            batch["hidden_regions"] = self._hidden(places, ~visual["padding_mask"])
            seen = ~visual["padding_mask"].flatten(1).all(dim=1)  # (B,)
            regions = seen & torch.tensor([self._tells_regions(place) for place in places])
            if self.masking.changes:
                words = ~regions
        batch["word_side"], batch["region_side"] = words, regions
        return batch

    def _tells_regions(self, place: int) -> bool:
        """Whether a line with images is one of those whose regions are to be told."""
        if self.objective == "jmrm" or not self.masking.changes:
            return True
        return bool(self.masking.generator(place, self.epoch, SIDES).random() < 0.5)

    def _hidden(self, places: Sequence[int], present: Tensor) -> Tensor:
        """Hidden regions; of a line that has any, one at least.

        # Assumption: where none is drawn, one is hidden all the same: of one region an image, the paper's default, too
        # few would be learned from.

        Shapes:
            present: (B, N, R);  returns: (B, N, R)
        """
        hidden = np.zeros(present.shape, dtype=bool)
        for row, place in enumerate(places):
            there = present[row].numpy()
            rng = self.masking.generator(place, self.epoch, REGIONS)
            draws = rng.random(there.shape)
            hidden[row] = there & (draws < self.masking.probability)
            if there.any() and not hidden[row].any():
                hidden[row].flat[np.where(there, draws, 2.0).argmin()] = True
        return torch.from_numpy(hidden)
