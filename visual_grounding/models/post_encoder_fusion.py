"""Fusion after the encoder: fairseq's transformer for translation, whose encoder's output has looked at the images.

An architecture is this plus one fusion module: text (T, B, D) and projected images (B, M, D) in, text (T, B, D) out.
The decoder, the attention between the two, and everything that fairseq does with them stay as they are.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import Any, ClassVar

from fairseq.data import Dictionary
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from ..errors import InputError
from ..modules.visual_attention import ImageProjection
from .visual_model import ImageProjectionConfig, StrictLoading, features_of, take_feature_size


@dataclass
class PostEncoderFusionConfig(ImageProjectionConfig, TransformerConfig):
    """fairseq's transformer flags, and those of the images' projection."""


class PostEncoderFusionEncoder(TransformerEncoderBase):
    """fairseq's transformer encoder, whose output has looked at the images."""

    def __init__(
        self, cfg: PostEncoderFusionConfig, dictionary: Dictionary, embed_tokens: nn.Module, fusion: nn.Module
    ) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.image_projection = ImageProjection(
            cfg.visual_feature_size,
            cfg.encoder.embed_dim,
            cfg.visual_ffn_dim,
            cfg.visual_dropout,
            cfg.visual_standardise,
        )
        self.fusion = fusion

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        visual: dict[str, Tensor] | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode the text, then let it look at its images.

        Shapes:
            src_tokens: (B, T);  visual["features"]: (B, N, R, F);  visual["padding_mask"]: (B, N, R), True = absent.
            returns: as fairseq's encoder, `encoder_out[0]` (T, B, D) fused. Nothing else depends on images, so beam
                search reorders it as it is.

        Raises:
            InputError: features of another size than this model was built for.
        """
        encoded = super().forward(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        images = padding_mask = None
        found = features_of(visual, self.image_projection.feature_size)
        if found is not None:
            images = self.image_projection(*found)  # (B, M, D), M = N·R
            padding_mask = found[1].flatten(1)  # (B, M)
        encoded["encoder_out"] = [self.fusion(encoded["encoder_out"][0], images, padding_mask)]
        return encoded


class PostEncoderFusionModel(StrictLoading, TransformerModel):
    """Base of the registered models. A subclass sets `config_class` and makes its fusion module in `build_fusion`."""

    config_class: ClassVar[type[PostEncoderFusionConfig]] = PostEncoderFusionConfig

    @classmethod
    def build_fusion(cls, cfg: Any) -> nn.Module:
        """The module that brings text (T, B, D) and images (B, M, D) together."""
        raise TypeError(f"{cls.__name__} must define build_fusion")

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, cls.config_class(), delete_default=True, with_prefix="")

    @classmethod
    def build_model(cls, args: Namespace, task: FairseqTask) -> "PostEncoderFusionModel":
        """Build from flags; the size of the image features comes from the task's store and goes into the checkpoint.

        Raises:
            InputError: no store and no size, or two sizes that differ.
        """
        preset = (getattr(args, "arch", None) or "").partition("_transformer")[2]
        take_feature_size(args, task, twin=f"text_only_transformer{preset}")
        base_architecture(args)
        return super().build_model(cls.config_class.from_namespace(args), task)

    @staticmethod
    def check_heads(heads: int, size: int) -> int:
        """`heads`, if the attention to images can be split into so many.

        Raises:
            InputError: it can't.
        """
        if heads < 1 or size % heads:
            raise InputError(f"--visual-attention-heads should divide the encoder's size, {size}, but is {heads}.")
        return heads

    @classmethod
    def build_encoder(
        cls, cfg: PostEncoderFusionConfig, src_dict: Dictionary, embed_tokens: nn.Module
    ) -> PostEncoderFusionEncoder:
        """fairseq's encoder with this architecture's fusion behind it."""
        return PostEncoderFusionEncoder(cfg, src_dict, embed_tokens, cls.build_fusion(cfg))

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        return_all_hiddens: bool = True,
        features_only: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        visual: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As fairseq's transformer, with the images of the batch.

        Shapes:
            src_tokens: (B, T);  prev_output_tokens: (B, U);  visual: as in `PostEncoderFusionEncoder.forward`.
            returns: (B, U, V) scores, and fairseq's extras.
        """
        encoded = self.encoder(src_tokens, src_lengths, return_all_hiddens=return_all_hiddens, visual=visual)
        return self.decoder(
            prev_output_tokens,
            encoder_out=encoded,
            features_only=features_only,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
            src_lengths=src_lengths,
            return_all_hiddens=return_all_hiddens,
        )
