"""What a language model learns to tell of each piece: its voken, or what takes its place (VOK Tables 5 and 6)."""

from dataclasses import dataclass

import numpy as np

from ..modules.linear_cross_entropy import UNASKED
from .voken_text import VokenText
from .word_masking import Masking

LABELS = ("vokens", "shuffled", "random", "tokens")
SENTENCE_LABELS = ("none", "cls", "first")
_BACK = 64  # pieces without a voken that are looked back over for the last one
LABEL, SHUFFLE = 1, 2  # what random numbers are drawn for; 0 is `word_masking.WORDS`


@dataclass(frozen=True)
class VokenLabels:
    """The labels of blocks.

    Assumption: "shuffled" is a permutation of all vokens of a batch on one device ("we shuffle the vokens in each
    batch", A.6; the paper's code: of one block). Assumption: "random" is drawn anew in every epoch, as the paper's code
    does; vokens that are random once and for all are what `visual-grounding vokenize` makes by that method. A piece
    without a voken has no label then either, so that as much is asked. "tokens" are the pieces themselves, masked or
    not, and need no vokens.

    Sentence labels ("SentLabel", Table 5) are of vokens that were chosen for sentences. "cls" asks `[CLS]` for one, as
    BERT's next-sentence prediction does. Assumption: a block of consecutive pieces has several sentences; its label is
    the voken of the most of its pieces, the first of equally many. "first" is the paper's code: the first piece of each
    sentence that begins in the block is asked for its voken. Deviation: sentences of one line that follow each other
    and have the same voken count as one, as nothing says where they part.

    Args:
        kind: one of `LABELS`.
        count: V, how many labels there are.
        masking: whose random numbers are new in every epoch, and fixed in validation.
        sentence: one of `SENTENCE_LABELS`: "none" asks every piece.
    """

    kind: str
    count: int
    masking: Masking
    sentence: str = "none"

    def of_block(self, text: VokenText, start: int, end: int, block: int, epoch: int) -> np.ndarray:
        """Labels of a block's pieces, and of the special ones around them.

        Args:
            text: where the block is.
            start: place of its first piece there.
            end: of the one after its last.
            block: its number in the data.
            epoch: counted from 1.

        Shapes:
            returns: (end − start + 2,), −1 where nothing is asked

        Raises:
            ValueError: the text has no vokens.
        """
        labels = text.numbers(start, end) if self.kind == "tokens" else text.vokens_at(start, end)
        around = np.full(end - start + 2, UNASKED, np.int64)
        if self.sentence == "cls":
            around[0] = commonest(labels)
            return around
        if self.sentence == "first":
            labels = np.where(self._sentence_begins(text, labels, start, end), labels, UNASKED)
        if self.kind == "random":
            drawn = self.masking.generator(block, epoch, LABEL).integers(0, self.count, len(labels))
            labels = np.where(labels == UNASKED, UNASKED, drawn)
        around[1:-1] = labels
        return around

    @staticmethod
    def _sentence_begins(text: VokenText, labels: np.ndarray, start: int, end: int) -> np.ndarray:
        """Where a line begins, or another voken than the last one that a piece has; one without changes nothing."""
        before = text.vokens_at(max(0, start - _BACK), start)
        vokens = np.concatenate([before, labels])
        last = np.maximum.accumulate(np.where(vokens != UNASKED, np.arange(len(vokens)), 0))
        filled = np.concatenate([[UNASKED], vokens[last]])
        changes = (filled[1:] != filled[:-1]) & (filled[:-1] != UNASKED)
        return text.begins(start, end) | changes[len(before) :]

    def of_batch(self, labels: np.ndarray, first: int, epoch: int) -> np.ndarray:
        """Labels of a batch: where they are shuffled, each of its labels at another one's place.

        Args:
            labels: of its blocks.
            first: number of its first block, whose random numbers are taken.
            epoch: counted from 1.

        Shapes:
            labels: (B, T)
            returns: (B, T)
        """
        if self.kind != "shuffled":
            return labels
        asked, shuffled = labels != UNASKED, labels.copy()
        shuffled[asked] = self.masking.generator(first, epoch, SHUFFLE).permutation(labels[asked])
        return shuffled


def commonest(labels: np.ndarray) -> int:
    """The label that most have, the first of equally many; −1 where none has any.

    Shapes:
        labels: (n,)

    >>> commonest(np.array([7, 3, -1, -1, -1, 3, 7])), commonest(np.array([-1]))
    (7, -1)
    """
    known = labels[labels != UNASKED]
    if not len(known):
        return UNASKED
    values, places, counts = np.unique(known, return_index=True, return_counts=True)
    return int(min(zip(-counts, places, values))[2])
