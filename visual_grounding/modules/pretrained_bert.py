"""A BERT of transformers in fairseq's numbers: its sizes as a checkpoint keeps them, and its weights."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..errors import InputError
from ..text.pretrained_tokenizer import load_pretrained
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
_WORDS = "bert.embeddings.word_embeddings.weight"
_HEAD = "cls.predictions."
_BIAS = "cls.predictions.bias"
_WANTED = "BERT {!r} should be a folder with a pretrained model, or a model's name on the hub (offline only one that \
was downloaded before)"


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


def bert_config(choices: Mapping[str, Any], vocabulary_size: int) -> Any:
    """transformers' configuration of a BERT over a dictionary, with torch's fused attention.

    Raises:
        InputError: heads don't divide the size, or a size isn't positive.
    """
    from transformers import BertConfig

    size, heads = choices["hidden_size"], choices["num_attention_heads"]
    for name in ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers"):
        if choices[name] < 1:
            raise InputError(f"a BERT's {name} should be at least 1, but is {choices[name]}.")
    if size % heads:
        raise InputError(f"a BERT's {heads} heads should divide its size, {size}, but don't.", "bert_heads")
    if choices["max_position_embeddings"] < 3:
        raise InputError(
            f"a BERT should have positions for a word between [CLS] and [SEP], 3 at least, but has "
            f"{choices['max_position_embeddings']}.",
            "bert_positions",
        )
    config = BertConfig(**choices, vocab_size=vocabulary_size, pad_token_id=PAD)
    config._attn_implementation = "sdpa"
    return config


def read_bert(name: str, symbols: Sequence[str], place: str) -> PretrainedBert:
    """A BERT from the hub or a folder, in the numbers of a dictionary.

    Args:
        symbols: of the dictionary, by their numbers.
        place: its file, for messages.

    Raises:
        InputError: nothing loads from there, it is no BERT, or the dictionary isn't its tokenizer's.
    """
    from transformers import AutoConfig, BertForMaskedLM

    config = load_pretrained(AutoConfig, name, _WANTED)
    if config.model_type != "bert" or getattr(config, "position_embedding_type", "absolute") != "absolute":
        raise InputError(
            f"{name} should be a BERT with absolute positions, but is of kind {config.model_type!r}. Take one, such as "
            "bert-base-uncased."
        )
    bridge = TokenizerBridge(name)
    if (bridge.opening, bridge.closing) != ([BOS], [EOS]):
        raise InputError(f"tokenizer {name!r} should put [CLS] before a sentence and [SEP] after it, but doesn't.")
    reads = EncoderInput(bridge, symbols, place)
    model, found = load_pretrained(BertForMaskedLM, name, _WANTED, output_loading_info=True)
    missing = [weight for weight in found["missing_keys"] if not weight.startswith((_HEAD, "bert.pooler."))]
    if missing:
        raise InputError(f"{name} should have all weights of a BERT, but lacks {', '.join(sorted(missing)[:5])}.")
    weights = {key: value.float() for key, value in model.state_dict().items()}
    weights[_WORDS] = reads.fairseq_rows(weights[_WORDS])
    weights[_BIAS] = reads.fairseq_rows(weights[_BIAS])
    body = {key: value for key, value in weights.items() if key.startswith("bert.")}
    if any(weight.startswith(_HEAD + "transform") for weight in found["missing_keys"]):
        logger.warning(f"{name} has no head for masked words: where one is needed, it begins with random numbers.")
        return PretrainedBert(_choices_of(config), body, {})
    parts = (_HEAD + "transform.", _BIAS)
    head = {key.removeprefix(_HEAD): value for key, value in weights.items() if key.startswith(parts)}
    return PretrainedBert(_choices_of(config), body, head)


def _choices_of(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in CHOICES}
