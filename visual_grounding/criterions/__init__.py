"""fairseq criterions. Importing this registers them."""

import fairseq  # noqa: F401  # first of all: what it registers would else meet a half-imported module here

from . import (
    grounded_masked_lm,
    grounded_sentence_prediction,
    grounded_tagging,
    hardest_negative_triplet,
    label_smoothed_cross_entropy_with_modality_loss,
    masked_lm_with_paired_image,
    token_image_hinge,
    visual_tlm,
    voken_classification,
)

__all__ = [
    "grounded_masked_lm",
    "grounded_sentence_prediction",
    "grounded_tagging",
    "hardest_negative_triplet",
    "label_smoothed_cross_entropy_with_modality_loss",
    "masked_lm_with_paired_image",
    "token_image_hinge",
    "visual_tlm",
    "voken_classification",
]
