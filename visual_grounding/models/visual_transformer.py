"""What the translation models with images share: fairseq's transformer, with images fused in after its encoder.

An architecture is this plus one fusion module: text (T, B, D) and projected images (B, M, D) in, text (T, B, D) out.
The decoder, the attention between the two, and everything that fairseq does with them stay as they are.
"""

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairseq.data import Dictionary
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from fairseq.models.transformer.transformer_legacy import (
    base_architecture,
    transformer_iwslt_de_en,
    transformer_vaswani_wmt_en_de_big,
)
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from ..errors import InputError
from ..modules.visual_attention import ImageProjection
from .visual_model import check_checkpoint_fits

logger = logging.getLogger(__name__)
_SAME_STORE = "Use the feature store that it was trained with, or one made the same way."


@dataclass
class VisualTransformerConfig(TransformerConfig):
    """fairseq's transformer flags, and those of the images. Names with `encoder_` would leak into fairseq's own."""

    visual_feature_size: int = field(
        default=0, metadata={"help": "size of an image's feature vector; 0: that of --image-features"}
    )
    visual_ffn_dim: int = field(
        default=0, metadata={"help": "hidden size of the feed-forward layer on image features; 0: one linear layer"}
    )
    visual_dropout: float = field(
        default=0.0, metadata={"help": "dropout on image features, before and after projection"}
    )
    visual_standardise: bool = field(
        default=False,
        metadata={
            "help": "bring every image feature to mean 0 and variance 1 (several processes: with --broadcast-buffers)"
        },
    )


class VisualTransformerEncoder(TransformerEncoderBase):
    """fairseq's transformer encoder, whose output has looked at the images."""

    def __init__(
        self, cfg: VisualTransformerConfig, dictionary: Dictionary, embed_tokens: nn.Module, fusion: nn.Module
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
        if visual is not None:
            if visual["features"].shape[-1] != self.image_projection.feature_size:
                raise InputError(
                    f"the model was trained on image features of size {self.image_projection.feature_size}, but these "
                    f"have {visual['features'].shape[-1]}. {_SAME_STORE}"
                )
            images = self.image_projection(visual["features"], visual["padding_mask"])  # (B, M, D), M = N·R
            padding_mask = visual["padding_mask"].flatten(1)  # (B, M)
        encoded["encoder_out"] = [self.fusion(encoded["encoder_out"][0], images, padding_mask)]
        return encoded


class VisualTransformerModel(TransformerModel):
    """Base of the registered models. A subclass sets `config_class` and makes its fusion module in `build_fusion`."""

    config_class: ClassVar[type[VisualTransformerConfig]] = VisualTransformerConfig

    @classmethod
    def build_fusion(cls, cfg: Any) -> nn.Module:
        """The module that brings text (T, B, D) and images (B, M, D) together."""
        raise TypeError(f"{cls.__name__} must define build_fusion")

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, cls.config_class(), delete_default=True, with_prefix="")

    @classmethod
    def build_model(cls, args: Namespace, task: FairseqTask) -> "VisualTransformerModel":
        """Build from flags; the size of the image features comes from the task's store and goes into the checkpoint.

        Raises:
            InputError: no store and no size, or two sizes that differ.
        """
        stored = getattr(task, "image_feature_size", 0)
        wanted = getattr(args, "visual_feature_size", None) or stored
        if not wanted:
            raise InputError(
                f"--arch {getattr(args, 'arch', cls.__name__)} needs images: give --image-features and --image-ids "
                "to --task grounded_translation; for the text-only twin use --arch transformer."
            )
        if stored and wanted != stored:
            raise InputError(
                f"the model takes image features of size {wanted}, but {task.cfg.image_features} has size {stored}. "
                f"{_SAME_STORE}"
            )
        if not stored:
            logger.warning("the model can use images, but without --image-features it has none: text alone must do.")
        args.visual_feature_size = wanted
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
        cls, cfg: VisualTransformerConfig, src_dict: Dictionary, embed_tokens: nn.Module
    ) -> VisualTransformerEncoder:
        """fairseq's encoder with this architecture's fusion behind it."""
        return VisualTransformerEncoder(cfg, src_dict, embed_tokens, cls.build_fusion(cfg))

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
            src_tokens: (B, T);  prev_output_tokens: (B, U);  visual: as in `VisualTransformerEncoder.forward`.
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

    def load_state_dict(
        self, state_dict: dict[str, Any], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """As fairseq's, but says which weights don't fit.

        Raises:
            InputError: the checkpoint was made with other flags.
        """
        if strict:
            check_checkpoint_fits(self, state_dict)
        return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)


def _tiny(args: Namespace) -> None:
    """The small setting that work on Multi30k compares on (4+4 layers, D 128)."""
    for side in ("encoder", "decoder"):
        for name, value in (("embed_dim", 128), ("ffn_embed_dim", 256), ("attention_heads", 4), ("layers", 4)):
            setattr(args, f"{side}_{name}", getattr(args, f"{side}_{name}", value))
    args.dropout = getattr(args, "dropout", 0.3)
    base_architecture(args)


def register_presets(model_name: str) -> None:
    """Register `--arch <model>` (the base size) and its presets `_tiny`, `_iwslt`, `_base`, `_big`."""
    presets: dict[str, Callable[[Namespace], None]] = {
        "": base_architecture,
        "_tiny": _tiny,
        "_iwslt": transformer_iwslt_de_en,
        "_base": base_architecture,
        "_big": transformer_vaswani_wmt_en_de_big,
    }
    for suffix, preset in presets.items():
        # A function of its own each: fairseq hands it the namespace and keeps it under the preset's name.
        register_model_architecture(model_name, model_name + suffix)(lambda args, preset=preset: preset(args))
