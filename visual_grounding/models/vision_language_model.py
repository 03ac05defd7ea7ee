"""What the models of VLP share: the flags of their BERT, where it comes from, and what a checkpoint keeps of it.

A BERT comes from transformers (`--bert`), from flags, or from the checkpoint of another of these models. Its
configuration goes into the model's own flags as `bert_config`, and so into every checkpoint: nothing else is read when
that is loaded, or when training goes on from it.
"""

import json
from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Optional

from ..data.image_memory import restored_checkpoint
from ..errors import InputError
from ..modules.pretrained_bert import CHOICES, PretrainedBert, bert_config, read_bert
from ..modules.vision_language_bert import VisionLanguageBert
from .presets import Preset
from .pretrained_start import Pretrained, read_pretrained
from .visual_model import VisualModelConfig

_ANEW = {
    "bert_size": ("hidden_size", 768),
    "bert_layers": ("num_hidden_layers", 12),
    "bert_heads": ("num_attention_heads", 12),
    "bert_ffn_size": ("intermediate_size", 3072),
    "bert_positions": ("max_position_embeddings", 512),
}
_FIXED = {
    "hidden_act": "gelu", "type_vocab_size": 2, "layer_norm_eps": 1e-12, "initializer_range": 0.02,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
}  # fmt: skip
MODELS = ("vlp_bert", "vlp_translation")
# Sizes of `--arch …_small` and `_tiny`. They wait under a name of their own, so that a size that was given can be told
# from one that wasn't.
_PRESETS: dict[str, dict[str, int]] = {
    "": {},
    "_small": {"bert_size": 512, "bert_layers": 6, "bert_heads": 8, "bert_ffn_size": 2048},
    "_tiny": {"bert_size": 128, "bert_layers": 4, "bert_heads": 4, "bert_ffn_size": 256},
}


def _prepared(sizes: dict[str, int]) -> Preset:
    def prepare(args: Namespace) -> None:
        args.bert_preset = sizes

    return prepare


BERT_PRESETS: dict[str, Preset] = {suffix: _prepared(sizes) for suffix, sizes in _PRESETS.items()}


@dataclass
class VisionLanguageConfig(VisualModelConfig):
    """The flags of a BERT over text, tags and regions."""

    bert: Optional[str] = field(
        default=None,
        metadata={"help": "BERT to begin with: name on the hub, or folder; without it one begins with random numbers"},
    )
    bert_size: Optional[int] = field(
        default=None, metadata={"help": "without --bert: size of its states (default: that of the architecture)"}
    )
    bert_layers: Optional[int] = field(
        default=None, metadata={"help": "without --bert: layers (default: those of the architecture)"}
    )
    bert_heads: Optional[int] = field(
        default=None, metadata={"help": "without --bert: attention heads (default: those of the architecture)"}
    )
    bert_ffn_size: Optional[int] = field(
        default=None,
        metadata={"help": "without --bert: size inside feed-forward layers (default: of the architecture)"},
    )
    bert_positions: Optional[int] = field(
        default=None, metadata={"help": "without --bert: longest text with its tags (default: 512)"}
    )
    bert_dropout: Optional[float] = field(
        default=None, metadata={"help": "dropout of its states and attention (default: that of --bert, or 0.1)"}
    )


def take_bert(args: Namespace, task: Any, pretrained: Optional[Pretrained] = None) -> Optional[PretrainedBert]:
    """Decide on the BERT of a model, and set `args.bert_config` to its configuration, which goes into checkpoints.

    Args:
        args: the model's flags.
        task: of the source dictionary; its `cfg` says from which checkpoint training goes on.
        pretrained: what the model starts from; None without one.

    Returns:
        What was read from `--bert`; None where nothing was.

    Raises:
        InputError: two things to begin with; sizes for a BERT that has its own; or as `read_bert`.
    """
    if getattr(args, "bert_config", None):
        return None
    named, read = getattr(args, "bert", None), None
    before = gone_on_from(task)
    if before is not None:
        choices, whose = _choices_of(read_pretrained(before, MODELS)), f"that of {before}"
    elif named and pretrained is not None:
        raise InputError(f"--bert and --visual-pretrained both say what to begin with: leave --bert {named} out.")
    elif pretrained is not None:
        choices, whose = _choices_of(pretrained), f"that of {pretrained.path}"
    elif named:
        read = read_bert(named, task.source_dictionary.symbols, "the dictionary of the source")
        choices, whose = dict(read.choices), f"that of --bert {named}"
    else:
        preset = getattr(args, "bert_preset", {})
        own = {known: getattr(args, name, None) or preset.get(name, size) for name, (known, size) in _ANEW.items()}
        choices, whose = {**_FIXED, **own}, ""
    for name, (known, _) in _ANEW.items():
        given = getattr(args, name, None)
        if given is not None and given != choices[known]:
            raise InputError(
                f"--{name.replace('_', '-')} is {given}, but the BERT is {whose}, where it is {choices[known]}: leave "
                "the flag out. Sizes are for a BERT that begins with random numbers."
            )
    dropout = getattr(args, "bert_dropout", None)
    if dropout is not None:
        choices |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    args.bert_config = json.dumps({name: choices[name] for name in CHOICES})
    return read


def gone_on_from(task: Any) -> Optional[str]:
    """The checkpoint that training goes on from, or fine-tunes; None where it starts afresh."""
    cfg = getattr(task, "cfg", None)
    return restored_checkpoint(cfg) if hasattr(cfg, "restore_file") else None


def _choices_of(checkpoint: Pretrained) -> dict[str, Any]:
    choices: dict[str, Any] = json.loads(checkpoint.args.bert_config)
    return choices


def build_stream(args: Namespace, task: Any, read: Optional[PretrainedBert]) -> VisionLanguageBert:
    """The BERT that `take_bert` decided on, with the weights that it read.

    Raises:
        InputError: sizes that don't fit each other.
    """
    config = bert_config(json.loads(args.bert_config), len(task.source_dictionary))
    stream = VisionLanguageBert(config, args.visual_feature_size)
    if read is not None:
        stream.bert.load_state_dict({name.removeprefix("bert."): value for name, value in read.body.items()})
    return stream
