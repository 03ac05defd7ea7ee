"""What a checkpoint remembers of its images and words: how features were made, how many images, which words.

    checkpoint["task_state"]["image_features"]         signature of the features, or of how pictures were framed;
                                                       None where it was trained without images
    checkpoint["task_state"]["images_per_sentence"]    N of the training set; not there without images
    checkpoint["task_state"]["image_tags"]             how labels of regions were read as words; None: not at all
    checkpoint["task_state"]["dictionaries"]           for each by its name, such as "source", the sha256 of its symbols

fairseq saves a task's state with every checkpoint, and gives it back to the task before a model is loaded
(`fairseq-generate`, `fairseq-validate`, `fairseq-interactive`, each model of an ensemble). Its trainer doesn't when it
goes on from a checkpoint, so that one is read here once more, without its weights.
"""

import os
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

import torch
from fairseq.tasks.fairseq_task import StatefulContainer

from ..errors import InputError
from ..features.making import check_making
from ..features.pixels import PixelSource
from ..features.store import FeatureStore
from ..storage.checkpoints import dictionaries
from ..storage.signature import made_alike, signature
from ..text.words import check_same_words, digest_of_symbols

IMAGE_FEATURES = "image_features"
IMAGES_PER_SENTENCE = "images_per_sentence"
IMAGE_TAGS = "image_tags"
DICTIONARIES = "dictionaries"
UNCHECKED = "--image-features-unchecked"


class ImageMemory(StatefulContainer):
    """A task's state that knows its image features and words, and refuses a checkpoint that knows others.

    Args:
        before: the state that the task had.
        store: the task's features, or the pictures that its model sees; None without images.
        unchecked: take a checkpoint that was trained on features of another making.
        warn: says something once a run.

    Attributes:
        has_loaded: whether a checkpoint was seen.
        trained_with: N of each checkpoint that was seen and says it, every number once.
    """

    def __init__(
        self,
        before: StatefulContainer,
        store: FeatureStore | PixelSource | None,
        unchecked: bool,
        warn: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._state, self._factories = before._state, before._factories
        self._state[IMAGE_FEATURES] = making_of(store)
        self._store = store
        self._unchecked = unchecked
        self._warn = warn
        self._dictionaries: dict[str, str] = {}  # their paths
        self.has_loaded = False
        self.trained_with: list[int] = []

    def remember_words(self, name: str, path: str, symbols: Iterable[str]) -> None:
        """Know a dictionary.

        Args:
            name: "source", for instance.
            path: where it was read.
            symbols: in the order of their numbers.
        """
        self._dictionaries[name] = path
        self._state.setdefault(DICTIONARIES, {})[name] = digest_of_symbols(symbols)

    def remember_count(self, images_per_sentence: int) -> None:
        """Know N of the training set."""
        self._state[IMAGES_PER_SENTENCE] = images_per_sentence

    def remember_tags(self, choice: str | None) -> None:
        """Know how labels of regions are words beside the text; None for not at all."""
        self._state[IMAGE_TAGS] = choice

    def merge_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What fairseq found in a checkpoint; what this task knows of its own images and words stays.

        Raises:
            InputError: the checkpoint was trained on features of another making, or with other words.
        """
        self.take_over(state_dict)
        ours = (IMAGE_FEATURES, IMAGES_PER_SENTENCE, IMAGE_TAGS, DICTIONARIES)
        super().merge_state_dict({name: value for name, value in state_dict.items() if name not in ours})

    def take_over(self, state_dict: dict[str, Any]) -> None:
        """Compare a checkpoint with the task; a task without images keeps what the checkpoint knows of its own.

        So a run without images forgets nothing of a model that has learned from some.

        Raises:
            InputError: the checkpoint was trained on features of another making, or with other words.
        """
        self.has_loaded = True
        self.check_words(state_dict)
        self.check_features(state_dict)
        self.compare_tags(state_dict)
        if self._store is None:
            self._state[IMAGE_FEATURES] = self._state[IMAGE_FEATURES] or state_dict.get(IMAGE_FEATURES)
            if IMAGE_TAGS in state_dict:
                self._state[IMAGE_TAGS] = state_dict[IMAGE_TAGS]
        count = state_dict.get(IMAGES_PER_SENTENCE)
        if isinstance(count, int) and count not in self.trained_with:
            self.trained_with.append(count)
            self._state.setdefault(IMAGES_PER_SENTENCE, count)

    def check_words(self, state_dict: dict[str, Any]) -> None:
        """Compare a checkpoint's dictionaries with the task's, as far as both know them.

        Raises:
            InputError: one has other words, or the same in another order.
        """
        learned = dictionaries({"task_state": state_dict})
        for name, path in self._dictionaries.items():
            if name in learned:
                check_same_words(path, self._state[DICTIONARIES][name], learned[name], "the checkpoint")

    def compare_tags(self, state_dict: dict[str, Any]) -> None:
        """Warn where a checkpoint has learned from images with other tags, or with none."""
        if self._store is None or not state_dict.get(IMAGE_FEATURES) or IMAGE_TAGS not in state_dict:
            return
        learned, given = state_dict[IMAGE_TAGS], self._state.get(IMAGE_TAGS)
        if learned != given:
            self._warn(
                f"the checkpoint was trained with {learned or 'no tags'} beside the text, but here it gets "
                f"{given or 'none'}: give the --image-tags and --image-tag-score that it was trained with."
            )

    def check_features(self, state_dict: dict[str, Any]) -> None:
        """Compare a checkpoint's features with the task's; no images here or there are no difference.

        Raises:
            InputError: they were made otherwise.
        """
        if self._store is None or self._unchecked:
            return
        if IMAGE_FEATURES not in state_dict:
            self._warn(
                "the checkpoint doesn't say how the image features that it was trained on were made (checkpoints of "
                f"later versions do): nothing but you knows whether {self._store.folder} was made alike."
            )
        elif state_dict[IMAGE_FEATURES] is not None:
            check_alike(self._store, str(state_dict[IMAGE_FEATURES]))


def making_of(store: FeatureStore | PixelSource | None) -> str | None:
    """How the images were made into what a model sees; the photos may be others. None without images."""
    if isinstance(store, PixelSource):
        return signature("pixels", preprocessing=store.preprocessing.describe())
    return None if store is None else store.signature


def check_alike(store: FeatureStore | PixelSource, learned_from: str) -> None:
    """Refuse images that are made into something else than what a checkpoint was trained on.

    Raises:
        InputError: they are.
    """
    if isinstance(store, FeatureStore):
        try:
            check_making(store, learned_from, "the checkpoint")
        except InputError as error:
            raise InputError(f"{error} See {UNCHECKED}.") from error  # the flag is said: no choices
    elif not made_alike(learned_from, str(making_of(store))):
        raise InputError(
            f"the pictures of {store.folder} should be framed as those that the checkpoint was trained on, but aren't: "
            f"{making_of(store)} ≠ {learned_from}. Give the --image-backbone and --image-size that it was trained "
            f"with, or take them all the same. See {UNCHECKED}."
        )


def restored_checkpoint(cfg: Any) -> str | None:
    """The checkpoint that `fairseq-train` goes on from, or begins with; None where it starts afresh.

    Args:
        cfg: with the flags of fairseq's checkpoints that `VisualContextConfig` reads.
    """
    suffix = str(cfg.checkpoint_suffix or "")
    path = cfg.restore_file.replace(".pt", f"{suffix}.pt")
    if cfg.restore_file == "checkpoint_last.pt":  # fairseq's default, in --save-dir
        path = os.path.join(cfg.save_dir, path)
        if not os.path.isfile(path):
            path = cfg.continue_once or cfg.finetune_from_model or ""
    return path if os.path.isfile(path) else None


def task_state_of(path: str) -> dict[str, Any]:
    """The task's state in a checkpoint, without reading its weights; empty where it has none."""
    mapped = zipfile.is_zipfile(path)  # torch before 1.6 wrote files that can only be read whole
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped).get("task_state") or {}
