"""`--arch selective_attention_transformer`: each token attends to image regions, a gate mixes them in."""

from dataclasses import dataclass, field

from fairseq.models import register_model

from ..modules.selective_attention import SelectiveAttention
from .post_encoder_fusion import PostEncoderFusionConfig, PostEncoderFusionModel
from .presets import TRANSFORMER_PRESETS, register_presets


@dataclass
class SelectiveAttentionTransformerConfig(PostEncoderFusionConfig):
    """Flags of the selective attention transformer."""

    visual_attention_heads: int = field(default=1, metadata={"help": "heads of the attention from text to regions"})


@register_model("selective_attention_transformer")  # no dataclass=: fairseq's TransformerConfig can't be one
class SelectiveAttentionTransformerModel(PostEncoderFusionModel):
    """Li et al. 2022, over the regions of all images of a sentence."""

    config_class = SelectiveAttentionTransformerConfig

    @classmethod
    def build_fusion(cls, cfg: SelectiveAttentionTransformerConfig) -> SelectiveAttention:
        """The attention and its gate."""
        heads = cls.check_heads(cfg.visual_attention_heads, cfg.encoder.embed_dim)
        return SelectiveAttention(cfg.encoder.embed_dim, heads, cfg.attention_dropout)


register_presets("selective_attention_transformer", TRANSFORMER_PRESETS)
