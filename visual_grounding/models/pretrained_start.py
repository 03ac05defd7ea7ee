"""`--visual-pretrained CHECKPOINT`: a model that starts from the weights of another one, weight by weight.

Nothing is left to chance: every weight of the new model is copied or named as one that starts anew, every pre-trained
one is used or named as one without a place, and one line of the log tells which. The flag is for the first start alone:
it isn't kept in checkpoints, so what was trained is loaded without the file that it began with.
"""

import logging
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from torch import Tensor, nn

from ..data.image_memory import IMAGES_PER_SENTENCE, check_alike
from ..data.word_memory import restored_checkpoint
from ..errors import InputError, printable
from ..storage.checkpoints import architecture, dictionaries, load_checkpoint, trained_on
from ..text.words import check_same_words, digest_of_symbols

logger = logging.getLogger(__name__)

_SHOWN = 5  # weights that a message names
_MARKS = (".version", "._float_tensor")  # what fairseq's modules keep in a checkpoint beside weights


@dataclass
class PretrainedStartConfig(FairseqDataclass):
    """The flag of models that can start from a pre-trained one."""

    visual_pretrained: Optional[str] = field(
        default=None,
        metadata={"help": "start from the weights of this pre-trained checkpoint; not needed again after that"},
    )


@dataclass(frozen=True)
class Pretrained:
    """A pre-trained model as its checkpoint has it.

    Attributes:
        path: the checkpoint.
        arch: its `--arch`.
        args: its flags, such as the sizes that the new model must have, too.
        weights: by their names.
        task_state: what its task remembered: how its image features were made, the digests of its dictionaries.
    """

    path: Path
    arch: str
    args: Namespace
    weights: Mapping[str, Tensor]
    task_state: Mapping[str, Any]

    def check_words(self, name: str, symbols: Iterable[str], place: str) -> None:
        """Refuse a dictionary whose words have other numbers than in pre-training.

        Args:
            name: under which the pre-training task remembered its dictionary.
            symbols: of the new model's dictionary, in the order of their numbers.
            place: what that is called.

        Raises:
            InputError: the words differ, or only their order.
        """
        learned = dictionaries({"task_state": self.task_state}).get(name)
        if learned is not None:
            check_same_words(place, digest_of_symbols(symbols), learned, self.path)

    def check_choice(self, name: str, learned_by: str, chosen: Any) -> None:
        """Refuse heads, for instance, other than in pre-training: the weights have the same shapes with any.

        Args:
            name: of the new model's flag, with underscores.
            learned_by: of the flag of pre-training whose value it must have; a checkpoint without it is taken.
            chosen: the new model's value.

        Raises:
            InputError: it is another one.
        """
        learned = getattr(self.args, learned_by, chosen)
        if chosen != learned:
            flag, other = (f"--{each.replace('_', '-')}" for each in (name, learned_by))
            remedy = f"Give {flag} {learned}."
            if isinstance(learned, bool):
                remedy = f"Give {flag}." if learned else f"Leave {flag} out."
            raise InputError(
                f"{flag} should be {learned}, as {self.path} was trained with {other} {learned}, but is {chosen}: its "
                f"weights would fit, but mean something else. {remedy}"
            )

    def check_features(self, task: Any) -> None:
        """Refuse images whose features were made in another way than those of pre-training.

        The task learns how many of them a sentence had then, and warns where it has another number.

        Args:
            task: with `image_store`, and the flags of `VisualContextConfig` in its `cfg`.

        Raises:
            InputError: they were.
        """
        learned = trained_on({"task_state": self.task_state}, self.path)
        store = getattr(task, "image_store", None)
        count = self.task_state.get(IMAGES_PER_SENTENCE)
        images = getattr(task, "images", None)
        if isinstance(count, int) and images is not None and count not in images.trained_with:
            images.trained_with.append(count)
        if learned is not None and store is not None and not getattr(task.cfg, "image_features_unchecked", False):
            check_alike(store, learned)


def pretrained_of(args: Any, task: Any, arch_models: Collection[str]) -> Optional[Pretrained]:
    """What `--visual-pretrained` names, where a model starts from it; for `build_model`.

    None without the flag, and where the weights come from a checkpoint of this training or from the one that it
    fine-tunes: then the file isn't opened, and may be gone. The flag is taken out of `args`, which checkpoints keep.

    Args:
        args: the model's flags.
        task: its `cfg` has the flags of fairseq's checkpoints (`VisualContextConfig`); without them it starts afresh.
        arch_models: as `read_pretrained`.

    Raises:
        InputError: as `read_pretrained`.
    """
    path = getattr(args, "visual_pretrained", None)
    if not path:
        return None
    args.visual_pretrained = None
    cfg = getattr(task, "cfg", None)
    restored = restored_checkpoint(cfg) if hasattr(cfg, "restore_file") else None
    if restored is not None:
        logger.info("the pre-trained checkpoint %s isn't read: the weights are those of %s", path, restored)
        return None
    return read_pretrained(path, arch_models)


def read_pretrained(path: str | Path, arch_models: Collection[str]) -> Pretrained:
    """Read a pre-trained checkpoint, without running anything that is in it.

    Args:
        arch_models: registered names of the models that one can start from; any preset of theirs will do.

    Raises:
        InputError: it isn't there, isn't a checkpoint, or is one of another kind of model.
    """
    path = Path(path)
    if not path.is_file():
        what = "isn't a file" if path.exists() else "doesn't exist"
        raise InputError(f"the pre-trained checkpoint should be of {_either(arch_models)}, but {path} {what}.")
    state = load_checkpoint(path)
    arch = architecture(state)
    if ARCH_MODEL_NAME_REGISTRY.get(arch, arch) not in arch_models:
        said = f"is of --arch {arch}" if arch else "doesn't say what it is of"
        raise InputError(f"the pre-trained checkpoint should be of {_either(arch_models)}, but {path} {said}.")
    choices: Any = (state.get("cfg") or {}).get("model") or state.get("args")
    args = choices if isinstance(choices, Namespace) else Namespace(**{str(name): choices[name] for name in choices})
    task_state = state.get("task_state")
    return Pretrained(path, str(arch), args, state["model"], task_state if isinstance(task_state, Mapping) else {})


def start_from(
    model: nn.Module,
    sources: Mapping[str, str],
    pretrained: Pretrained,
    left_out: Collection[str] = (),
    fresh: Collection[str] = (),
) -> None:
    """Copy pre-trained weights into a model, and say what was copied, what starts anew, and what was left out.

    Args:
        sources: name of a weight of the model -> name of the pre-trained one that it starts as.
        left_out: patterns (`label_head.*`) of pre-trained weights that have no place in the model.
        fresh: patterns of the model's weights that keep their random start; a weight that `sources` names doesn't.

    Raises:
        InputError: a source is missing or of another shape; a weight of the model is neither copied nor fresh; a
            pre-trained one is neither used nor left out.
        ValueError: the model has no weight of such a name.
    """
    own = dict(model.named_parameters(remove_duplicate=False))
    copied = {name: each for name, each in (*own.items(), *model.named_buffers()) if name in sources}
    if len(copied) < len(sources):
        raise ValueError(f"the model has no weights {_listed([name for name in sources if name not in copied])}")
    covered = {id(own[name]) for name in sources if name in own}  # a weight may stand in two places
    anew = [name for name, weight in own.items() if id(weight) not in covered]
    unused = {name for name in pretrained.weights if not name.endswith(_MARKS)} - set(sources.values())
    problems = {
        "lacks": sorted({name for name in sources.values() if name not in pretrained.weights}),
        "has no place in this model for": sorted(name for name in unused if not _matches(name, left_out)),
        "has nothing for": [name for name in anew if not _matches(name, fresh)],
        "has in another shape": [
            f"{sources[name]} {tuple(pretrained.weights[sources[name]].shape)} for {name} {tuple(weight.shape)}"
            for name, weight in copied.items()
            if sources[name] in pretrained.weights and pretrained.weights[sources[name]].shape != weight.shape
        ],
    }
    said = [f"{what} {len(names)} ({_listed(names)})" for what, names in problems.items() if names]
    if said:
        raise InputError(
            f"{pretrained.path} (--arch {pretrained.arch}) should have the weights that this model starts from, but "
            f"{', and '.join(said)}. Give the model the sizes and flags of pre-training, or another checkpoint."
        )
    with torch.no_grad():
        for name, weight in copied.items():
            weight.copy_(pretrained.weights[sources[name]])
    left_out = [name for name in pretrained.weights if name in unused]
    logger.info("%s", printable(told(sources, pretrained, anew, left_out)))


def told(sources: Mapping[str, str], pretrained: Pretrained, anew: list[str], unused: list[str]) -> str:
    """One line about a start: how many weights came from where, which start anew, which were left out."""
    parts = Counter(_parts(name, source) for name, source in sources.items())
    copied = ", ".join(f"{count} of {own} from {other}" for (own, other), count in parts.items())
    return (
        f"started from {pretrained.path} (--arch {pretrained.arch}): copied {len(sources)} weights"
        f"{f' ({copied})' if copied else ''}; started anew: {_counted(anew)}; left out: {_counted(unused)}"
    )


def _parts(name: str, source: str) -> tuple[str, str]:
    """Where two weights differ, for the eye: encoder and decoder, or two modules of all layers.

    >>> _parts("decoder.layers.1.fc1.bias", "encoder.layers.1.fc1.bias")
    ('decoder', 'encoder')
    >>> _parts("decoder.layers.1.encoder_attn.q_proj.bias", "encoder.layers.1.self_attn.q_proj.bias")
    ('decoder.layers.*.encoder_attn', 'encoder.layers.*.self_attn')
    >>> _parts("encoder.fc1.bias", "encoder.fc1.bias"), _parts("encoder.fc1.bias", "fc1.bias")
    (('encoder', 'encoder'), ('encoder', 'fc1'))
    """
    own, other = name.split("."), source.split(".")
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own[::-1], other[::-1])))
    own, other = own[: len(own) - alike] or own[:1], other[: len(other) - alike] or other[:1]
    return _all_layers(".".join(own)), _all_layers(".".join(other))


def _all_layers(name: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def _counted(names: list[str]) -> str:
    """How many, and which; those of all layers once.

    >>> _counted(["layers.0.fc1.bias", "layers.1.fc1.bias", "head.bias"]), _counted([])
    ('3 (layers.*.fc1.bias, head.bias)', 'nothing')
    """
    return f"{len(names)} ({', '.join(dict.fromkeys(map(_all_layers, names)))})" if names else "nothing"


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _either(names: Collection[str]) -> str:
    return " or ".join(f"--arch {name}" for name in names)
