"""Words of a sentence that a model learns to predict: masks that are new in every epoch, and fixed in validation.

They depend on nothing but the seed, the epoch and the item: not on batches, workers or processes.
"""

from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from fairseq.dataclass import FairseqDataclass

from ..errors import InputError
from ..modules.masking import LEFT, MASK_ALONE, Replacement, draw_fates, generator_of, mask_words

WORDS, REGIONS = 0, 1  # what the random numbers of an item are for
_FIXED = (0, 0)  # seed and epoch of validation; epochs of training begin with 1


@dataclass
class MaskingConfig(FairseqDataclass):
    """The flag of tasks that mask."""

    mask_prob: float = field(
        default=0.15,
        metadata={
            "help": "share of the words that are chosen to be predicted; of regions or their tags, too, where "
            "no other flag says theirs"
        },
    )


def check_mask_prob(probability: float) -> None:
    """Refuse what is no share, and a share of nothing: there would be nothing to learn.

    Raises:
        InputError: it is one of these.
    """
    if not 0 < probability <= 1:
        raise InputError(f"--mask-prob should be more than 0 and at most 1, but is {probability}.")


class Masking:
    """How often something is chosen, what happens to it then, and the random numbers of every item.

    Args:
        probability: that a candidate is chosen.
        replacement: in training; in validation everything that is chosen is masked.
        seed: of training; None for validation.
    """

    def __init__(self, probability: float, replacement: Replacement, seed: Optional[int]) -> None:
        self.probability = probability
        self.replacement = MASK_ALONE if seed is None else replacement
        self.seed = seed

    @property
    def changes(self) -> bool:
        """Whether an item is masked anew in every epoch."""
        return self.seed is not None

    def generator(self, item: int, epoch: int, purpose: int) -> np.random.Generator:
        """Random numbers of an item, for its words or for its regions."""
        seed, epoch = _FIXED if self.seed is None else (self.seed, epoch)
        return generator_of(seed, epoch, item, purpose)

    def fates(self, candidates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """As `draw_fates`.

        Shapes:
            candidates: (...,) bool
            returns: (...,) int8
        """
        return draw_fates(candidates, self.probability, self.replacement, rng)


class WordMasking:
    """Masks the words of one dictionary.

    Args:
        masking: how often, and by what.
        mask: number of the mask.
        words: numbers that a random word may have.
    """

    def __init__(self, masking: Masking, mask: int, words: range) -> None:
        self.masking = masking
        self.mask = mask
        self.words = words

    def __call__(
        self, tokens: np.ndarray, candidates: np.ndarray, item: int, epoch: int, purpose: int = WORDS
    ) -> tuple[np.ndarray, np.ndarray]:
        """A sentence as the model sees it, and which of its words are to be predicted.

        Args:
            tokens: the sentence.
            candidates: which of them may be chosen.
            item: its number in the data.
            epoch: counted from 1.
            purpose: which of the item's random numbers.

        Shapes:
            tokens: (T,);  candidates: (T,) bool
            returns: (T,);  (T,) bool
        """
        rng = self.masking.generator(item, epoch, purpose)
        fates = self.masking.fates(candidates, rng)
        return mask_words(tokens, fates, self.mask, self.words, rng), fates != LEFT
