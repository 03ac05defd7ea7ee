"""`--arch vtlm_translation`: translation from one stream of text and regions, which may start from `vtlm` (VTLM §2.4).

The encoder reads the source sentence as `vtlm` reads a sentence, `</s> x </s>`, and the regions behind it; without
images (NMT) it is the same model without weights for regions. The decoder has the embeddings and layers of the
encoder, so with `--visual-pretrained` both start from the same weights, and its cross-attention from self-attention.
"""

import logging
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Optional

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.modules import LayerNorm
from torch import Tensor, nn

from ..errors import InputError
from ..text.tokenizer_bridge import MASK
from .presets import register_presets
from .pretrained_start import Pretrained, PretrainedStartConfig, pretrained_of, start_from
from .text_and_regions import TextAndRegionsEncoder
from .text_and_regions_decoder import IncrementalState, TextAndRegionsDecoder, TextAndRegionsModel
from .visual_model import take_feature_size
from .visual_stream import NORM_EPS, LanguageEmbedding, VisualStream, embedding_of
from .vtlm import STREAM_PRESETS, RegionStreamConfig

logger = logging.getLogger(__name__)

_LANGUAGES = "encoder.embed_languages.language_"  # names of pre-trained weights begin so
_WITH_A_ROW_PER_WORD = ("encoder.embed_tokens.weight", "word_head.weight", "word_head.bias")


@dataclass
class VTLMTranslationConfig(PretrainedStartConfig, RegionStreamConfig):
    """fairseq's transformer flags, those of regions in the stream, and of the start from a pre-trained one."""

    visual_random_cross_attention: bool = field(
        default=False,
        metadata={
            "help": "with --visual-pretrained: the decoder's cross-attention begins at random, not as self-attention"
        },
    )


class VTLMTranslationEncoder(TextAndRegionsEncoder):
    """The stream with one sentence in it.

    Args:
        stream: of the source language alone.
    """

    def __init__(self, stream: VisualStream) -> None:
        super().__init__(stream.dictionary)
        self.stream = stream

    def max_positions(self) -> int:
        """Words that a source may have with its own `</s>`; one position is the `</s>` before them."""
        return self.stream.max_positions() - 1

    def opened(self, src_tokens: Tensor) -> Tensor:
        """Sentences with `</s>` before their first word, padded on the left or on the right.

        Shapes:
            src_tokens: (B, T)
            returns: (B, 1 + T)
        """
        pad = self.dictionary.pad()
        leading = (src_tokens != pad).cumsum(dim=1).eq(0).sum(dim=1, keepdim=True)  # (B, 1) padding before the words
        shifted = torch.cat([torch.full_like(src_tokens[:, :1], pad), src_tokens], dim=1)
        return shifted.scatter(1, leading, self.dictionary.eos())

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
        visual: Optional[dict[str, Tensor]] = None,
    ) -> dict[str, list[Tensor]]:
        """Encode text and regions together.

        Shapes:
            src_tokens: (B, T), `</s>` at the end;  visual: as docs/architecture.md, with boxes
            returns: as `TextAndRegionsEncoder`, L = 1 + T

        Raises:
            InputError: regions without boxes, or of another size than the model was built for.
        """
        tokens = self.opened(src_tokens)
        there = tokens != self.dictionary.pad()  # (B, L)
        positions = (there.cumsum(dim=1) - 1).clamp(min=0)
        states, _, region_padding_mask = self.stream(tokens, positions, torch.zeros_like(tokens), visual)
        columns = torch.arange(1, tokens.shape[1], device=tokens.device).expand_as(src_tokens)
        return self.text_and_regions_out(
            states,
            ~there,
            region_padding_mask,
            columns.masked_fill(src_tokens == self.dictionary.pad(), -1),
            src_lengths=[(src_tokens != self.dictionary.pad()).sum(dim=1, keepdim=True)],
        )


class PositionsOfLanguage(nn.Module):
    """Learned positions, from 0, each with the vector of the one language that all words are of."""

    def __init__(self, count: int, size: int, language: str, pad: int) -> None:
        super().__init__()
        self.pad = pad
        self.max_positions = count
        self.positions = embedding_of(count, size)
        self.language = LanguageEmbedding([language], size)

    def forward(self, tokens: Tensor, incremental_state: Optional[IncrementalState] = None) -> Tensor:
        """tokens (B, U) -> (B, U, D); in beam search (B, 1, D) of the last."""
        if incremental_state is None:
            positions = ((tokens != self.pad).cumsum(dim=1) - 1).clamp(min=0)  # (B, U)
        else:
            positions = torch.full_like(tokens[:, -1:], tokens.shape[1] - 1)
        return self.positions(positions) + self.language(torch.zeros_like(positions))


class VTLMTranslationDecoder(TextAndRegionsDecoder):
    """A decoder with the stream's embeddings: word, position and language, then the norm; and a bias at its output.

    Raises:
        InputError: a flag of embeddings or of the output that the stream hasn't, such as `--adaptive-input`.
    """

    def __init__(
        self, cfg: TransformerConfig, dictionary: Dictionary, embed_tokens: nn.Embedding, language: str
    ) -> None:
        for flag, value in (
            ("--adaptive-softmax-cutoff", cfg.adaptive_softmax_cutoff),
            ("--adaptive-input", cfg.adaptive_input),
            ("--decoder-embed-path", cfg.decoder.embed_path),
            ("--merge-src-tgt-embed", cfg.merge_src_tgt_embed),
        ):
            if value:
                raise InputError(f"--arch vtlm_translation has no {flag}: leave it out.")
        super().__init__(cfg, dictionary, embed_tokens)
        size = cfg.decoder.embed_dim
        self.embed_positions = PositionsOfLanguage(cfg.max_target_positions, size, language, dictionary.pad())
        self.layernorm_embedding = LayerNorm(size, eps=NORM_EPS)

    def build_output_projection(
        self, cfg: TransformerConfig, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> None:
        """One linear layer with a bias, as the word head of `vtlm`; its weight may be the embedding's."""
        size = cfg.decoder.output_dim
        self.output_projection = nn.Linear(size, len(dictionary))
        nn.init.normal_(self.output_projection.weight, std=size**-0.5)
        nn.init.zeros_(self.output_projection.bias)
        if self.share_input_output_embed:
            self.output_projection.weight = embed_tokens.weight


@register_model("vtlm_translation")
class VTLMTranslationModel(TextAndRegionsModel):
    """Translate a sentence, beside the regions of its images where there are some.

    Attributes:
        reads_columns: what it reads of regions beside features.
    """

    reads_columns = ("boxes",)

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, VTLMTranslationConfig(), delete_default=True, with_prefix="")

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "VTLMTranslationModel":
        """Build from flags, and start from a pre-trained model where one is named.

        Raises:
            InputError: a store without boxes, or with features of another size; embeddings that can't be shared; a
                pre-trained model of other words, languages, features, sizes or heads.
        """
        take_feature_size(args, task, twin=None)
        if getattr(task, "images", None) is not None:
            task.images.need_columns("boxes", why="for --arch vtlm_translation")
        at_random = bool(getattr(args, "visual_random_cross_attention", False))
        if at_random and not getattr(args, "visual_pretrained", None):
            logger.warning("all weights begin at random: --visual-random-cross-attention is for --visual-pretrained")
        args.visual_random_cross_attention = False  # like that, it isn't kept in checkpoints
        pretrained = pretrained_of(args, task, ("vtlm",))
        source, target = languages_of(task)
        if pretrained is not None:
            check_fits(pretrained, task, source, target)
        base_architecture(args)
        cfg: Any = VTLMTranslationConfig.from_namespace(args)
        words = task.source_dictionary, task.target_dictionary
        stream = VisualStream(cfg, words[0], [source], cfg.visual_feature_size, cfg.visual_dropout)
        embedding = stream.embed_tokens
        if not cfg.share_all_embeddings:
            embedding = embedding_of(len(words[1]), cfg.decoder.embed_dim, words[1].pad())
        elif words[0].symbols != words[1].symbols or cfg.encoder.embed_dim != cfg.decoder.embed_dim:
            raise InputError(
                f"--share-all-embeddings is for two languages with one dictionary and encoder and decoder of one size, "
                f"but dict.{source}.txt has {len(words[0])} symbols, dict.{target}.txt {len(words[1])}, and the sizes "
                f"are {cfg.encoder.embed_dim} and {cfg.decoder.embed_dim}. Binarise the text with fairseq-preprocess "
                "--joined-dictionary."
            )
        decoder = VTLMTranslationDecoder(cfg, words[1], embedding, target)
        model = cls(VTLMTranslationEncoder(stream), decoder)
        if pretrained is not None:
            heads = "encoder_attention_heads"
            pretrained.check_choice(heads, heads, cfg.encoder.attention_heads)
            pretrained.check_choice("decoder_attention_heads", heads, cfg.decoder.attention_heads)
            pretrained.check_choice("activation_fn", "activation_fn", str(cfg.activation_fn))
            first = "encoder_normalize_before"
            pretrained.check_choice(first, first, cfg.encoder.normalize_before)
            pretrained.check_choice("decoder_normalize_before", first, cfg.decoder.normalize_before)
            check_depth(pretrained, cfg)
            start_from_stream(model, pretrained, at_random)
        return model


def languages_of(task: Any) -> tuple[str, str]:
    """Source and target of a translation task.

    Raises:
        InputError: the task has none.
    """
    languages = [getattr(task.cfg, f"{side}_lang", None) for side in ("source", "target")]
    if not all(languages):
        raise InputError(
            "--arch vtlm_translation translates from one language to another: train it with --task "
            "grounded_translation, and name both with --source-lang and --target-lang where the data doesn't tell."
        )
    return str(languages[0]), str(languages[1])


def check_fits(pretrained: Pretrained, task: Any, source: str, target: str) -> None:
    """Refuse a pre-trained model that knows other words or languages, or features of another making.

    Raises:
        InputError: it is one of these.
    """
    known = sorted(name.removeprefix(_LANGUAGES) for name in pretrained.weights if name.startswith(_LANGUAGES))
    lacking = [language for language in (source, target) if language not in known]
    if lacking:
        raise InputError(
            f"{pretrained.path} was pre-trained on the languages {', '.join(known)}, but the translation is from "
            f"{source} to {target}. Pre-train with {' and '.join(lacking)}, too: fairseq-train --task visual_tlm "
            f"--lang-pairs {source}-{target}"
        )
    folder = utils.split_paths(task.cfg.data)[0]
    for language, dictionary in ((source, task.source_dictionary), (target, task.target_dictionary)):
        pretrained.check_words("stream", dictionary.symbols, os.path.join(folder, f"dict.{language}.txt"))
    pretrained.check_features(task)


def check_depth(pretrained: Pretrained, cfg: Any) -> None:
    """Refuse an encoder or a decoder of fewer or more layers than the stream has: each layer starts as the stream's.

    Raises:
        InputError: it has.
    """
    layers = len({name.split(".")[2] for name in pretrained.weights if name.startswith("encoder.layers.")})
    for side in ("encoder", "decoder"):
        if getattr(cfg, side).layers != layers:
            raise InputError(
                f"--{side}-layers should be {layers}, as {pretrained.path} has so many, but is "
                f"{getattr(cfg, side).layers}: every layer starts as the one of its number there. Give --{side}-layers "
                f"{layers}."
            )


def start_from_stream(model: VTLMTranslationModel, pretrained: Pretrained, random_cross_attention: bool) -> None:
    """Begin with the weights of a pre-trained stream, in encoder and decoder.

    The label head is left out, and so are other languages; without images what is for regions, too. Pre-training may
    have added the word `<mask>` at the end, which then has no place, either.

    Raises:
        InputError: sizes differ.
    """
    words = len(model.decoder.dictionary)
    weights = dict(pretrained.weights)
    if len(weights[_WITH_A_ROW_PER_WORD[0]]) == words + 1 and MASK not in model.decoder.dictionary.symbols:
        weights |= {name: weights[name][:words] for name in _WITH_A_ROW_PER_WORD}
        logger.info("left out: the word %s, which the dictionary of the translation hasn't", MASK)
    knows_regions = any(name.startswith("encoder.image_embedding.") for name in weights)
    sources = dict(_sources(model))
    fresh = []
    if random_cross_attention:
        fresh.append("decoder.layers.*.encoder_attn*")
        sources = {name: source for name, source in sources.items() if ".encoder_attn" not in name}
    if not knows_regions:  # TLM: regions are new to it
        fresh.append("encoder.stream.image_embedding.*")
        sources = {name: source for name, source in sources.items() if ".image_embedding." not in name}
    left_out = ["image_label_head.*", f"{_LANGUAGES}*"]
    if model.encoder.stream.image_embedding is None:
        left_out.append("encoder.image_embedding.*")
    start_from(model, sources, replace(pretrained, weights=weights), left_out, fresh)


def _sources(model: VTLMTranslationModel) -> Iterator[tuple[str, str]]:
    """Each weight of the model, and the pre-trained one that it starts as."""
    for name, _ in model.named_parameters(remove_duplicate=False):
        side, rest = name.split(".", 1)
        if side == "encoder":
            yield name, f"encoder.{rest.removeprefix('stream.')}"
        elif rest.startswith("output_projection."):
            yield name, rest.replace("output_projection", "word_head")
        else:
            rest = rest.replace("embed_positions.positions.", "embed_positions.")
            rest = rest.replace("embed_positions.language.", "embed_languages.")
            yield name, f"encoder.{rest.replace('.encoder_attn', '.self_attn')}"


register_presets("vtlm_translation", STREAM_PRESETS)
