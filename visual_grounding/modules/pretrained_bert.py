"""A BERT or RoBERTa of transformers in fairseq's numbers: its sizes as a checkpoint keeps them, and its weights."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..storage.settings import TEXT, check_settings, number, whole_number
from ..text.pretrained_tokenizer import check_layers, load_pretrained
from ..text.tokenizer_bridge import BOS, EOS, TokenizerBridge
from ..text.words import PAD
from .encoder_input import EncoderInput

logger = logging.getLogger(__name__)

# All of a BERT's configuration that decides what it computes; the vocabulary is the dictionary's.
CHOICES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "layer_norm_eps", "initializer_range",
)  # fmt: skip
_COUNTED = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
    "type_vocab_size",
)  # fmt: skip
_WANTED = {
    **dict.fromkeys(_COUNTED, whole_number(1, 2**21)),  # of more, the memory would be asked before anything says so
    "hidden_act": TEXT,
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps"), number(0, 1)),
    "initializer_range": number(0, 1000),
}
WORDS = "embeddings.word_embeddings.weight"  # behind a family's prefix
POSITIONS = "embeddings.position_embeddings.weight"
BIAS = "bias"  # of the head
_TRANSFORM = (
    "transform.dense.weight",
    "transform.dense.bias",
    "transform.LayerNorm.weight",
    "transform.LayerNorm.bias",
)


@dataclass(frozen=True)
class Family:
    """What distinguishes the models that are computed as a BERT is.

    Attributes:
        kind: transformers' `model_type`.
        noun: as a person calls it, with its article.
        classes: names of transformers' configuration, model, and model with a head for masked words.
        example: one on the hub.
        prefix: of the names of its embeddings and layers.
        head: the names of the weights of `MaskedWordHead` -> those of its own head.
        positions_after_padding: positions are counted from the padding symbol's number + 1, as fairseq's are; else
            from 0.
    """

    kind: str
    noun: str
    classes: tuple[str, str, str]
    example: str
    prefix: str
    head: Mapping[str, str]
    positions_after_padding: bool

    @property
    def first_position(self) -> int:
        """Of a model in fairseq's numbers."""
        return PAD + 1 if self.positions_after_padding else 0

    def part(self, place: int) -> Any:
        """One of the `classes`."""
        import transformers

        return getattr(transformers, self.classes[place])


FAMILIES = {
    "bert": Family(
        "bert", "a BERT", ("BertConfig", "BertModel", "BertForMaskedLM"), "bert-base-uncased", "bert.",
        {name: f"cls.predictions.{name}" for name in (*_TRANSFORM, BIAS)}, False,
    ),
    "roberta": Family(
        "roberta", "a RoBERTa", ("RobertaConfig", "RobertaModel", "RobertaForMaskedLM"), "roberta-base", "roberta.",
        dict(zip((*_TRANSFORM, BIAS), (f"lm_head.{name}" for name in (
            "dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias", "bias")))), True,
    ),
}  # fmt: skip
BERT = FAMILIES["bert"]


@dataclass(frozen=True)
class PretrainedBert:
    """A BERT that was read.

    Attributes:
        choices: of its configuration, those of `CHOICES`.
        body: weights of its embeddings and layers, `bert.…`, with rows in the dictionary's order.
        head: those of its head for masked words, `transform.…` and `bias`; empty where it has none.
    """

    choices: dict[str, Any]
    body: dict[str, Tensor]
    head: dict[str, Tensor]


def check_choices(choices: Any, place: str | Path) -> dict[str, Any]:
    """Those of `CHOICES` that a checkpoint kept.

    Args:
        place: what messages call it.

    Raises:
        InputError: one isn't there, or is of another kind.
    """
    check_settings(place, choices, _WANTED)
    lacking = [name for name in CHOICES if name not in choices]
    if lacking:
        raise InputError(f"{place} should have the {', '.join(CHOICES)} of a BERT, but lacks {', '.join(lacking)}.")
    return {name: choices[name] for name in CHOICES}


def bert_config(choices: Mapping[str, Any], vocabulary_size: int, family: Family = BERT) -> Any:
    """transformers' configuration of a BERT over a dictionary, with torch's fused attention.

    Raises:
        InputError: heads don't divide the size, or one of the choices is of another kind.
    """
    check_settings(f"the configuration of {family.noun}", choices, _WANTED)
    size, heads = choices["hidden_size"], choices["num_attention_heads"]
    try:
        check_layers(choices)
    except ValueError as error:
        raise InputError(f"{family.noun} should have layers as models have, but {error}.") from error
    if size % heads:
        raise InputError(f"{family.noun}'s {heads} heads should divide its size, {size}, but don't.", "bert_heads")
    positions = choices["max_position_embeddings"] - family.first_position
    if positions < 3:
        raise InputError(
            f"{family.noun} should have positions for a word between [CLS] and [SEP], 3 at least, but has {positions}.",
            "bert_positions",
        )
    ends = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
    config = family.part(0)(**choices, vocab_size=vocabulary_size, **ends)
    config._attn_implementation = "sdpa"
    return config


def read_bert(name: str, symbols: Sequence[str], place: str, family: Family = BERT) -> PretrainedBert:
    """A BERT from the hub or a folder, in the numbers of a dictionary.

    Args:
        symbols: of the dictionary, by their numbers.
        place: its file, for messages.
        family: what it has to be.

    Raises:
        InputError: nothing loads from there, it is no BERT, or the dictionary isn't its tokenizer's.
    """
    from transformers import AutoConfig

    noun = family.noun.removeprefix("a ")
    wanted = (
        f"{noun} {{!r}} should be a folder with a pretrained model, or a model's name on the hub (offline only one "
        "that was downloaded before)"
    )
    config = load_pretrained(AutoConfig, name, wanted)
    if config.model_type != family.kind or getattr(config, "position_embedding_type", "absolute") != "absolute":
        raise InputError(
            f"{name} should be {family.noun} with absolute positions, but is of kind {config.model_type!r}. Take one, "
            f"such as {family.example}."
        )
    bridge = TokenizerBridge(name)
    if (bridge.opening, bridge.closing) != ([BOS], [EOS]):
        raise InputError(f"tokenizer {name!r} should put [CLS] before a sentence and [SEP] after it, but doesn't.")
    reads = EncoderInput(bridge, symbols, place)
    model, found = load_pretrained(family.part(2), name, wanted, output_loading_info=True)
    theirs = set(family.head.values())
    lacking = {weight for weight in found["missing_keys"] if not weight.startswith(f"{family.prefix}pooler.")}
    missing = [weight for weight in lacking if weight.startswith(family.prefix)]
    if missing:
        raise InputError(
            f"{name} should have all weights of {family.noun}, but lacks {', '.join(sorted(missing)[:5])}."
        )
    weights = {key: value.float() for key, value in model.state_dict().items()}
    body = {key: value for key, value in weights.items() if key.startswith(family.prefix)}
    body[family.prefix + WORDS] = reads.fairseq_rows(body[family.prefix + WORDS])
    choices = {known: getattr(config, known) for known in CHOICES}
    if family.positions_after_padding:
        padding = model.config.pad_token_id or 0
        positions = family.prefix + POSITIONS
        body[positions] = shift_positions(body[positions], padding, PAD)
        choices["max_position_embeddings"] = len(body[positions])
    if lacking & theirs - {family.head[BIAS]}:
        logger.warning(f"{name} has no head for masked words: where one is needed, it begins with random numbers.")
        return PretrainedBert(choices, body, {})
    head = {own: weights[their] for own, their in family.head.items()}
    return PretrainedBert(choices, body, {**head, BIAS: reads.fairseq_rows(head[BIAS])})


def shift_positions(weight: Tensor, padding: int, wanted: int) -> Tensor:
    """Embeddings of positions that are counted from the padding symbol's number + 1, for another such number.

    Args:
        padding: number of the padding symbol where they were learned.
        wanted: that for which they are asked.

    Shapes:
        weight: (padding + 1 + T, D)
        returns: (wanted + 1 + T, D), 0 for what isn't a position

    >>> shift_positions(torch.tensor([[0.0], [0.0], [5.0], [6.0]]), 1, 0).ravel().tolist()
    [0.0, 5.0, 6.0]
    """
    return torch.cat([weight.new_zeros(wanted + 1, weight.shape[1]), weight[padding + 1 :]])
