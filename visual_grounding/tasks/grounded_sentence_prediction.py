"""`--task grounded_sentence_prediction`: what holds of a sentence, of two, or of a word in one (VA §3.2, GS §4.2).

Examples are those of `visual-grounding prepare`: natural language inference, plausibility, metaphors, discourse
relations. Answers are classes or numbers. Images are those of the first sentence, of the second, or of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from torch import Tensor

from ..errors import InputError
from ..text.example_files import Asked
from ..text.labelled_text import CLASSES, VALUES
from .understanding import UnderstandingConfig, UnderstandingTask

# Whose images there are -> what stands behind the names of their tables in --image-ids DIR.
IMAGE_SENTENCES: dict[str, tuple[str, ...]] = {"first": ("",), "second": (".second",), "both": ("", ".second")}


@dataclass
class GroundedSentencePredictionConfig(UnderstandingConfig):
    """Flags of the examples and of their images."""

    image_sentence: ChoiceEnum(list(IMAGE_SENTENCES)) = field(  # type: ignore[valid-type]
        default="first",
        metadata={
            "help": "of two sentences, whose images: the first's, in --image-ids DIR/<split>; the second's, in "
            "DIR/<split>.second; or both, side by side"
        },
    )


@register_task("grounded_sentence_prediction", dataclass=GroundedSentencePredictionConfig)
class GroundedSentencePredictionTask(UnderstandingTask):
    """Tell a class or a number of each example; batches: `data/labelled_examples.py`.

    Raises:
        InputError: no examples, or of tags; images of a second sentence where there is one; or as `VisualContext`.
    """

    kinds = ((CLASSES, VALUES), "grounded_tagging")

    def __init__(self, cfg: GroundedSentencePredictionConfig, dictionary: Dictionary, path: str, asked: Asked) -> None:
        super().__init__(cfg, dictionary, path, asked)
        if str(cfg.image_sentence) != "first" and asked.sentences == 1:
            raise InputError(
                f"--image-sentence {cfg.image_sentence} is for examples of two sentences, but these have one: leave it "
                "out."
            )

    @property
    def sides(self) -> Sequence[str]:
        """Whose images there are: what stands behind the names of their tables."""
        return IMAGE_SENTENCES[str(self.cfg.image_sentence)]

    def answered(self, outputs: Tensor, sample: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """What is right, and what a model's outputs say: numbers of classes, or numbers.

        Shapes:
            outputs: (B, C);  returns: (B,) twice
        """
        said = outputs.float().squeeze(-1) if self.asked.answers == VALUES else outputs.argmax(dim=-1)
        return sample["target"], said
