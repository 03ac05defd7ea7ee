"""`--arch vtlm`: words and labels of regions predicted from a single stream of both (VTLM §2.2)."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel, register_model
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_legacy import base_architecture
from torch import Tensor, nn

from ..errors import InputError
from ..text.tokenizer_bridge import MASK
from .presets import register_presets
from .visual_model import StrictLoading, VisualModelConfig, take_feature_size
from .visual_stream import VisualStream


@dataclass
class RegionStreamConfig(VisualModelConfig, TransformerConfig):
    """fairseq's transformer flags, and those of the regions in the stream."""

    visual_dropout: float = field(default=0.1, metadata={"help": "dropout on the embedding of a region"})


@dataclass
class VTLMConfig(RegionStreamConfig):
    """And that of the label head."""

    visual_labels: int = field(
        default=0, metadata={"help": "number of labels that a region may have; 0: as many as --image-features names"}
    )


@register_model("vtlm")
class VTLMModel(StrictLoading, BaseFairseqModel):
    """A single stream, a head for words and one for the labels of regions: one linear layer each.

    The word head has the weight of the input embedding, and a bias. Without images (TLM) there are no weights for
    regions; with them, a batch without images is read as text alone.

    Attributes:
        reads_columns: what it reads of regions beside features.

    Shapes:
        tokens, positions, languages: (B, L)
        visual: as docs/architecture.md, with boxes, and masked (B, N, R) where regions are masked
        words: (B, L) bool, which of them to predict; regions: (B, N, R) bool likewise. None for all
        returns: logits of the words (P, V) and of the labels (Q, labels), in row-major order; None for the latter
            without regions
    """

    reads_columns = ("boxes", "labels")

    def __init__(self, encoder: VisualStream, labels: int) -> None:
        super().__init__()
        dictionary = encoder.dictionary
        self.encoder = encoder
        self.mask = dictionary.index(MASK)
        size = encoder.embed_tokens.embedding_dim
        self.word_head = nn.Linear(size, len(dictionary))
        self.word_head.weight = encoder.embed_tokens.weight
        nn.init.zeros_(self.word_head.bias)
        self.image_label_head = nn.Linear(size, labels) if labels else None

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, VTLMConfig(), delete_default=True, with_prefix="")

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "VTLMModel":
        """Build from flags; sizes of features and labels come from the task's store and go into the checkpoint.

        Raises:
            InputError: the task isn't one of pairs in one stream; sizes that differ from those of the store.
        """
        if not hasattr(task, "stream_languages"):
            raise InputError(
                "--arch vtlm reads two sentences as one stream: train it with --task visual_tlm. "
                "For translation choose --arch vtlm_translation."
            )
        take_feature_size(args, task, twin=None)
        take_labels(args, task)
        base_architecture(args)
        cfg: Any = VTLMConfig.from_namespace(args)
        encoder = VisualStream(
            cfg, task.source_dictionary, task.stream_languages, cfg.visual_feature_size, cfg.visual_dropout
        )
        return cls(encoder, cfg.visual_labels)

    def max_positions(self) -> int:
        """Positions that each sentence may have."""
        return self.encoder.max_positions()

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        languages: Tensor,
        visual: Optional[dict[str, Tensor]] = None,
        words: Optional[Tensor] = None,
        regions: Optional[Tensor] = None,
    ) -> tuple[Tensor, Optional[Tensor]]:
        """tokens, positions, languages, words (B, L), regions (B, N, R) -> (P, V), (Q, labels).

        Raises:
            InputError: regions without boxes, or of another size than the model was built for.
        """
        states = self.encoder(tokens, positions, languages, visual, self.mask)[0].transpose(0, 1)  # (B, L + M, D)
        length = tokens.shape[1]
        of_words, of_regions = states[:, :length], states[:, length:]
        word_logits = self.word_head(of_words.flatten(0, 1) if words is None else of_words[words])
        if self.image_label_head is None or not of_regions.shape[1]:
            return word_logits, None
        chosen = of_regions.flatten(0, 1) if regions is None else of_regions[regions.flatten(1)]
        return word_logits, self.image_label_head(chosen)


def take_labels(args: Namespace, task: Any) -> None:
    """Set `args.visual_labels` to the number of labels in the task's store, if it isn't known yet.

    Raises:
        InputError: two numbers that differ.
    """
    stored = getattr(task, "image_labels", 0)
    wanted = getattr(args, "visual_labels", None) or stored
    if stored and wanted != stored:
        raise InputError(
            f"the model predicts {wanted} labels, but {task.cfg.image_features} names {stored}. Use the feature store "
            "that it was trained with, or one made by the same detector."
        )
    args.visual_labels = wanted


def stream_sizes(args: Namespace, size: int, ffn: int, layers: int, heads: int) -> None:
    """Sizes and the other choices of an encoder in the manner of XLM, and of a decoder that can start from it."""
    for side in ("encoder", "decoder"):
        for name, value in (
            ("embed_dim", size),
            ("ffn_embed_dim", ffn),
            ("attention_heads", heads),
            ("layers", layers),
        ):
            setattr(args, f"{side}_{name}", getattr(args, f"{side}_{name}", value))
    choices: dict[str, Any] = {
        "activation_fn": "gelu",
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "share_decoder_input_output_embed": True,
    }
    for name, value in choices.items():
        setattr(args, name, getattr(args, name, value))
    args.layernorm_embedding = args.no_scale_embedding = True
    base_architecture(args)


STREAM_PRESETS = {
    "": lambda args: stream_sizes(args, 512, 2048, 6, 8),  # the paper's
    "_small": lambda args: stream_sizes(args, 256, 1024, 4, 4),
    "_tiny": lambda args: stream_sizes(args, 128, 256, 4, 4),
}

register_presets("vtlm", STREAM_PRESETS)
