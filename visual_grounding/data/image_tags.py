"""What is seen in the images of a sentence, as words of the source dictionary: `--image-tags` (VLP §3.2, object tags).

    labels of an image's regions       dog 0.9, frisbee 0.8, dog 0.7, person 0.2
    its tags, of scores from 0.3       dog frisbee

The tags of a sentence's images, one image after another, are `net_input["visual"]["tags"]` as the dictionary's numbers.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from torch import Tensor

from ..errors import InputError
from ..shares import share
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import PAD, UNKNOWN
from .captions import pad_sequences

WORDS = "words"
_HIGHEST = float(np.finfo(np.float16).max)  # as scores are stored


class ImageTags:
    """Labels of regions as numbers of a dictionary: the most confident first, each once an image.

    Args:
        names: of the labels; label n is the n-th, counted from 0.
        symbols: of the dictionary, by their numbers.
        place: its file, for messages.
        cut_by: `words`, or the tokenizer (hub name or folder) whose pieces the dictionary has.
        least_score: regions below aren't named.

    Attributes:
        numbers: for each label those of its words or pieces, without those that the dictionary doesn't have.
        incomplete: labels of which the dictionary lacks a word.
        choice: what was chosen, for checkpoints: `words from score 0.3`.

    Raises:
        InputError: no such tokenizer, it isn't the dictionary's, the dictionary has no word of any label, or the score
            is no number.
    """

    def __init__(
        self, names: Sequence[str], symbols: Sequence[str], place: str, cut_by: str, least_score: float
    ) -> None:
        if not abs(least_score) <= _HIGHEST:
            raise InputError(f"--image-tag-score should be a number such as 0.3, but is {least_score}.")
        if cut_by == WORDS:
            known = {symbol: number for number, symbol in enumerate(symbols)}
            cut = [[known.get(word, known.get(word.lower(), UNKNOWN)) for word in name.split()] for name in names]
        else:
            bridge = TokenizerBridge(cut_by)
            bridge.check_dictionary(symbols, place)
            cut = bridge.numbers_of(names)
        self.numbers = [[number for number in label if number != UNKNOWN] for label in cut]
        self.incomplete = [name for name, label in zip(names, cut) if UNKNOWN in label]
        if names and not any(self.numbers):
            raise InputError(
                f"--image-tags {cut_by} names what is seen with words of {place}, but it has none of the {len(names)} "
                f"labels, such as {names[0]!r}. For a dictionary of a tokenizer's pieces give --image-tags TOKENIZER, "
                "that of visual-grounding prepare pieces; else binarise the text with a dictionary that has the labels."
            )
        # float16 as the store's: 0.1 of a detector should reach a threshold of 0.1.
        self.least_score = np.float16(least_score)
        self.choice = f"{WORDS if cut_by == WORDS else 'pieces'} from score {least_score:g}"

    def warning(self) -> str | None:
        """What is to be said of labels that can't be written in full; None where all can."""
        if not self.incomplete:
            return None
        said = share(len(self.incomplete), len(self.numbers), "labels of regions")
        return (
            f"{said} have words that the source dictionary doesn't have, and are left out of the image tags or cut: "
            f"{', '.join(self.incomplete[:5])}{' …' if len(self.incomplete) > 5 else ''}"
        )

    def write(self, labels: np.ndarray, scores: np.ndarray) -> Tensor:
        """The tags of a batch.

        Shapes:
            labels: (B, N, R), −1 = none;  scores: (B, N, R)
            returns: (B, G) numbers of the dictionary, padded on the right; G is at least 1
        """
        rows = zip(labels, scores)
        return pad_sequences([list(chain(*map(self._of_image, *row))) for row in rows], PAD)

    def _of_image(self, labels: np.ndarray, scores: np.ndarray) -> list[int]:
        """The tags of one image: labels (R,), scores (R,)."""
        order = np.argsort(-scores.astype(np.float32), kind="stable")
        named = order[(labels[order] >= 0) & (scores[order] >= self.least_score)]
        return [number for label in dict.fromkeys(labels[named].tolist()) for number in self.numbers[label]]
