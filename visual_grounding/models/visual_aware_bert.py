"""`--arch visual_aware_bert`: VA §2.2 to §2.5 for understanding, a pretrained encoder whose states look at images."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from torch import Tensor, nn

from ..errors import InputError
from ..modules.pretrained_encoder import PretrainedEncoder, build_encoder, read_dropout, read_encoder
from ..modules.visual_attention import ImageProjection, VisualAttention
from ..storage.outside import parse_json
from .bert_choices import built_from, gone_on_from
from .prediction import PredictionModel, cut_by, outputs_of
from .presets import register_presets
from .pretrained_start import read_pretrained
from .visual_model import ImageProjectionConfig, VisualAttentionConfig, features_of, take_feature_size

BERT = "bert-base-uncased"  # VA §4.2


@dataclass
class VisualAwareBertConfig(VisualAttentionConfig, ImageProjectionConfig):
    """The flags of the encoder and of what looks at images."""

    bert: str = field(
        default=BERT, metadata={"help": "encoder of text: any of transformers, a name on the hub or a folder"}
    )
    bert_dropout: Optional[float] = field(
        default=None, metadata={"help": "dropout of the encoder's states and attention (default: its own)"}
    )


class VisualAwareBert(nn.Module):
    """A pretrained encoder; its states look at the images in one layer of attention (VA eq. 2 and 3).

    Without images there is no such layer: the encoder alone.

    Args:
        text: the encoder.
        projection: of images; None for text alone.
        fusion: the layer; None for text alone.

    Shapes:
        src_tokens: (B, T);  visual["features"]: (B, N, R, F)
        returns: (B, T', D)
    """

    def __init__(
        self,
        text: PretrainedEncoder,
        projection: Optional[ImageProjection],
        fusion: Optional[VisualAttention],
    ) -> None:
        super().__init__()
        self.text = text
        self.image_projection = projection
        self.fusion = fusion
        self.feature_size = 0 if projection is None else projection.feature_size
        self.size, self.opens, self.max_positions, self.dropout = (
            text.size,
            text.opens,
            text.max_positions,
            text.dropout,
        )

    def states(self, src_tokens: Tensor, visual: Optional[dict[str, Tensor]] = None) -> Tensor:
        """Encode the text, then let it look at its images.

        Shapes:
            src_tokens: (B, T);  returns: (B, T', D)

        Raises:
            InputError: images for a model of text alone, or features of another size.
        """
        states, _ = self.text(src_tokens)  # (B, T', D)
        found = features_of(visual, self.feature_size)
        if self.fusion is None or self.image_projection is None:
            return states
        images = absent = None
        if found is not None:
            images, absent = self.image_projection(*found), found[1].flatten(1)  # (B, M, D), (B, M)
        fused: Tensor = self.fusion(states.transpose(0, 1), images, absent).transpose(0, 1)
        return fused


@register_model("visual_aware_bert")  # no dataclass=: what is read goes into the flags that fairseq saves
class VisualAwareBertModel(PredictionModel):
    """Tells classes, numbers or tags from a pretrained encoder's states, which have looked at images."""

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, VisualAwareBertConfig(), delete_default=True, with_prefix="")

    @classmethod
    @built_from("bert_config")
    def build_model(cls, args: Namespace, task: Any) -> "VisualAwareBertModel":
        """Build from `--bert`, or from what a checkpoint keeps of it.

        Raises:
            InputError: a task that asks for nothing, no such encoder, or one of another dictionary.
        """
        outputs = outputs_of(task)
        if outputs is None:
            raise InputError(
                "--arch visual_aware_bert tells classes, numbers or tags of text: train it with --task "
                "grounded_sentence_prediction or grounded_tagging."
            )
        _check_flags(args, task)
        given = VisualAwareBertConfig()
        for name in vars(given):
            if not name.startswith("_") and getattr(args, name, None) is None:
                setattr(args, name, getattr(given, name))
        take_feature_size(args, task, twin=None)
        weights = _take_encoder(args, task)
        text = build_encoder(parse_json(args.bert_config))
        if weights is not None:
            text.model.load_state_dict(weights)
        projection = fusion = None
        if args.visual_feature_size:
            heads = args.visual_attention_heads or _heads_of(text)
            if heads < 1 or text.size % heads:
                raise InputError(
                    f"--visual-attention-heads should divide the encoder's size, {text.size}, but is {heads}."
                )
            projection = ImageProjection(
                args.visual_feature_size, text.size, args.visual_ffn_dim, args.visual_dropout, args.visual_standardise
            )
            fusion = VisualAttention(text.size, heads, text.dropout)
        return cls(VisualAwareBert(text, projection, fusion), outputs)


def _check_flags(args: Namespace, task: Any) -> None:
    """Refuse what contradicts, where nothing comes from a checkpoint that is loaded.

    Other flags of the images stay allowed without any: a text-only twin is trained by the same command.

    Raises:
        InputError: a size of features without images; another encoder than the one that training goes on with.
    """
    if getattr(args, "bert_config", None):
        return
    if getattr(args, "visual_feature_size", None) and not task.image_feature_size:
        raise InputError(
            "--visual-feature-size is for a model with images: give --image-features and --image-ids, or leave it out."
        )
    before, given = gone_on_from(task), getattr(args, "bert", None)
    learned = read_pretrained(before, ("visual_aware_bert",)).args.bert if before is not None else given
    if given is not None and given != learned:
        raise InputError(
            f"--bert is {given}, but training goes on from {before}, where it is {learned}: leave the flag out."
        )


def _take_encoder(args: Namespace, task: Any) -> Optional[dict[str, Tensor]]:
    """Set `args.bert_config`, which goes into checkpoints; the encoder's weights, None where a checkpoint has them."""
    if getattr(args, "bert_config", None):
        return None
    before = gone_on_from(task)
    weights = None
    if before is not None:
        choices = parse_json(read_pretrained(before, ("visual_aware_bert",)).args.bert_config)
    else:
        read = read_encoder(args.bert, task.source_dictionary.symbols, "the dictionary of the text", cut_by(task))
        choices, weights = read.choices, read.weights
    if args.bert_dropout is not None:
        choices = read_dropout(choices, args.bert_dropout)
    args.bert_config = json.dumps(choices)
    return weights


def _heads_of(text: PretrainedEncoder) -> int:
    heads: int = text.model.config.num_attention_heads
    return heads


register_presets("visual_aware_bert", {"": lambda args: None})
