"""What tasks of understanding share: labelled examples, with images or without, and scores over a whole split."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Optional

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor

from ..analysis.prediction_scores import METRICS, NO_TAGS, Predicted, prediction_scores
from ..data.labelled_examples import (
    NO_LABEL,
    NO_LABEL_INSIDE,
    NO_WORD,
    PREDICTIONS,
    ExampleBatches,
    Examples,
    answers_as_numbers,
    read_examples,
)
from ..data.text_of_one_language import check_positions, load_dictionary
from ..data.visual_context import ImageTablesConfig, VisualContext
from ..data.word_memory import check_restored_choices
from ..errors import InputError
from ..shares import warn_of
from ..storage.artefact import META
from ..text.example_files import ANSWERS, SIDES, Asked, check_unchanged, read_asked, read_column
from ..text.labelled_text import TAGS, VALUES
from .own_criterions import OwnCriterions
from .validation_scores import Scored, ValidationScores, Values


@dataclass
class UnderstandingConfig(ImageTablesConfig):
    """Flags of the examples."""

    data: Optional[str] = field(
        default=None,
        metadata={
            "help": "labelled examples, as visual-grounding prepare writes them; several folders, colon-separated, one "
            "an epoch"
        },
    )
    max_pieces: int = field(
        default=128, metadata={"help": "pieces of an example, the symbols around and between its sentences included"}
    )


class UnderstandingTask(OwnCriterions, ValidationScores):
    """Labelled examples of text.

    Attributes:
        asked: what is to be told of them.
        outputs: of a model's head: classes, tags, or 1 for a number.
        kinds: which answers the task is for, and the name of the other task.

    Raises:
        InputError: no room for a piece of each sentence; or as `VisualContext`.
    """

    cfg: Any
    target_dictionary = None
    kinds: ClassVar[tuple[Sequence[str], str]]

    def __init__(self, cfg: Any, dictionary: Dictionary, path: str, asked: Asked) -> None:
        super().__init__(cfg)
        self.dictionary, self.path, self.asked = dictionary, path, asked
        self.criterions = ("grounded_tagging" if asked.answers == TAGS else "grounded_sentence_prediction",)
        self.outputs = 1 if asked.answers == VALUES else len(asked.labels)
        self.scored = {PREDICTIONS: Scored(("gold", "predicted"), tuple(METRICS[asked.answers]), self._scores_of_split)}
        if cfg.max_pieces < asked.separators + 4:
            raise InputError(
                f"--max-pieces should be at least {asked.separators + 4}, the symbols around sentences and a piece of "
                f"each, but is {cfg.max_pieces}."
            )
        self.images = VisualContext(cfg, self)
        self.images.check_tables()
        self.images.remember_words("source", path, dictionary.symbols)
        if asked.tokenizer_sha256:
            self.images.remember_words("tokenizer", f"the tokenizer of {path}", [asked.tokenizer_sha256])
        self.images.remember_words("answers", f"what {META} beside {path} says of answers", asked.labels)
        of = "pairs of sentences" if asked.sentences == len(SIDES) else "whole sentences"
        if asked.word or asked.answers == TAGS:
            of = "each word" if asked.answers == TAGS else "a word of each sentence"
        pairs = asked.sentences == len(SIDES) and self.images.store is not None
        self.images.remember_asked(of, str(cfg.image_sentence) if pairs else None)
        self.images.write_tags(path, dictionary.symbols)

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Load the dictionary, and what is asked.

        Raises:
            InputError: no examples are given, or they ask for something else.
        """
        name = str(cfg._name) if getattr(cfg, "_name", None) else cls.__name__
        if not cfg.data:
            raise InputError(f"--task {name} needs a folder of examples: visual-grounding prepare … --out DIR")
        folder = utils.split_paths(cfg.data)[0]
        asked, _ = read_asked(Path(folder))
        kinds, other = cls.kinds
        if asked.answers not in kinds:
            raise InputError(
                f"--task {name} is for examples that ask for {' or '.join(kinds)}, but those in {folder} ask for "
                f"{asked.answers}: train on them with --task {other}."
            )
        return cls(cfg, *load_dictionary(folder), asked)

    @property
    def source_dictionary(self) -> Dictionary:
        """Of the pieces."""
        return self.dictionary

    @property
    def image_feature_size(self) -> int:
        """F of the feature store."""
        return self.images.feature_size

    @property
    def image_store(self) -> Any:
        """The store; None without images."""
        return self.images.store

    @property
    def sides(self) -> Sequence[str]:
        """Whose images there are: what stands behind the names of their tables."""
        return ("",)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: the model isn't one of understanding, takes text alone, has positions for less than
                `--max-pieces`, or other heads than the checkpoint that training goes on from.
        """
        arch = str(getattr(cfg, "arch", None) or getattr(cfg, "_name", None))
        if not getattr(ARCH_MODEL_REGISTRY.get(arch), "understands", False):
            raise InputError(
                f"--arch {arch} tells no classes, numbers or tags of text. Choose one that does: visual_aware_bert or "
                "grounded_albert."
            )
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            check_restored_choices(self.cfg, cfg)
        self.images.check_model(model)
        check_positions(model, int(self.cfg.max_pieces))
        if self.asked.answers == VALUES and not from_checkpoint:
            self._begin_at_the_mean(model)
        return model

    def _begin_at_the_mean(self, model: Any) -> None:
        """A number is told, at first, as the mean of those to train on; a checkpoint that is loaded has its own.

        # Assumption: neither paper says; from 0 on, hundreds of small updates only find that mean.
        """
        folder, split = Path(self.path).parent, str(self.cfg.train_subset)
        of = read_asked(folder)[1]["splits"].get(split)
        if of is not None:
            answers = read_column(folder, split, ANSWERS, of["examples"])
            model.head.begin_at(float(np.mean(answers_as_numbers(f"{folder / split}.{ANSWERS}", answers))))

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: the criterion is for other answers.
        """
        criterion = super().build_criterion(cfg, from_checkpoint)
        if self.asked.answers not in getattr(criterion, "tells", ()):
            raise InputError(
                f"--criterion {cfg._name} isn't for {self.asked.answers} to be told of text: give --criterion "
                f"{self.criterions[0]}."
            )
        return criterion

    @property
    def _positions(self) -> int:
        """Of a row; what stands before it takes one."""
        return int(self.cfg.max_pieces) - 1

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the examples of a split and their images.

        Raises:
            InputError: there are none, they ask for something else than others do, or examples, ids and store don't
                belong together.
        """
        training = split == self.cfg.train_subset
        folders = utils.split_paths(str(self.cfg.data))
        folder = Path(folders[(epoch - 1) % len(folders) if training else 0])
        asked, meta = read_asked(folder)
        own = self.asked.tokenizer_sha256
        if asked != self.asked:
            pieces = " of the same tokenizer's pieces" if replace(asked, tokenizer_sha256=own) == self.asked else ""
            raise InputError(f"{folder} should ask for what {Path(self.path).parent} asks for{pieces}, but doesn't.")
        if split not in meta["splits"]:
            raise InputError(
                f"{folder} should hold examples of {split}, but has {', '.join(sorted(meta['splits']))}. Add them "
                f"with: visual-grounding prepare … --out {folder}"
            )
        check_unchanged(folder, split, meta["splits"][split])
        examples = read_examples(folder, split, asked, self.dictionary)
        batches = ExampleBatches(examples, asked, self.dictionary, self._positions, shuffle=training)
        self._warn(examples, batches, str(folder / split))
        texts: dict[str, list[str]] = {}

        def line(side: str, number: int) -> list[str]:
            if side not in texts:
                texts[side] = read_column(folder, split, side, len(examples))
            return [texts[side][number]]

        first, second = (meta["splits"][split].get("files", {}).get(side) for side in SIDES)
        mistaken = {} if first == second else {"": second, f".{SIDES[1]}": first}
        written = [partial(line, suffix.removeprefix(".") or SIDES[0]) for suffix in self.sides]
        self.datasets[split] = self.images.add(
            batches, split, str(folder / split), epoch, written=written, beside=self.sides, mistaken=mistaken
        )

    def _warn(self, examples: Examples, batches: ExampleBatches, place: str) -> None:
        cut = int((batches.whole_sizes > batches.sizes).sum())
        for said in warn_of(cut, len(examples), "are cut at --max-pieces.", "examples"):
            self.images.warn_once(f"{place}: {said}")
        if self.asked.answers == VALUES:
            return
        flat = examples.targets.numbers if self.asked.answers == TAGS else examples.targets
        noun = "words" if self.asked.answers == TAGS else "examples"
        unknown = int(np.isin(flat, (NO_LABEL, NO_LABEL_INSIDE)).sum())
        for said in warn_of(unknown, len(flat), "have an answer that no example to train on has: wrong anyway.", noun):
            self.images.warn_once(f"{place}: {said}")

    def learned(self, sample: dict[str, Any]) -> Tensor:
        """What a batch's answers should be; a negative number where nothing can be learned.

        Shapes:
            returns: (B,), or (B, W) of tags: a word without a piece has no state to tell it from
        """
        target: Tensor = sample["target"]
        if self.asked.answers == TAGS:
            target = target.masked_fill(sample["net_input"]["word_positions"] < 0, NO_WORD)
        return target

    def max_positions(self) -> None:
        """No limit but `--max-pieces`."""
        return None

    def _scores_of_split(self, values: Values) -> dict[str, float]:
        return prediction_scores(self.predicted(values["gold"].numpy(), values["predicted"].numpy()))

    def predicted(self, gold: np.ndarray, predicted: np.ndarray) -> Predicted:
        """What a criterion handed over, for the scores.

        Shapes:
            gold, predicted: (S,); of tags (S, W), their numbers plus 3, 0 where there is no word
        """
        if self.asked.answers != TAGS:
            return Predicted(self.asked.answers, gold, predicted, self.outputs)
        names = ["", *NO_TAGS, *self.asked.labels]
        ours, theirs = (
            [[names[number] for number in row if number] for row in table.tolist()] for table in (gold, predicted)
        )
        return Predicted(TAGS, ours, theirs)
