"""What a checkpoint remembers of its images and words: how features were made, how many images, which words.

    checkpoint["task_state"]["image_features"]         signature of the features, or of how pictures were framed;
                                                       None where it was trained without images
    checkpoint["task_state"]["images_per_sentence"]    N of the training set; not there without images
    checkpoint["task_state"]["asked"]                  of what its examples ask, where they ask something
    checkpoint["task_state"]["image_sentence"]         which sentence of a pair had images; not there without
    checkpoint["task_state"]["image_tags"]             how labels of regions were read as words; None: not at all

Its words, and how it meets a checkpoint: `word_memory.py`.
"""

from collections.abc import Callable
from typing import Any

from fairseq.tasks.fairseq_task import StatefulContainer

from ..errors import InputError
from ..features.making import check_making
from ..features.pixels import PixelSource
from ..features.store import FeatureStore
from ..storage.signature import made_alike, signature
from .word_memory import DICTIONARIES, WordMemory

IMAGE_FEATURES = "image_features"
IMAGES_PER_SENTENCE = "images_per_sentence"
IMAGE_TAGS = "image_tags"
IMAGE_SENTENCE = "image_sentence"
ASKED = "asked"
UNCHECKED = "--image-features-unchecked"


class ImageMemory(WordMemory):
    """A task's state that knows its image features and words, and refuses a checkpoint that knows others.

    Args:
        before: the state that the task had.
        store: the task's features, or the pictures that its model sees; None without images.
        unchecked: take a checkpoint that was trained on features of another making.
        warn: says something once a run.

    Attributes:
        trained_with: N of each checkpoint that was seen and says it, every number once.
    """

    own = (IMAGE_FEATURES, IMAGES_PER_SENTENCE, IMAGE_TAGS, IMAGE_SENTENCE, ASKED, DICTIONARIES)

    def __init__(
        self,
        before: StatefulContainer,
        store: FeatureStore | PixelSource | None,
        unchecked: bool,
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(before)
        self._state[IMAGE_FEATURES] = making_of(store)
        self._store = store
        self._unchecked = unchecked
        self._warn = warn
        self.trained_with: list[int] = []

    def remember_count(self, images_per_sentence: int) -> None:
        """Know N of the training set."""
        self._state[IMAGES_PER_SENTENCE] = images_per_sentence

    def remember_tags(self, choice: str | None) -> None:
        """Know how labels of regions are words beside the text; None for not at all."""
        self._state[IMAGE_TAGS] = choice

    def remember_asked(self, asked: str, image_sentence: str | None) -> None:
        """Know of what examples ask, and which sentence of a pair has images; None without images, or pairs."""
        self._state[ASKED] = asked
        if image_sentence is not None:
            self._state[IMAGE_SENTENCE] = image_sentence

    def take_over(self, state_dict: dict[str, Any]) -> None:
        """Compare a checkpoint with the task; a task without images keeps what the checkpoint knows of its own.

        So a run without images forgets nothing of a model that has learned from some.

        Raises:
            InputError: the checkpoint was trained on features of another making, with other words, or on examples that
                ask something else.
        """
        super().take_over(state_dict)
        self.check_features(state_dict)
        self.compare_tags(state_dict)
        self.compare_asked(state_dict)
        if self._store is None:
            self._state[IMAGE_FEATURES] = self._state[IMAGE_FEATURES] or state_dict.get(IMAGE_FEATURES)
            if IMAGE_TAGS in state_dict:
                self._state[IMAGE_TAGS] = state_dict[IMAGE_TAGS]
        count = state_dict.get(IMAGES_PER_SENTENCE)
        if count is not None and count not in self.trained_with:
            self.trained_with.append(count)
            self._state.setdefault(IMAGES_PER_SENTENCE, count)

    def compare_asked(self, state_dict: dict[str, Any]) -> None:
        """Compare what a checkpoint's examples asked with the task's, and warn where another sentence had images.

        Raises:
            InputError: they ask something else, so that the head would tell it from another state.
        """
        learned, own = state_dict.get(ASKED), self._state.get(ASKED)
        if None not in (learned, own) and learned != own:
            raise InputError(
                f"examples should ask of {learned}, as those that the checkpoint was trained on, but these ask of "
                f"{own}.",
                "data",
            )
        learned, own = state_dict.get(IMAGE_SENTENCE), self._state.get(IMAGE_SENTENCE)
        if self._store is None and learned is not None:
            self._state[IMAGE_SENTENCE] = learned
        elif None not in (learned, own) and learned != own:
            self._warn(
                f"the checkpoint was trained with images of --image-sentence {learned}, but here it gets those of "
                f"{own}."
            )

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
            check_alike(self._store, state_dict[IMAGE_FEATURES])


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
