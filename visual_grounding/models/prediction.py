"""A model of understanding: an encoder of text and images, and a head on the states that are asked.

What an architecture brings is the encoder, a module with

    states(src_tokens (B, T), visual) -> (B, T', D)     the states of the text
    size, opens, max_positions, dropout                 D; positions before the text's own; the longest text
    feature_size                                        F of the images; 0 for text alone

and what the task asks says how many outputs the head has (`task.outputs`).
"""

from typing import Any, Optional

from fairseq.models import BaseFairseqModel
from torch import Tensor

from ..errors import InputError
from ..modules.prediction_head import PredictionHead, states_at
from .visual_model import StrictLoading, features_of


class PredictionModel(StrictLoading, BaseFairseqModel):
    """Tells classes, numbers or tags of text, with images or without.

    Args:
        encoder: of text and images.
        outputs: C, classes or tags; 1 for a number.

    Attributes:
        understands: it is for tasks of understanding.

    Shapes:
        src_tokens: (B, T);  visual: the batch's `net_input["visual"]`;  word_positions: (B,) of a word in each, or
            (B, W) of all words, -1 for one without a piece
        returns: (B, C);  (B, W, C) of all words

    Raises:
        InputError: the encoder puts nothing before a sentence.
    """

    understands = True

    def __init__(self, encoder: Any, outputs: int) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.opens: int = encoder.opens
        self.head = PredictionHead(encoder.size, outputs, encoder.dropout)
        if not self.opens:
            raise InputError(
                "an encoder should put a symbol before a sentence whose state stands for it, such as [CLS], but this "
                "one puts none. Take another pretrained model."
            )

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        visual: Optional[dict[str, Tensor]] = None,
        word_positions: Optional[Tensor] = None,
    ) -> Tensor:
        """Scores of classes or tags, or numbers.

        Shapes:
            src_tokens: (B, T);  word_positions: (B,) or (B, W)
            returns: (B, C), or (B, W, C)

        Raises:
            InputError: as `features_of`.
        """
        features_of(visual, self.encoder.feature_size)
        states = self.encoder.states(src_tokens, visual)  # (B, T', D)
        found: Tensor = self.head(states_at(states, word_positions, self.opens))
        return found

    def max_positions(self) -> int:
        """The longest text, with its end."""
        longest: int = self.encoder.max_positions
        return longest


def cut_by(task: Any) -> str:
    """Digest of the tokenizer that made a task's pieces; empty where it doesn't say."""
    return str(getattr(getattr(task, "asked", None), "tokenizer_sha256", ""))


def outputs_of(task: Any) -> Optional[int]:
    """How many outputs a head has for a task's answers; None where the task asks for none."""
    found: Optional[int] = getattr(task, "outputs", None)
    return found
