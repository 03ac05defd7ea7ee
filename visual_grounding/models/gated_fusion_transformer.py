"""`--arch gated_fusion_transformer`: one image vector, added to the encoder's output through a gate."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model

from ..modules.gated_fusion import GatedFusion
from .post_encoder_fusion import PostEncoderFusionConfig, PostEncoderFusionModel
from .presets import TRANSFORMER_PRESETS, register_presets


@dataclass
class GatedFusionTransformerConfig(PostEncoderFusionConfig):
    """Flags of the gated fusion transformer."""

    visual_gate: ChoiceEnum(["add", "interpolate"]) = field(  # type: ignore[valid-type]
        default="add", metadata={"help": "text + gate * image, or (1 - gate) * text + gate * image (UVR-NMT)"}
    )


@register_model("gated_fusion_transformer")  # no dataclass=: fairseq's TransformerConfig can't be one
class GatedFusionTransformerModel(PostEncoderFusionModel):
    """Wu et al. 2021, with several images averaged."""

    config_class = GatedFusionTransformerConfig

    @classmethod
    def build_fusion(cls, cfg: GatedFusionTransformerConfig) -> GatedFusion:
        """The gate."""
        return GatedFusion(cfg.encoder.embed_dim, interpolate=cfg.visual_gate == "interpolate")


register_presets("gated_fusion_transformer", TRANSFORMER_PRESETS)
