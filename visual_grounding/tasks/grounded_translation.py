"""Translation with images beside the source: `--task grounded_translation`.

fairseq's translation task, whose batches carry `net_input["visual"]` when `--image-features` names a feature store.
Without it nothing is added, so `--arch text_only_transformer` is the text-only twin on the same data.

With `--retriever` and `--image-index`, or `--image-finder`, `fairseq-interactive` finds the images of what is typed,
and prints them (`data/interactive_images.py`).
"""

import os
import re
import shlex
from dataclasses import dataclass
from typing import Any, Callable, Optional

from fairseq import utils
from fairseq.data import ConcatDataset, Dictionary
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from ..data.interactive_images import InteractiveImages, InteractiveImagesConfig, finder_words
from ..data.text_of_one_language import (
    check_binarised_pair,
    check_same_dictionaries,
    pairs_in,
    read_dictionary,
    splits_there,
    warn_of_unknown,
)
from ..data.visual_context import ImageTablesConfig, VisualContext
from ..data.word_memory import check_restored_choices
from ..errors import InputError
from ..text.pieces import join_pieces
from .one_iterator import OneIterator
from .own_criterions import OwnCriterions


class MissingDictionary(InputError):
    """Binarised text has no dictionary of a language.

    Attributes:
        path: where it should be.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        folder = os.path.dirname(path) or "."
        there = sorted(name.split(".")[1] for name in os.listdir(folder) if re.fullmatch(r"dict\..+\.txt", name))
        super().__init__(
            f"{folder} should have {os.path.basename(path)}, the words of a language, but isn't binarised text of that "
            f"language: those of {' and '.join(there) or 'none'} are there. Say which is translated into which: "
            "--source-lang and --target-lang."
        )


def complete_languages(cfg: TranslationConfig) -> None:
    """Set the languages that aren't named to those of the text; fairseq sets both anew where one is named.

    Raises:
        InputError: there is no such folder, or not one pair of languages in it that fits.
    """
    folder = utils.split_paths(cfg.data)[0]
    if not os.path.isdir(folder):
        raise InputError(
            f"{folder} should be a folder of binarised text, as fairseq-preprocess writes it, but is none."
        )
    named = [language for language in (cfg.source_lang, cfg.target_lang) if language is not None]
    if len(named) == 2:
        return
    there = pairs_in(folder)
    fitting = [pair.split("-") for pair in there if not named or named[0] in pair.split("-")]
    if len(fitting) != 1:
        of = f"one pair of languages with {named[0]}" if named else "one pair of languages, where none is named"
        raise InputError(
            f"{folder} should hold binarised text of {of}, but holds {', '.join(there) or 'none'}. Name both of its "
            "languages: --source-lang and --target-lang."
        )
    first, second = fitting[0]
    if first == cfg.target_lang or second == cfg.source_lang:
        first, second = second, first
    cfg.source_lang, cfg.target_lang = first, second


@dataclass
class GroundedTranslationConfig(ImageTablesConfig, InteractiveImagesConfig, TranslationConfig):
    """Flags of the translation task and of its images."""

    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    disable_validation: bool = II("dataset.disable_validation")


@register_task("grounded_translation", dataclass=GroundedTranslationConfig)
class GroundedTranslationTask(OwnCriterions, OneIterator, TranslationTask):
    """Translate sentences that have images beside them.

    Attributes:
        image_feature_size: F of the feature store, 0 without one; a model may ask for it.
        built_model: the class of the model that was built last, None before.
        looks_apart: the sizes of its decoder, where that can look at text and regions apart: a criterion may ask.

    Raises:
        InputError: only one of `--image-features` and `--image-ids`, or the two don't belong together; the training set
            can't be repeated as `--upsample-primary` says.
    """

    criterions = ("label_smoothed_cross_entropy", "label_smoothed_cross_entropy_with_modality_loss")
    takes_fairseqs = True

    cfg: GroundedTranslationConfig

    def __init__(self, cfg: GroundedTranslationConfig, src_dict: Dictionary, tgt_dict: Dictionary) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        if cfg.upsample_primary == -1:
            cfg.upsample_primary = 1  # fairseq's default takes train minus once, where there are train and train1
        elif cfg.upsample_primary < 1:
            raise InputError(f"--upsample-primary should be at least 1, but is {cfg.upsample_primary}.")
        words = finder_words(cfg)
        self.images = VisualContext(cfg, self)
        folder = utils.split_paths(cfg.data)[0]
        languages = {str(cfg.source_lang): None, str(cfg.target_lang): None}
        check_same_dictionaries(utils.split_paths(cfg.data), [f"dict.{language}.txt" for language in languages])
        for side, language, known in (("source", cfg.source_lang, src_dict), ("target", cfg.target_lang, tgt_dict)):
            self.images.remember_words(side, os.path.join(folder, f"dict.{language}.txt"), known.symbols)
        self.images.write_tags(os.path.join(folder, f"dict.{cfg.source_lang}.txt"), src_dict.symbols)
        if not words:
            self.images.check_tables()
        self.image_store = self.images.store
        self._others_criterion = False  # may tell what it likes
        self.built_model: Optional[type] = None
        self.looks_apart: Any = None
        self.interactive: Optional[InteractiveImages] = None
        if words:
            follows = bool(cfg.retriever)
            self.interactive = InteractiveImages(words, self.image_store, cfg.images_per_sentence, follows)

    @classmethod
    def setup_task(cls, cfg: GroundedTranslationConfig, **kwargs: Any) -> "GroundedTranslationTask":
        """As fairseq's.

        Raises:
            InputError: as `complete_languages` and `load_dictionary`.
        """
        complete_languages(cfg)
        return super().setup_task(cfg, **kwargs)  # type: ignore[no-any-return]

    @property
    def image_feature_size(self) -> int:
        """F of the feature store, 0 without one."""
        return self.images.feature_size

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """As fairseq's.

        Raises:
            MissingDictionary: there is none of the language.
            InputError: it can't be read as one.
        """
        if os.path.isfile(filename):
            return read_dictionary(filename)
        if os.path.isdir(os.path.dirname(filename) or "."):
            raise MissingDictionary(filename)
        return super().load_dictionary(filename)  # type: ignore[no-any-return]

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: there are images, but the model takes text alone; or it has other heads than its checkpoint.
        """
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            check_restored_choices(self.cfg, cfg)
        self.images.check_model(model)
        self.built_model, self.looks_apart = type(model), getattr(model, "looks_apart", None)
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: as `OwnCriterions`.
        """
        criterion = super().build_criterion(cfg, from_checkpoint)
        self._others_criterion = not type(criterion).__module__.startswith(("fairseq.", "visual_grounding."))
        return criterion

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """As fairseq's, which asks before each epoch of training.

        Raises:
            InputError: the best checkpoint is to be chosen by BLEU, which nobody asks for.
        """
        told = self.cfg.eval_bleu or self.cfg.disable_validation or self._others_criterion
        if str(self.cfg.best_checkpoint_metric) == "bleu" and not told:
            raise InputError(
                "--best-checkpoint-metric bleu needs --eval-bleu: without it validation tells loss, nll_loss and ppl."
            )
        super().begin_epoch(epoch, model)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the text of a split, and put the images of `--image-ids DIR/<split>` beside it.

        Raises:
            InputError: there is no such split, or text, ids and store don't belong together.
        """
        if self.interactive is not None:
            raise InputError(
                f"images are found for what is typed into fairseq-interactive, but {split} is binarised text. Make a "
                "table of its images and give that as --image-ids instead: visual-grounding retrieve --method "
                f"{shlex.join(self.interactive.words)} --text FILE --out DIR/{split}"
            )
        source, target = str(self.cfg.source_lang), str(self.cfg.target_lang)
        folders = utils.split_paths(self.cfg.data)
        folder = folders[(epoch - 1) % len(folders) if split == self.cfg.train_subset else 0]
        check_binarised_pair(folder, split, source, target, combine)
        try:
            super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        except FileNotFoundError as error:
            endings = [f".{one}-{other}.{source}.idx" for one, other in ((source, target), (target, source))]
            raise InputError(
                f"{folder} should hold binarised text of the split {split!r}, as fairseq-preprocess writes it, but "
                f"there is none for {source}-{target}. {splits_there(folder, *endings)}"
            ) from error
        dataset = self.datasets[split]
        text = f"{split}.{self.cfg.source_lang}-{self.cfg.target_lang}"
        for lines, dictionary, language in (
            (dataset.src, self.source_dictionary, self.cfg.source_lang),
            (dataset.tgt, self.target_dictionary, self.cfg.target_lang),
        ):
            for said in warn_of_unknown([] if lines is None else lines, dictionary, f"{text}.{language}"):
                self.images.warn_once(said)
        # Of fairseq's older forms lines can't be read before a batch is.
        written = None if getattr(dataset.src, "supports_prefetch", False) else self._written(dataset)
        self.datasets[split] = self.images.add(dataset, split, text, epoch, _parts(dataset), written)

    def _written(self, dataset: Any) -> Callable[[int], list[str]]:
        """A sentence's number -> source and target as words, as well as the dictionaries know them."""
        sides = [(dataset.src, self.source_dictionary), (dataset.tgt, self.target_dictionary)]
        sides = [(tokens, dictionary) for tokens, dictionary in sides if tokens is not None]

        def written(number: int) -> list[str]:
            return [join_pieces(dictionary.string(tokens[number], unk_string=" ")) for tokens, dictionary in sides]

        return written

    def get_interactive_tokens_and_lengths(self, lines: list[str], encode_fn: Any) -> tuple[list, list]:
        """As fairseq's; the lines themselves are kept for the finder, which needs words, not pieces."""
        tokens, lengths = super().get_interactive_tokens_and_lengths(lines, encode_fn)
        if self.interactive is not None:
            self.interactive.remember(lines, tokens)
        return tokens, lengths

    def build_dataset_for_inference(self, src_tokens: list, src_lengths: list, constraints: Any = None) -> Any:
        """Sentences to translate, with the images that are found for them; without a finder, from text alone."""
        dataset = super().build_dataset_for_inference(src_tokens, src_lengths, constraints)
        if self.interactive is not None:
            self.interactive.follow(self.images.trained_with)
            return self.interactive.add(dataset, src_tokens, self.source_dictionary, self.images.tags)
        self.images.warn_once(
            "sentences given to fairseq-interactive have no images; they are translated from text alone. "
            "Images are found with --retriever, --image-index and --image-features, or --image-finder."
        )
        return dataset

    def inference_step(
        self, generator: Any, models: Any, sample: dict, prefix_tokens: Any = None, constraints: Any = None
    ) -> Any:
        """Translate a batch; fairseq-interactive dropped its images, so they are put back.

        Raises:
            InputError: a model takes no images.
        """
        if self.interactive is not None:
            sample = self.interactive.put_back(sample, models)
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)


def _parts(dataset: Any) -> Optional[list[tuple[int, int]]]:
    """Sentences of train, train1, train2 …, and how often each is repeated; None where a split has one part."""
    source = dataset.src
    return list(zip(source.real_sizes, source.sample_ratios)) if isinstance(source, ConcatDataset) else None
