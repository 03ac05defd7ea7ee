"""A trained model with its task, as a checkpoint holds them, and the sentences of a split in batches."""

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import FairseqDataset
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from omegaconf import open_dict

from ..errors import InputError, in_short, is_of_memory, where_it_failed
from ..storage.checkpoints import architecture, load_checkpoint
from ..storage.outside import reading
from ..tasks.grounded_translation import MissingDictionary
from ..text.pretrained_tokenizer import MOST_LAYERS


@dataclass(frozen=True)
class Trained:
    """A model in evaluation mode on its device, and its task.

    Attributes:
        path: of the checkpoint.
        arch: its architecture.
        device: where the model is.
    """

    path: Path
    model: Any
    task: Any
    arch: str
    device: torch.device

    @property
    def settings(self) -> Any:
        """The task's configuration."""
        return self.task.cfg

    @property
    def sees(self) -> bool:
        """Whether there are images."""
        return bool(self.settings.image_features)


def load_trained(
    path: Path,
    kind: str | tuple[str, ...],
    device: torch.device,
    changes: Mapping[str, Any],
    user_dir: str | None = None,
) -> Trained:
    """Load a checkpoint's model and task.

    Args:
        path: of the checkpoint.
        kind: the task that it was trained on, or one derived from that; or several that it may be.
        device: where the model goes.
        changes: settings of the task that are others now, such as `image_order`. Those of images are left away where
            the model was trained without: so a text-only twin takes those of its sister. Tables of images take
            the place of what found them in training.
        user_dir: a folder with tasks and architectures from outside this package.

    Raises:
        InputError: it is no checkpoint, or one of another task or of an architecture that isn't known here; its text
            isn't where it was; or no training wrote its settings and weights.
    """
    if user_dir is not None:
        try:
            utils.import_user_module(Namespace(user_dir=user_dir))
        except FileNotFoundError as error:
            if error.filename is not None or str(error) != os.path.abspath(user_dir):
                raise  # of the code in it
            raise InputError(f"code should be in a folder, but {error} isn't there.", "user_dir") from error
    with _making_a_model(path):
        model, task, arch = _model_of(path, (kind,) if isinstance(kind, str) else kind, changes)
    return Trained(path, model.eval().to(device), task, arch, device)


@contextmanager
def _making_a_model(path: Path) -> Iterator[None]:
    """Inside, whatever is said of a checkpoint's settings and weights is one line for whoever brought it.

    Raises:
        InputError: for any exception but that of a GPU that is full.
    """
    try:
        yield
    except (InputError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # fairseq, torch and a model of others each have their own
        if is_of_memory(error):
            raise InputError(f"there isn't enough memory for the model of {path}: {in_short(error)}.") from error
        said = where_it_failed(error)
        raise InputError(f"{path} can't be used, as its settings and weights make no model: {said}.") from error


def _model_of(path: Path, kinds: tuple[str, ...], changes: Mapping[str, Any]) -> tuple[Any, Any, str]:
    """The model and the task of a checkpoint, and its architecture.

    Raises:
        InputError: as `load_trained`.
    """
    state = _state_of(path)
    cfg = state["cfg"]
    name, arch = str(cfg.task._name), str(architecture(state))
    if not issubclass(TASK_REGISTRY.get(name, object), tuple(TASK_REGISTRY[each] for each in kinds)):
        raise InputError(
            f"{path} should hold a model of the task {' or '.join(kinds)}, but was trained on {name}.", "checkpoint"
        )
    if arch not in MODEL_REGISTRY and arch not in ARCH_MODEL_NAME_REGISTRY:
        raise InputError(
            f"{path} has a model of the architecture {arch}, which isn't known here. Name the folder of the code "
            "that it was trained with.",
            "user_dir",
        )
    _check_layers(cfg.model, len(state["model"]))
    with open_dict(cfg.task):
        for setting, value in changes.items():
            if setting in cfg.task and (cfg.task.get("image_features") or not setting.startswith("image")):
                cfg.task[setting] = value
        if changes.get("image_ids") and cfg.task.get("image_finder"):
            cfg.task.image_finder = cfg.task.finder_tokenizer = None
    data = utils.split_paths(str(cfg.task.data or ""))[:1]
    if not all(map(os.path.isdir, data)):
        raise InputError(
            f"{data[0]} should hold the binarised text that {path} is asked, but is no folder from here. A checkpoint "
            "names the one that it was trained on; name where that, or another one, lies now.",
            "data",
        )
    try:
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)
    except MissingDictionary as error:
        raise InputError(f"{path} can't be used: there is no {error.path}.", "data") from error
    except FileNotFoundError as error:  # what else a task reads beside its text
        raise InputError(f"{path} can't be used: {error}.", "data") from error
    except InputError as error:  # says "the checkpoint", and there may be two
        raise InputError(f"{path} can't be used: {error}", *error.choices) from error
    return model, task, arch


def _check_layers(settings: Any, weights: int) -> None:
    """Refuse a model of more layers than any, and than it has weights: fairseq would build them one by one.

    Raises:
        ValueError: it is one.
    """
    for name, value in (vars(settings) if isinstance(settings, Namespace) else settings).items():
        if str(name).endswith("layers") and isinstance(value, int) and value > max(weights, MOST_LAYERS):
            raise ValueError(f"it should have {value} as {name}, but there are {weights} weights")


def _state_of(path: Path) -> dict[str, Any]:
    """A checkpoint as fairseq reads it, by torch's safe loader; what can't be read is refused in words.

    Raises:
        InputError: it isn't a checkpoint, or doesn't say its task.
    """
    wanted = f"{path} should be a checkpoint of fairseq-train, but"
    with reading(path, "a checkpoint of fairseq-train"):  # fairseq would wait for a pipe
        pass
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    except Exception as error:
        load_checkpoint(path)  # says what it is, where it is no checkpoint
        said = f"{type(error).__name__}: {in_short(error)}"
        raise InputError(f"{wanted} lacks what fairseq expects in one ({said}).") from error
    if not state.get("cfg") or "_name" not in (state["cfg"].get("task") or {}):
        raise InputError(f"{wanted} doesn't say how it was trained.")
    return state


def load_split(trained: Trained, split: str, image_order: str = "congruent") -> FairseqDataset:
    """Sentences of a split, with the images of an order where the model sees any."""
    if trained.sees:
        trained.settings.image_order = image_order
    trained.task.load_dataset(split)
    return trained.task.dataset(split)


def check_orders(trained: Trained, image_orders: Sequence[str]) -> None:
    """Refuse images in another order than their own for a model that sees none.

    Raises:
        InputError: it is so.
    """
    others = [order for order in image_orders if order != "congruent"]
    if others and not trained.sees:
        raise InputError(
            f"images can't be {others[0]}, as {trained.path} was trained without any.", "image_order", "checkpoint"
        )


def check_seen(models: Sequence[Trained], changes: Mapping[str, Any]) -> None:
    """Refuse images that none of these models looks at; with two of them they may be for the one that does.

    Args:
        models: those that are asked.
        changes: as for `load_trained`.

    Raises:
        InputError: it is so.
    """
    given = [name for name in changes if name.startswith("image")]
    if given and not any(trained.sees for trained in models):
        without = " and ".join(str(trained.path) for trained in models)
        raise InputError(f"images are given, but {without} learned from text alone. Leave them out.", *given)


def check_sizes(trained: Trained, dataset: FairseqDataset, rows: Sequence[int], split: str) -> None:
    """Refuse sentences that the model can't read whole.

    Raises:
        InputError: there are some.
    """
    most = utils.resolve_max_positions(trained.task.max_positions(), trained.model.max_positions())
    _, beyond = dataset.filter_indices_by_size(np.array(rows, dtype=np.int64), most)
    if len(beyond):
        raise InputError(
            f"{trained.path} reads and writes at most {most} tokens a sentence, but {len(beyond)} of {len(rows)} "
            f"sentences of {split} have more, the first is sentence {min(beyond)} (counted from 0).",
            "checkpoint",
            "split",
        )


def batches(dataset: FairseqDataset, rows: Sequence[int], batch_size: int) -> Iterator[dict[str, Any]]:
    """Batches of some sentences on the CPU, the longest first, so that memory is short at once or never.

    Args:
        rows: numbers of sentences.
        batch_size: how many sentences a batch has.
    """
    longest = sorted(rows, key=lambda row: np.max(dataset.size(row)), reverse=True)
    for start in range(0, len(longest), batch_size):
        yield dataset.collater([dataset[row] for row in longest[start : start + batch_size]])


def on_device(trained: Trained, batch: dict[str, Any]) -> dict[str, Any]:
    """A batch where the model is."""
    return utils.apply_to_sample(lambda tensor: tensor.to(trained.device), batch)
