"""fairseq models. Importing this registers them."""

from . import (
    gated_fusion_transformer,
    selective_attention_transformer,
    text_only_transformer,
    visual_aware_transformer,
    visual_semantic_embedding,
)

__all__ = [
    "gated_fusion_transformer",
    "selective_attention_transformer",
    "text_only_transformer",
    "visual_aware_transformer",
    "visual_semantic_embedding",
]
