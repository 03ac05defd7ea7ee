"""`--arch vlp_translation`: VLP §3.3 for translation, from text alone as well (the paper's BERT-enc).

The source, tags and regions go through the BERT of `--arch vlp_bert` as one stream, a linear layer brings them to the
decoder's size, and the decoder attends to all of them. It begins from a pre-trained checkpoint (`--visual-pretrained`),
from a BERT (`--bert`), or with random numbers. `--visual-freeze-encoder` is the first stage of §3.4; the second begins
from the first's best checkpoint by `--finetune-from-model`, without that flag.
"""

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.models.transformer.transformer_legacy import base_architecture
from torch import Tensor, nn

from ..errors import InputError, printable
from ..modules.vision_language_bert import VisionLanguageBert
from .bert_choices import built_from, gone_on_from, take_bert
from .presets import Preset, register_presets
from .pretrained_start import Pretrained, PretrainedStartConfig, pretrained_of, start_from
from .text_and_regions import TextAndRegionsEncoder
from .text_and_regions_decoder import TextAndRegionsDecoder, TextAndRegionsModel
from .vision_language_model import BERT_PRESETS, MODELS, VisionLanguageConfig, build_stream
from .visual_model import TEXT_ALONE, features_of, take_feature_size

logger = logging.getLogger(__name__)

# Of fairseq's transformer, but of an encoder that this model hasn't.
_NO_SUCH = ("share_all_embeddings", "merge_src_tgt_embed", "no_cross_attention")
_DECODERS: dict[str, dict[str, Any]] = {
    "": {},
    "_small": {"embed_dim": 256, "ffn_embed_dim": 1024, "attention_heads": 4, "layers": 4},
    "_tiny": {"embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 4, "layers": 4},
}
_DECODER = {"embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8, "layers": 6}


@dataclass
class VLPTranslationConfig(PretrainedStartConfig, VisionLanguageConfig, TransformerConfig):
    """Flags of the encoder's BERT, of a pre-trained start, and of fairseq's transformer for the decoder."""

    visual_freeze_encoder: bool = field(
        default=False,
        metadata={"help": "keep BERT and the regions' projection as they were pre-trained, in evaluation mode"},
    )


class VLPTranslationEncoder(TextAndRegionsEncoder):
    """BERT over text, tags and regions, and a linear layer to the decoder's size (VLP §3.3).

    Args:
        dictionary: of the source.
        stream: the BERT.
        size: of the decoder.
        freeze: keep BERT as it is, without its own dropout (VLP §3.4).
    """

    def __init__(self, dictionary: Dictionary, stream: VisionLanguageBert, size: int, freeze: bool = False) -> None:
        super().__init__(dictionary)
        self.projection = nn.Linear(stream.size, size)
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        self.stream = stream
        self.freeze = freeze
        if freeze:
            # The trainer's optimizer is made of the weights that want a gradient, so it never touches these.
            stream.requires_grad_(False)

    def train(self, mode: bool = True) -> "VLPTranslationEncoder":
        """Switch to training; a frozen BERT stays in evaluation mode."""
        super().train(mode)
        if self.freeze:
            self.stream.eval()
        return self

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        visual: Optional[dict[str, Tensor]] = None,
    ) -> dict[str, list[Tensor]]:
        """Encode sentences with their tags and regions, or text alone.

        Shapes:
            src_tokens: (B, T);  visual: the batch's `net_input["visual"]`
            returns: as `TextAndRegionsEncoder`, `encoder_out[0]` (L + M, B, D)

        Raises:
            InputError: images for a model that was trained on text alone, or features of another size.
        """
        features_of(visual, self.stream.feature_size)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            hidden, text_absent, regions_absent, _ = self.stream(src_tokens, visual)
        padding = src_tokens == self.dictionary.pad()
        # Column t of the source stands behind [CLS].
        positions = torch.arange(1, src_tokens.shape[1] + 1, device=padding.device).expand_as(padding)  # (B, T)
        return self.text_and_regions_out(
            self.projection(hidden).transpose(0, 1),  # (B, L + M, D) -> (L + M, B, D)
            text_absent,
            regions_absent,
            positions.masked_fill(padding, -1),
            src_tokens=[src_tokens],
        )

    def max_positions(self) -> int:
        """The longest source, with its end; tags take what is left."""
        return self.stream.max_positions


@register_model("vlp_translation")  # no dataclass=: fairseq's TransformerConfig can't be one
class VLPTranslationModel(TextAndRegionsModel):
    """BERT over text, tags and regions, and a decoder that attends to all of it.

    Attributes:
        reads_image_tags: it takes `--image-tags`.
        reads_columns: what it reads of regions beside features and tags.
        needs_columns: what its images need beside features; nothing for a model of text alone.
    """

    reads_image_tags = True
    reads_columns = ("boxes",)

    @property
    def needs_columns(self) -> tuple[str, ...]:
        """Boxes, where there are regions."""
        return ("boxes",) if self.encoder.stream.feature_size else ()

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, VLPTranslationConfig(), delete_default=True, with_prefix="")

    @classmethod
    @built_from("bert_config")
    def build_model(cls, args: Namespace, task: Any) -> "VLPTranslationModel":
        """Build from flags, or from what a checkpoint keeps of them.

        Raises:
            InputError: flags of an encoder that this model hasn't; a pre-trained checkpoint, a first stage or a BERT
                that doesn't fit; nothing that could be frozen.
        """
        from_checkpoint = bool(getattr(args, "bert_config", None))
        pretrained = None
        if not from_checkpoint:
            _check_flags(args)
            pretrained = pretrained_of(args, task, ("vlp_bert",))
        if pretrained is not None:
            _check_pretrained(pretrained, task)
        before = None if from_checkpoint else gone_on_from(task)
        begins_anew = pretrained is None and not from_checkpoint and before is None
        read = take_bert(args, task, MODELS, pretrained)
        _take_feature_size(args, task, from_checkpoint)
        freeze = bool(getattr(args, "visual_freeze_encoder", False))
        if freeze and begins_anew:
            _check_frozen(read is not None, args.visual_feature_size)
        for name, value in _DECODER.items():
            setattr(args, f"decoder_{name}", getattr(args, f"decoder_{name}", None) or value)
        args.encoder_embed_dim = args.decoder_embed_dim  # what the decoder attends to has its size
        base_architecture(args)
        cfg = VLPTranslationConfig.from_namespace(args)
        cfg.decoder.input_dim, cfg.decoder.output_dim = int(cfg.decoder.input_dim), int(cfg.decoder.output_dim)
        encoder = VLPTranslationEncoder(
            task.source_dictionary, build_stream(args, task, read), cfg.decoder.embed_dim, freeze
        )
        words = task.target_dictionary
        embedding = TransformerModelBase.build_embedding(cfg, words, cfg.decoder.embed_dim, cfg.decoder.embed_path)
        decoder = TextAndRegionsDecoder(cfg, words, embedding)
        model = cls(encoder, decoder)
        if pretrained is not None:
            _start(model, pretrained)
        return model


def _check_flags(args: Namespace) -> None:
    given = [name for name, value in vars(args).items() if name.startswith("encoder_") and value is not None]
    given += [name for name in _NO_SUCH if getattr(args, name, False)]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(
            f"{flags} are for fairseq's own encoder, but that of --arch vlp_translation is a BERT: give --bert-layers "
            "and the like for one that begins with random numbers, and leave these out."
        )


def _check_pretrained(pretrained: Pretrained, task: Any) -> None:
    """Refuse what was pre-trained on other words or features; warn where it was on other tags."""
    pretrained.check_words("source", task.source_dictionary.symbols, "the dictionary of the source")
    pretrained.check_features(task)
    images = getattr(task, "images", None)
    if images is None or images.store is None:
        return
    learned, given = pretrained.task_state.get("image_tags"), images.tags.choice if images.tags else None
    if learned != given:
        said = f"{pretrained.path} was pre-trained with {learned or 'no tags'} beside the text, but here it gets "
        logger.warning(printable(f"{said}{given or 'none'}: see --image-tags and --image-tag-score."))


def _take_feature_size(args: Namespace, task: Any, from_checkpoint: bool) -> None:
    """Set `args.visual_feature_size`: 0 for a model of text alone.

    Raises:
        InputError: images for a model of text alone, or features of another size.
    """
    stored = getattr(task, "image_feature_size", 0)
    size = getattr(args, "visual_feature_size", None) or 0
    if from_checkpoint and not size and stored:
        raise InputError(TEXT_ALONE)
    if size or stored:
        take_feature_size(args, task, twin="vlp_translation")
    else:
        args.visual_feature_size = 0


def _check_frozen(read: bool, feature_size: int) -> None:
    lacking = "BERT begins" if not read else "the regions' projection begins" if feature_size else ""
    if lacking:
        raise InputError(
            f"--visual-freeze-encoder keeps what was pre-trained, but {lacking} with random numbers: give "
            f"--visual-pretrained CHECKPOINT{'' if read else ' or, for text alone, --bert'}."
        )


def _start(model: VLPTranslationModel, pretrained: Pretrained) -> None:
    """Begin with the weights of the pre-trained stream; what is around it is new, its heads have no place."""
    own = [name for name, _ in model.named_parameters() if name.startswith("encoder.stream.")]
    unseen = not model.encoder.stream.feature_size
    start_from(
        model,
        {name: name.removeprefix("encoder.") for name in own},
        pretrained,
        left_out=["word_head.*", "paired_head.*", *(["stream.image_projection.*"] if unseen else [])],
        fresh=["encoder.projection.*", "decoder.*"],
    )


def _prepared(suffix: str, sizes: Mapping[str, Any]) -> Preset:
    def prepare(args: Namespace) -> None:
        BERT_PRESETS[suffix](args)
        for name, value in sizes.items():
            setattr(args, f"decoder_{name}", getattr(args, f"decoder_{name}", value))
        if suffix == "_tiny":  # as of the other architectures
            args.dropout = getattr(args, "dropout", 0.3)

    return prepare


register_presets("vlp_translation", {suffix: _prepared(suffix, sizes) for suffix, sizes in _DECODERS.items()})
