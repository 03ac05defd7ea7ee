"""A task's state that knows its words: a checkpoint of other words, or of the same in another order, is refused.

checkpoint["task_state"]["dictionaries"]   for each by its name, such as "source", the sha256 of its symbols

fairseq saves a task's state with every checkpoint, and gives it back to the task before a model is loaded
(`fairseq-generate`, `fairseq-validate`, `fairseq-interactive`, each model of an ensemble). Its trainer doesn't when it
goes on from a checkpoint: `restored_checkpoint` says which that is, and `task_state_of` reads it without its weights.
"""

import os
from collections.abc import Iterable
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from fairseq.tasks.fairseq_task import StatefulContainer

from ..errors import InputError
from ..storage.checkpoints import (
    architecture,
    check_task_state,
    choices_without_shape,
    dictionaries,
    load_settings,
)
from ..text.words import check_same_words, digest_of_symbols

DICTIONARIES = "dictionaries"


class WordMemory(StatefulContainer):
    """A task's state that knows its words.

    Args:
        before: the state that the task had.

    Attributes:
        has_loaded: whether a checkpoint was seen.
    """

    own: tuple[str, ...] = (DICTIONARIES,)  # what it knows itself, whatever a checkpoint says

    def __init__(self, before: StatefulContainer) -> None:
        super().__init__()
        self._state, self._factories = before._state, before._factories
        self._dictionaries: dict[str, tuple[str, str | None]] = {}  # their paths, and what to give instead
        self.has_loaded = False

    def remember_words(self, name: str, path: str, symbols: Iterable[str], remedy: str | None = None) -> None:
        """Know a dictionary.

        Args:
            name: "source", for instance.
            path: where it was read.
            symbols: in the order of their numbers.
            remedy: what to give instead, where the words aren't the data's.
        """
        self._dictionaries[name] = path, remedy
        self._state.setdefault(DICTIONARIES, {})[name] = digest_of_symbols(symbols)

    def merge_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What fairseq found in a checkpoint; what this task knows itself stays.

        Raises:
            InputError: as `check_task_state` and `take_over`.
        """
        state_dict = check_task_state(state_dict, "the checkpoint")
        self.take_over(state_dict)
        super().merge_state_dict({name: value for name, value in state_dict.items() if name not in self.own})

    def take_over(self, state_dict: dict[str, Any]) -> None:
        """Compare a checkpoint with the task.

        Args:
            state_dict: as `check_task_state` gives it.

        Raises:
            InputError: the checkpoint was trained with other words.
        """
        self.has_loaded = True
        self.check_words(state_dict)

    def check_words(self, state_dict: dict[str, Any]) -> None:
        """Compare a checkpoint's dictionaries with the task's, as far as both know them.

        Raises:
            InputError: one has other words, or the same in another order.
        """
        learned = dictionaries({"task_state": state_dict})
        for name, (path, remedy) in self._dictionaries.items():
            if name in learned:
                check_same_words(path, self._state[DICTIONARIES][name], learned[name], "the checkpoint", remedy)

    def take_over_restored(self, cfg: Any) -> None:
        """Compare the task with the checkpoint that training goes on from, unless one was seen.

        Args:
            cfg: with the flags of fairseq's checkpoints.

        Raises:
            InputError: as `task_state_of` and `take_over`.
        """
        path = None if self.has_loaded else restored_checkpoint(cfg)
        self.has_loaded = True
        if path is not None:
            self.take_over(task_state_of(path))


def restored_checkpoint(cfg: Any) -> str | None:
    """The checkpoint that `fairseq-train` goes on from, or begins with; None where it starts afresh.

    Args:
        cfg: with the flags of fairseq's checkpoints, as `VisualContextConfig` has them.
    """
    suffix = str(cfg.checkpoint_suffix or "")
    path = cfg.restore_file.replace(".pt", f"{suffix}.pt")
    if cfg.restore_file == "checkpoint_last.pt":  # fairseq's default, in --save-dir
        path = os.path.join(cfg.save_dir, path)
        if not os.path.isfile(path):
            path = cfg.continue_once or cfg.finetune_from_model or ""
    return path if os.path.isfile(path) else None


def task_state_of(path: str) -> dict[str, Any]:
    """The task's state in a checkpoint, without reading its weights; empty where it has none.

    Raises:
        InputError: as `load_settings`.
    """
    state: dict[str, Any] = load_settings(path).get("task_state") or {}
    return state


def check_restored_choices(cfg: Any, args: Any) -> None:
    """Refuse a model with other heads, for instance, than the checkpoint that training goes on from or fine-tunes.

    fairseq takes its weights, as they have the same shapes with any.

    Args:
        cfg: the task's; with the flags of fairseq's checkpoints, or without, where nothing is restored.
        args: the model's flags, once it is built.

    Raises:
        InputError: a choice differs that shapes don't tell, or the checkpoint is of another model, from which this one
            starts by another flag.
    """
    path = restored_checkpoint(cfg) if hasattr(cfg, "restore_file") else None
    if path is None:
        return
    state = load_settings(path)
    arch, own = (architecture(state), str(getattr(args, "arch", "") or ""))
    models = [ARCH_MODEL_NAME_REGISTRY.get(each, each) for each in (arch, own)]
    if hasattr(args, "visual_pretrained") and arch and own and models[0] != models[1]:
        raise InputError(
            f"the checkpoint that training goes on from should be of --arch {own}, but {path} is of --arch {arch}. "
            "What was pre-trained is given as --visual-pretrained; an earlier stage of the same model as "
            "--finetune-from-model."
        )
    for name, before in choices_without_shape(state).items():
        now = getattr(args, name, None)
        if now is not None and str(before) != str(now):
            flag = f"--{name.replace('_', '-')}"
            remedy = f"Give {flag} {before}"
            if isinstance(before, bool):
                remedy = f"Give {flag}" if before else f"Leave {flag} out"
            raise InputError(
                f"{flag} should be {before}, as {path} was trained with, but is {now}: its weights would fit, but mean "
                f"something else. {remedy}, or choose another --save-dir to start afresh."
            )
