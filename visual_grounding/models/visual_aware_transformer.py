"""`--arch visual_aware_transformer`: VA §2.2 to §2.4 for translation."""

from dataclasses import dataclass

from fairseq.models import register_model

from ..modules.visual_attention import VisualAttention
from .post_encoder_fusion import PostEncoderFusionConfig, PostEncoderFusionModel
from .presets import TRANSFORMER_PRESETS, register_presets
from .visual_model import VisualAttentionConfig


@dataclass
class VisualAwareTransformerConfig(VisualAttentionConfig, PostEncoderFusionConfig):
    """Flags of the visual-aware transformer."""


@register_model("visual_aware_transformer")  # no dataclass=: fairseq's TransformerConfig can't be one
class VisualAwareTransformerModel(PostEncoderFusionModel):
    """The encoder's output attends to the images in one multi-head layer (VA eq. 2 and 3); the decoder reads that."""

    config_class = VisualAwareTransformerConfig

    @classmethod
    def build_fusion(cls, cfg: VisualAwareTransformerConfig) -> VisualAttention:
        """VA eq. 2 and 3."""
        heads = cfg.visual_attention_heads or cfg.encoder.attention_heads
        heads = cls.check_heads(heads, cfg.encoder.embed_dim)
        return VisualAttention(cfg.encoder.embed_dim, heads, cfg.attention_dropout)


register_presets("visual_aware_transformer", TRANSFORMER_PRESETS)
