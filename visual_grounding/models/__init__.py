"""fairseq models. Importing this registers them."""

import fairseq  # noqa: F401  # first of all: what it registers would else meet a half-imported module here

from . import (
    gated_fusion_transformer,
    grounded_albert,
    selective_attention_transformer,
    text_only_transformer,
    token_image_matching,
    visual_aware_bert,
    visual_aware_transformer,
    visual_semantic_embedding,
    vlp_bert,
    vlp_translation,
    voken_bert,
    voken_roberta,
    vtlm,
    vtlm_translation,
)

__all__ = [
    "gated_fusion_transformer",
    "grounded_albert",
    "selective_attention_transformer",
    "text_only_transformer",
    "token_image_matching",
    "visual_aware_bert",
    "visual_aware_transformer",
    "visual_semantic_embedding",
    "vlp_bert",
    "vlp_translation",
    "voken_bert",
    "voken_roberta",
    "vtlm",
    "vtlm_translation",
]
