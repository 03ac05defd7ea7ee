"""The BERT of a model: its flags, where it comes from, and what a checkpoint keeps of it.

A BERT comes from transformers (`--bert`), from flags, or from the checkpoint of another model that has one. Its
configuration goes into the model's own flags as `bert_config`, and so into every checkpoint: nothing else is read when
that is loaded, or when training goes on from it.
"""

import json
import logging
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Optional, TypeVar, cast

import torch
from fairseq.dataclass import FairseqDataclass

from ..data.word_memory import restored_checkpoint
from ..errors import InputError, first_line, is_of_memory, where_it_failed
from ..modules.pretrained_bert import BERT, CHOICES, Family, PretrainedBert, check_choices, read_bert
from ..storage.outside import parse_json, reading
from ..storage.settings import SettingError
from .presets import Preset
from .pretrained_start import Pretrained, read_pretrained
from .visual_model import check_numbers

logger = logging.getLogger(__name__)
Build = TypeVar("Build", bound=Callable[..., Any])

_ANEW = {
    "bert_size": ("hidden_size", 768),
    "bert_layers": ("num_hidden_layers", 12),
    "bert_heads": ("num_attention_heads", 12),
    "bert_ffn_size": ("intermediate_size", 3072),
    "bert_positions": ("max_position_embeddings", 512),
}
_FIXED: dict[str, dict[str, Any]] = {
    "bert": {"type_vocab_size": 2, "layer_norm_eps": 1e-12},
    "roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
}
_SHARED = {
    "hidden_act": "gelu", "initializer_range": 0.02, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
}  # fmt: skip


def size_presets(presets: Mapping[str, dict[str, int]]) -> dict[str, Preset]:
    """Presets of sizes, by their suffixes.

    The sizes wait under a name of their own, so that a size that was given can be told from one that wasn't.
    """

    def prepared(sizes: dict[str, int]) -> Preset:
        def prepare(args: Namespace) -> None:
            args.bert_preset = sizes

        return prepare

    return {suffix: prepared(sizes) for suffix, sizes in presets.items()}


@dataclass
class BertChoicesConfig(FairseqDataclass):
    """The flags of a BERT."""

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


def take_bert(
    args: Namespace,
    task: Any,
    models: Collection[str],
    pretrained: Optional[Pretrained] = None,
    family: Family = BERT,
) -> Optional[PretrainedBert]:
    """Decide on the BERT of a model, and set `args.bert_config` to its configuration, which goes into checkpoints.

    Args:
        args: the model's flags.
        task: of the source dictionary; its `cfg` says from which checkpoint training goes on.
        models: registered names of the models from whose checkpoints it can go on.
        pretrained: what the model starts from; None without one.
        family: of transformers.

    Returns:
        What was read from `--bert`; None where nothing was.

    Raises:
        InputError: two things to begin with; sizes for a BERT that has its own; or as `read_bert`.
    """
    if getattr(args, "bert_config", None):
        return None
    check_numbers(args)
    named, read = getattr(args, "bert", None), None
    before = gone_on_from(task)
    if before is not None:
        learned = read_pretrained(before, models)
        choices, whose = _choices_of(learned), f"that of {before}"
        if named and named != getattr(learned.args, "bert", None):
            logger.warning("--bert %s isn't read: the weights are those of %s", named, before)
    elif named and pretrained is not None:
        raise InputError(f"--bert and --visual-pretrained both say what to begin with: leave --bert {named} out.")
    elif pretrained is not None:
        choices, whose = _choices_of(pretrained), f"that of {pretrained.path}"
    elif named:
        read = read_bert(named, task.source_dictionary.symbols, "the dictionary of the source", family)
        choices, whose = dict(read.choices), f"that of --bert {named}"
    else:
        preset = getattr(args, "bert_preset", {})
        own = {}
        for name, (known, size) in _ANEW.items():
            given = getattr(args, name, None)
            own[known] = preset.get(name, size) if given is None else given
        own["max_position_embeddings"] += family.first_position
        choices, whose = {**_SHARED, **_FIXED[family.kind], **own}, ""
    for name, (known, _) in _ANEW.items():
        given = getattr(args, name, None)
        theirs = choices[known] - (family.first_position if name == "bert_positions" else 0)
        if given is not None and given != theirs:
            raise InputError(
                f"--{name.replace('_', '-')} is {given}, but the BERT is {whose}, where it is {theirs}: leave "
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


def built_from(kept: str) -> Callable[[Build], Build]:
    """Let whatever `build_model` meets in the settings of a checkpoint be one line for whoever brought that.

    Args:
        kept: the flag that a checkpoint alone has, such as `bert_config`.

    What is wrong with flags alone, where no checkpoint is loaded or gone on from, fails as it did.
    """

    def guard(build: Build) -> Build:
        @wraps(build)
        def build_model(cls: Any, args: Namespace, task: Any) -> Any:
            loaded = getattr(args, kept, None) is not None
            begun_with = getattr(args, "visual_pretrained", None)  # which is forgotten on the way
            try:
                return build(cls, args, task)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # JSON, transformers and torch each have their own
                before = None if loaded else gone_on_from(task) or begun_with
                if is_of_memory(error) and (loaded or before):
                    said = f"not enough memory for the model of {before or 'the checkpoint'} ({first_line(error)})"
                    raise InputError(f"{said}. Take a smaller one, or a larger machine.") from error
                if isinstance(error, InputError):
                    if before is None or before in str(error):
                        raise
                    if isinstance(error, SettingError):
                        raise InputError(f"{before} can't be used: {error}", *error.choices) from error
                    # It may be of that, or of the flags.
                    raise InputError(f"{error} It goes on from {before}.", *error.choices) from error
                said = where_it_failed(error)
                if loaded:  # from where, fairseq doesn't say
                    raise InputError(f"the checkpoint's settings should make a model, but don't: {said}.") from error
                if before is None:
                    raise
                raise InputError(
                    f"{before} should be a checkpoint whose settings make a model, but with these flags they don't: "
                    f"{said}."
                ) from error

        return cast(Build, build_model)

    return guard


def _choices_of(checkpoint: Pretrained) -> dict[str, Any]:
    with reading(checkpoint.path, f"a checkpoint of --arch {checkpoint.arch}"):  # whose settings may be anything
        return check_choices(parse_json(checkpoint.args.bert_config), checkpoint.path)
