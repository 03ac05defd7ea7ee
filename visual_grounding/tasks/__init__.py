"""fairseq tasks. Importing this registers them."""

import fairseq  # noqa: F401  # first of all: what it registers would else meet a half-imported module here

from . import (
    grounded_lm,
    grounded_sentence_prediction,
    grounded_tagging,
    grounded_translation,
    image_text_matching,
    vision_language_pretraining,
    visual_tlm,
    voken_lm,
)

__all__ = [
    "grounded_lm",
    "grounded_sentence_prediction",
    "grounded_tagging",
    "grounded_translation",
    "image_text_matching",
    "vision_language_pretraining",
    "visual_tlm",
    "voken_lm",
]
