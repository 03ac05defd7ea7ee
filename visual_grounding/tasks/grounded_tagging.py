"""`--task grounded_tagging`: a tag for every word, told from its first piece (VA §3.3).

Examples are those of `visual-grounding prepare conll`, in BIO.
"""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq.tasks import register_task
from torch import Tensor

from ..data.labelled_examples import NO_WORD
from ..text.labelled_text import TAGS
from ..text.tagged_columns import OUTSIDE
from .understanding import UnderstandingConfig, UnderstandingTask


@dataclass
class GroundedTaggingConfig(UnderstandingConfig):
    """Flags of the examples and of their images."""


@register_task("grounded_tagging", dataclass=GroundedTaggingConfig)
class GroundedTaggingTask(UnderstandingTask):
    """Tell a tag for every word; batches: `data/labelled_examples.py`.

    A word without a piece, or behind the cut, is told to be outside of any entity: so every word counts.

    Raises:
        InputError: no examples, or of other answers; or as `VisualContext`.
    """

    kinds = ((TAGS,), "grounded_sentence_prediction")

    def answered(self, outputs: Tensor, sample: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """What is right, and what a model's outputs say, as `UnderstandingTask.predicted` reads them.

        Shapes:
            outputs: (B, W, C);  returns: (B, W) twice, numbers of tags plus 3, 2 and 1 for tags that training doesn't
                know, 0 where there is no word
        """
        labels = self.asked.labels
        outside = labels.index(OUTSIDE) if OUTSIDE in labels else 0
        target = sample["target"]
        said = outputs.argmax(dim=-1).masked_fill(sample["net_input"]["word_positions"] < 0, outside)
        return target - NO_WORD, torch.where(target == NO_WORD, 0, said - NO_WORD)
