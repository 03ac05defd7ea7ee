"""`--arch grounded_albert`: a frozen text encoder and a cross-modal one over text and images (GS §2.1, §3.3)."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel, register_model
from torch import Tensor, nn

from ..errors import InputError
from ..modules.grounded_encoder import GroundedEncoder, GroundedWordHead
from ..modules.linear_cross_entropy import Answers, linear_cross_entropy
from ..modules.pretrained_encoder import ReadEncoder, first_layers, read_dropout, read_encoder, read_layers
from ..storage.outside import parse_json
from .bert_choices import built_from, gone_on_from
from .prediction import PredictionModel, cut_by, outputs_of
from .presets import register_presets
from .pretrained_start import Pretrained, PretrainedStartConfig, pretrained_of, read_pretrained, start_from
from .visual_model import StandardisedFeaturesConfig, StrictLoading, features_of, take_feature_size

TEXT_ENCODER = "albert-base-v2"  # GS §3.3


@dataclass
class GroundedAlbertConfig(PretrainedStartConfig, StandardisedFeaturesConfig):
    """The flags of the two encoders."""

    grounded_text_encoder: str = field(
        default=TEXT_ENCODER, metadata={"help": "encoder of text: any of transformers, a name on the hub or a folder"}
    )
    cross_modal_encoder: Optional[str] = field(
        default=None,
        metadata={"help": "encoder whose layers the cross-modal one begins with (default: the text encoder's)"},
    )
    cross_modal_layers: Optional[int] = field(
        default=None, metadata={"help": "first layers of that encoder that the cross-modal one has (default: all)"}
    )
    grounded_dropout: Optional[float] = field(
        default=None, metadata={"help": "dropout of both encoders (default: their own)"}
    )
    image_ranks: int = field(default=24, metadata={"help": "images of a sentence that the model tells apart, at most"})


class MaskedAnswers(NamedTuple):
    """What was told of a batch; None for what wasn't asked.

    Shapes:
        regions: (J, F), predicted features of hidden regions
        idle: (), 0, with a gradient of 0 for every weight that is trained: distributed training waits for all
    """

    words: Optional[Answers]
    regions: Optional[Tensor]
    idle: Tensor


@register_model("grounded_albert")  # no dataclass=: what is read goes into the flags that fairseq saves
class GroundedAlbertModel(StrictLoading, BaseFairseqModel):
    """Says hidden words, or the features of hidden regions.

    Under a task of understanding the same architecture is a `PredictionModel` over the same encoder, as `understands`
    says.

    Args:
        encoder: both encoders.

    Shapes:
        src_tokens: (B, T);  visual: the batch's `net_input["visual"]`
    """

    understands = True

    def __init__(self, encoder: GroundedEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        words = encoder.text.words
        self.word_head = GroundedWordHead(encoder.size, words.shape[1], words.shape[0])
        self.image_head = nn.Linear(encoder.size, encoder.feature_size) if encoder.feature_size else None

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, GroundedAlbertConfig(), delete_default=True, with_prefix="")

    @classmethod
    @built_from("grounded_config")
    def build_model(cls, args: Namespace, task: Any) -> Any:
        """Build from `--grounded-text-encoder` and `--cross-modal-encoder`, or from what a checkpoint keeps of them.

        Raises:
            InputError: no such encoders, or one of another dictionary; or as `build_prediction`.
        """
        if outputs_of(task) is not None:
            return build_prediction(args, task)
        if getattr(args, "visual_pretrained", None):
            raise InputError(
                "--visual-pretrained is for tasks of understanding; a grounded language model goes on from another one "
                "with --finetune-from-model."
            )
        encoder = build_grounded_encoder(args, task)
        encoder.freeze_text()
        return cls(encoder)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        visual: Optional[dict[str, Tensor]] = None,
        mask: int = -1,
        hidden_words: Optional[Tensor] = None,
        word_side: Optional[Tensor] = None,
        hidden_regions: Optional[Tensor] = None,
        region_side: Optional[Tensor] = None,
    ) -> MaskedAnswers:
        """Tell hidden words of some lines, beside all regions, and hidden regions of some, beside all words.

        Args:
            mask: number of what is shown in a hidden word's place.

        Shapes:
            src_tokens, hidden_words: (B, T);  hidden_regions: (B, N, R);  word_side, region_side: (B,) bool
            returns: () and (K,);  (J, F);  ()

        Raises:
            InputError: features of another size than this model was built for.
        """
        features_of(visual, self.encoder.feature_size)
        words = regions = None
        if hidden_words is not None and word_side is not None:
            tokens, images = _rows(src_tokens, word_side), _rows_of_images(visual, word_side)
            hidden = _rows(hidden_words, word_side)
            if hidden.any():
                states = self.word_states(tokens, hidden, images, mask)  # (K, E)
                words = linear_cross_entropy(states, self.encoder.text.words, self.word_head.bias, tokens[hidden])
        if hidden_regions is not None and region_side is not None and bool(region_side.any()) and self.image_head:
            images = _rows_of_images(visual, region_side)
            hidden = _rows(hidden_regions, region_side)
            found = self.encoder(_rows(src_tokens, region_side), images, hidden)
            regions = self.image_head(found.regions[hidden.flatten(1)])  # (J, F)
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        idle = torch.stack([weight.flatten()[0].float() * 0 for weight in trained]).sum()
        return MaskedAnswers(words, regions, idle)

    def word_states(self, tokens: Tensor, hidden: Tensor, visual: Optional[dict[str, Tensor]], mask: int) -> Tensor:
        """States of hidden words, line by line, to be multiplied with the text encoder's words.

        Shapes:
            tokens, hidden: (B, T);  returns: (K, E)
        """
        found = self.encoder(tokens.masked_fill(hidden, mask), visual)
        own = text_states(found.text, tokens, self.encoder)  # (B, T or T - 1, D)
        states: Tensor = self.word_head(own[hidden[:, : own.shape[1]]])  # `</s>` is never hidden
        return states

    def max_positions(self) -> int:
        """The longest source, with its end."""
        return self.encoder.text.max_positions


def _rows(batch: Tensor, chosen: Tensor) -> Tensor:
    """Some lines of a batch.

    Shapes:
        batch: (B, …);  chosen: (B,) bool
        returns: (B', …)
    """
    return batch if bool(chosen.all()) else batch[chosen]


def _rows_of_images(visual: Optional[dict[str, Tensor]], chosen: Tensor) -> Optional[dict[str, Tensor]]:
    """The images of some lines.

    Shapes:
        chosen: (B,) bool
    """
    return None if visual is None else {name: _rows(each, chosen) for name, each in visual.items()}


def text_states(states: Tensor, src_tokens: Tensor, encoder: GroundedEncoder) -> Tensor:
    """The states of a source's own positions, without those of what the encoder puts before it.

    Sources are padded on the right here, as the tasks of this encoder collate them.

    Shapes:
        states: (B, T', D);  src_tokens: (B, T)
        returns: (B, T or T - 1, D): an encoder without an end has no state for `</s>`
    """
    found: Tensor = states[:, encoder.text.opens : encoder.text.opens + src_tokens.shape[1]]
    return found


def build_prediction(args: Namespace, task: Any) -> PredictionModel:
    """Both encoders and a head (GS §4.2), everything trained; from `--visual-pretrained`, or begun anew.

    Raises:
        InputError: as `build_grounded_encoder`; what was pre-trained is of other words, features or encoders.
    """
    from_checkpoint = bool(getattr(args, "grounded_config", None))
    if (
        not from_checkpoint
        and getattr(args, "visual_feature_size", None)
        and not getattr(task, "image_feature_size", 0)
    ):
        raise InputError(
            "--visual-feature-size is for a model with images: give --image-features and --image-ids, or leave it out."
        )
    pretrained = None if from_checkpoint else pretrained_of(args, task, ("grounded_albert",))
    if pretrained is not None:
        pretrained.check_words("source", task.source_dictionary.symbols, "the dictionary of the text")
        _check_tokenizer(pretrained, cut_by(task))
        pretrained.check_features(task)
    model = PredictionModel(build_grounded_encoder(args, task, pretrained), int(task.outputs))
    if pretrained is not None:
        looking = ("encoder.image_projection.", "encoder.image_ranks.", "encoder.standardise.")
        unseen = [] if model.encoder.feature_size else [f"{name}*" for name in looking]
        own = [name for name, _ in model.named_parameters() if name.startswith("encoder.")]
        own += [name for name, _ in model.named_buffers() if name.startswith("encoder.standardise.")]
        left = ["word_head.*", "image_head.*", *unseen]
        if not any(name.startswith("encoder.image_projection.") for name in pretrained.weights):
            # It never saw an image, so what looks at them begins here.
            begun = [name for name in own if name.startswith(looking)]
            own = [name for name in own if name not in begun]
            start_from(model, {name: name for name in own}, pretrained, left, ["head.*", *begun])
        else:
            start_from(model, {name: name for name in own}, pretrained, left, ["head.*"])
    return model


def _check_tokenizer(pretrained: Pretrained, cut: str) -> None:
    """Refuse text that another tokenizer cut than that of a pre-trained encoder, into pieces of the same spelling."""
    choices = parse_json(pretrained.args.grounded_config)
    text = choices[0] if isinstance(choices, list) and choices else None  # whoever builds it refuses others
    own = text.get("tokenizer_sha256") if isinstance(text, dict) else None
    if own and cut and own != cut:  # checkpoints of before don't say
        raise InputError(
            f"the text should be cut by the tokenizer of the encoder in {pretrained.path}, whose sha256 is "
            f"{own!s:.64}, but was cut by another, {cut:.64}. Prepare it with the --tokenizer of pre-training's "
            f"--grounded-text-encoder, {getattr(pretrained.args, 'grounded_text_encoder', None)}."
        )


def build_grounded_encoder(args: Namespace, task: Any, pretrained: Optional[Pretrained] = None) -> GroundedEncoder:
    """Both encoders, from the hub or folders, or from what a checkpoint keeps of them.

    Args:
        pretrained: whose encoders they are; None for those that the flags name.

    Their choices go into `args.grounded_config`, and so into checkpoints: nothing else is read when one is loaded.

    Raises:
        InputError: as `GroundedAlbertModel.build_model`.
    """
    take_feature_size(args, task, twin=None)
    read = _take_encoders(args, task, pretrained)
    text, cross_modal = parse_json(args.grounded_config)
    standardise = bool(getattr(args, "visual_standardise", False))  # checkpoints of before don't say
    encoder = GroundedEncoder(text, cross_modal, args.visual_feature_size, args.image_ranks, standardise)
    if read is not None:
        encoder.text.model.load_state_dict(read[0].weights)
        encoder.cross_modal.load_encoder(read[1].weights)
        encoder.cross_modal.check_masks()
    return encoder


def _take_encoders(
    args: Namespace, task: Any, pretrained: Optional[Pretrained]
) -> Optional[tuple[ReadEncoder, ReadEncoder]]:
    """Decide on both encoders, and set `args.grounded_config`; what was read, None where it comes from a checkpoint."""
    if getattr(args, "grounded_config", None):
        return None
    dropout = getattr(args, "grounded_dropout", None)
    before = gone_on_from(task)
    if before is not None:
        pretrained = read_pretrained(before, ("grounded_albert",))
    if pretrained is not None:
        theirs = pretrained.args
        for flag in ("image_ranks", "grounded_text_encoder", "cross_modal_encoder", "cross_modal_layers"):
            given = getattr(args, flag, None)
            if given is not None and given != getattr(theirs, flag, None):
                raise InputError(
                    f"--{flag.replace('_', '-')} is {given}, but training goes on from {pretrained.path}, where it is "
                    f"{getattr(theirs, flag, None)}: leave the flag out."
                )
        args.image_ranks = theirs.image_ranks
        if theirs.visual_feature_size:
            standardised = bool(getattr(theirs, "visual_standardise", False))
            if getattr(args, "visual_standardise", False) and not standardised:
                raise InputError(
                    f"--visual-standardise is given, but training goes on from {pretrained.path}, which reads features "
                    "as they are: leave the flag out."
                )
            args.visual_standardise = standardised
        choices = parse_json(theirs.grounded_config)
        args.grounded_config = json.dumps(
            [read_dropout(each, dropout) for each in choices] if dropout is not None else choices
        )
        return None
    if getattr(args, "image_ranks", None) is None:
        args.image_ranks = GroundedAlbertConfig.image_ranks
    name = getattr(args, "grounded_text_encoder", None) or TEXT_ENCODER
    symbols, place = task.source_dictionary.symbols, "the dictionary of the text"
    text = read_encoder(name, symbols, place, cut_by(task))
    other = getattr(args, "cross_modal_encoder", None) or name
    cross_modal = text if other == name else read_layers(other)
    layers = getattr(args, "cross_modal_layers", None)
    choices = [text.choices, cross_modal.choices if layers is None else first_layers(cross_modal.choices, layers)]
    if dropout is not None:
        choices = [read_dropout(each, dropout) for each in choices]
    args.grounded_config = json.dumps(choices)
    return text, cross_modal


register_presets("grounded_albert", {"": lambda args: None})
