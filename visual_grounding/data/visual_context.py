"""The images of a task: one owner of the image flags, whatever the text beside them.

A task takes `VisualContextConfig` (or `ImageTablesConfig`, where tables of image ids say which images go with which
sentence) into its own configuration, makes a `VisualContext` in its constructor, and hands every dataset through it in
`load_dataset`; `net_input["visual"]` is then in every batch:

    self.images = VisualContext(cfg, self)
    self.datasets[split] = self.images.add(dataset, split, f"{split}.en-de", epoch)

Checkpoints remember how their features were made, and how many images a sentence had, without any more of the task
(`image_memory.py`); and which words they were trained with, where the task says them with `remember_words`
(`word_memory.py`).
"""

import logging
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import numpy as np
import torch
from fairseq import utils
from fairseq.data import FairseqDataset
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, DictConfig

from ..errors import InputError, printable
from ..features.pixels import PixelSource
from ..features.store import FeatureStore
from ..retrieval.finder import Finder
from ..retrieval.image_ids import NO_IMAGE, ImageIds
from ..shares import percent, share, warn_of
from ..text.resemblance import UNLIKE, of_strangers
from .complete_batches import CompleteBatches
from .image_memory import ImageMemory
from .image_order import IMAGE_ORDERS, arrange_images, derangement, keep_own_images
from .image_tables import check_root, load_image_ids
from .image_tags import ImageTags
from .visual_batches import FoundImages, ImageChoice, TabledImages, VisualContextDataset

logger = logging.getLogger(__name__)

_TAG_SCORE = 0.3
_LOOKED_AT = 20_000
_ASKED = 200  # lines that a finder is asked beforehand, to say what it makes of them
Written = Callable[[int], Iterable[str]]
_BY_WORDS = re.compile(r"\|method:(dense|keyword|object|scene)\|")  # in a table's signature
# What flags of images are where nobody gives them.
_OF_IMAGES = {"images_per_sentence": 0, "image_order": "congruent", "image_seed": 1, "image_sentence": "first"}


@dataclass
class VisualContextConfig(FairseqDataclass):
    """The flags of every task with images."""

    image_features: Optional[str] = field(
        default=None, metadata={"help": "feature store; without it the batches hold text alone"}
    )
    image_features_unchecked: bool = field(
        default=False,
        metadata={"help": "take a checkpoint that was trained on features made in another way than --image-features"},
    )
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")
    save_dir: str = II("checkpoint.save_dir")  # this and the next: which checkpoint training goes on from
    restore_file: str = II("checkpoint.restore_file")
    num_workers: int = II("dataset.num_workers")
    continue_once: Optional[str] = II("checkpoint.continue_once")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")


@dataclass
class ImageTablesConfig(VisualContextConfig):
    """The flags of a task whose images tables of image ids name."""

    image_ids: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder with one table of image ids a split: DIR/<split>; as many, colon-separated, as data paths"
        },
    )
    images_per_sentence: int = field(
        default=0,
        metadata={
            "help": "use the best N of the retrieved images; 0 for all (with --retriever: as many as the checkpoint "
            "was trained with, or 8)"
        },
    )
    image_order: ChoiceEnum(IMAGE_ORDERS) = field(  # type: ignore[valid-type]
        default="congruent",
        metadata={"help": "give each sentence its own images, those of another sentence, or none"},
    )
    image_seed: int = field(default=1, metadata={"help": "seed of --image-order shuffled"})
    image_tags: Optional[str] = field(
        default=None,
        metadata={
            "help": "give the model the labels of the images' regions as words of the source dictionary: `words`, or "
            "the tokenizer (hub name or folder) whose pieces it has"
        },
    )
    image_tag_score: float = field(
        default=_TAG_SCORE, metadata={"help": "with --image-tags: name the regions whose score is at least this"}
    )


class VisualContext:
    """Opens the images of a task, checks that text, ids and images belong together, and puts them into its batches.

    Args:
        cfg: the task's configuration.
        task: whose state remembers how the features were made.
        pictures: the images themselves, instead of `--image-features`.

    Attributes:
        store: a `FeatureStore` or a `PixelSource`; None for a task without images.
        tags: what writes the labels of regions as words; None without `--image-tags`.

    Raises:
        InputError: there is no such feature store, or flags that don't make sense together.
    """

    def __init__(self, cfg: VisualContextConfig, task: FairseqTask, pictures: Optional[PixelSource] = None) -> None:
        if getattr(cfg, "image_seed", 0) < 0:  # not every task has the flag
            raise InputError(f"--image-seed should be 0 or more, but is {cfg.image_seed}.")
        self.cfg: Any = cfg
        self.store: Any = FeatureStore(cfg.image_features) if cfg.image_features else pictures
        self.tags: Optional[ImageTags] = None
        self._said: set[str] = set()
        self._memory = ImageMemory(task.state, self.store, cfg.image_features_unchecked, self.warn_once)
        task.state = self._memory
        forget_unchecked(cfg)
        idle = [
            f"--{name.replace('_', '-')} {getattr(cfg, name)}"
            for name, default in _OF_IMAGES.items()
            if self.store is None and str(getattr(cfg, name, default)) != str(default)
        ]
        if idle:
            self.warn_once(f"{', '.join(idle)} changes nothing: without --image-features there are no images.")

    @property
    def feature_size(self) -> int:
        """F of the feature store, 0 without one; a model may ask for it."""
        return self.store.feature_size if isinstance(self.store, FeatureStore) else 0

    @property
    def trained_with(self) -> list[int]:
        """The numbers of images that the checkpoints which were loaded had for a sentence in training."""
        return self._memory.trained_with

    def remember_words(self, name: str, path: str, symbols: Iterable[str], remedy: Optional[str] = None) -> None:
        """Let checkpoints remember a dictionary, and refuse those that were trained with other words, or another order.

        Args:
            name: what it is for, such as "source": a checkpoint's dictionary of the same name is compared.
            path: where it was read.
            symbols: in the order of their numbers.
            remedy: what to give instead, where the words aren't the data's.
        """
        self._memory.remember_words(name, path, symbols, remedy)

    def remember_asked(self, asked: str, image_sentence: Optional[str]) -> None:
        """Let checkpoints remember of what examples ask, and refuse those that learned something else.

        Args:
            image_sentence: which sentence of a pair has images; None without images, or pairs.
        """
        self._memory.remember_asked(asked, image_sentence)

    def write_tags(self, path: str, symbols: Sequence[str]) -> None:
        """Put the labels of regions into the batches as words, where `--image-tags` asks for it.

        Args:
            path: where the dictionary was read that has these words.
            symbols: in the order of their numbers.

        Raises:
            InputError: there are no images, or their regions have no labels or scores; a score without tags; or as
                `ImageTags`.
        """
        if not self.cfg.image_tags:
            if self.cfg.image_tag_score != _TAG_SCORE:
                raise InputError("--image-tag-score chooses among the tags of images: give --image-tags, too.")
            if self.store is not None:
                self._memory.remember_tags(None)
            return
        if self.store is None:
            raise InputError("--image-tags names what is in images, but --image-features isn't given.")
        self.need_columns("labels", "scores", why="for --image-tags")
        highest = self.store.highest_score()
        with np.errstate(over="ignore"):
            least = np.float16(self.cfg.image_tag_score)  # as scores are
        if least > highest:
            raise InputError(
                f"--image-tag-score should leave tags, but is {self.cfg.image_tag_score:g}: the highest score in "
                f"{self.store.folder} is {highest:.3g}."
            )
        self.tags = ImageTags(self.store.label_names, symbols, path, str(self.cfg.image_tags), self.cfg.image_tag_score)
        self._memory.remember_tags(self.tags.choice)
        said = self.tags.warning()
        if said:
            self.warn_once(said)

    def check_model(self, model: Any) -> None:
        """Refuse a model that would leave the images away, or their tags.

        Raises:
            InputError: there are images, but the model takes text alone, or needs more of them than the store has; or
                tags, which it doesn't read.
        """
        if self.store is not None and "visual" not in signature(model.forward).parameters:
            raise InputError(
                f"--image-features and --image-ids are for a model that looks at images, but {type(model).__name__} "
                "(--arch transformer and the like) takes text alone. Leave both flags out for the text-only twin, or "
                "choose an architecture with images, such as --arch visual_aware_transformer."
            )
        needed = getattr(model, "needs_columns", ())
        if needed:
            self.need_columns(*needed, why=f"for {type(model).__name__}")
        if self.tags is not None and not getattr(model, "reads_image_tags", False):
            raise InputError(
                "--image-tags is for a model that reads tags, such as --arch vlp_translation, but "
                f"{type(model).__name__} doesn't: leave it out."
            )
        read = {*getattr(model, "reads_columns", ()), *(("labels",) if self.tags is not None else ())}
        unread = [name for name in ("boxes", "labels", "attributes") if name not in read and name in self._columns()]
        if unread:
            logger.info(
                "%s does without the %s of the regions in %s",
                type(model).__name__,
                " and ".join(unread),
                self.store.folder,
            )

    def _columns(self) -> tuple[str, ...]:
        return self.store.columns if isinstance(self.store, FeatureStore) else ()

    def need_columns(self, *names: str, why: str) -> None:
        """Refuse a store that lacks what a task can't do without. A run without images needs nothing.

        Args:
            names: of optional columns: boxes, labels, attributes, scores.
            why: what they are for, as the end of a sentence: "for masked region classification".

        Raises:
            InputError: there are images, but not all of these are known of their regions.
        """
        if self.store is None:
            return
        if not isinstance(self.store, FeatureStore):
            raise InputError(
                f"{' and '.join(names)} of regions are needed {why}, but the images are pictures that are read while "
                "training, of which no regions are known. Give a feature store with them: --image-features"
            )
        lacking = [name for name in names if name not in self.store.columns]
        if lacking:
            raise InputError(
                f"{' and '.join(lacking)} of regions are needed {why}, but {self.store.folder} has "
                f"{', '.join(('features', *self.store.columns))}. Make a store that has them: with a detector, or "
                "by visual-grounding import from what one found. docs/regions.md says how."
            )

    def check_tables(self) -> None:
        """Refuse `--image-ids` without `--image-features` or the other way round, or not as many as there are texts.

        Raises:
            InputError: one of these.
        """
        if bool(self.cfg.image_features) != bool(self.cfg.image_ids):
            given, missing = (
                ("--image-features", "--image-ids") if self.cfg.image_features else ("--image-ids", "--image-features")
            )
            typed = ""
            if given == "--image-features" and hasattr(self.cfg, "image_finder"):
                typed = (
                    " fairseq-interactive finds the images of what is typed: give it --retriever and --image-index, or "
                    "--image-finder."
                )
            raise InputError(f"{given} and {missing} belong together, but {missing} isn't given.{typed}")
        texts, tables = utils.split_paths(self.cfg.data), utils.split_paths(self.cfg.image_ids or "")
        if self.cfg.image_ids and len(tables) != len(texts):
            raise InputError(
                f"--image-ids should name as many folders as there are of text ({len(texts)}: {self.cfg.data}), but "
                f"names {len(tables)}: {self.cfg.image_ids}."
            )

    def add(
        self,
        dataset: FairseqDataset,
        split: str,
        text: str,
        epoch: int = 1,
        parts: Optional[Sequence[tuple[int, int]]] = None,
        written: Written | Sequence[Written] | None = None,
        names: Optional[Sequence[str]] = None,
        choose: Callable[[np.ndarray], ImageChoice] = TabledImages,
        beside: Sequence[str] = ("",),
        hides: bool = False,
        asks: bool = False,
        mistaken: Optional[Mapping[str, str]] = None,
    ) -> CompleteBatches:
        """A dataset with the images that the tables in `--image-ids DIR/<split>` name; without images, as it is.

        Args:
            dataset: S sentences.
            split: its name.
            text: what the sentences are, for messages.
            epoch: which of several folders is meant: as the text, the training set may come in several, one an epoch.
            parts: where a split has several (train, train1 …), the sentences of each, and how often they are repeated.
            written: a sentence's number in the dataset -> what its images may have been found for: source and target;
                or one for each of `beside`.
            names: of the parts and of their tables in DIR, where they aren't <split>, <split>1 …
            choose: from the tables (S, N), as `--image-order` arranges them, to the images of every batch.
            beside: what stands behind the names of tables; of several tables the images stand side by side.
            hides: whether the task hides the words that a table's mask hid from its finder.
            asks: whether it asks for words that it hides, which images that were found for whole lines tell.
            mistaken: for one of `beside` -> the sha256 of a text that its tables are easily made of instead.

        Raises:
            InputError: a table is missing or broken, has another number of sentences or too few images for each, is
                of another collection, or of the text that it is mistaken for; `--image-order` isn't possible.
        """
        self._check_restored(split)
        if self.store is None:
            return CompleteBatches(dataset)
        parts = parts or [(len(dataset), 1)]
        roots = utils.split_paths(self.cfg.image_ids)
        root = roots[(epoch - 1) % len(roots)] if split == self.cfg.train_subset else roots[0]
        check_root(root, split)
        numbered = [split + (str(part) if part else "") for part in range(len(parts))]
        said = names or [text.replace(split, name, 1) for name in numbered]
        folders = [os.path.join(root, name) for name in names or numbered]
        columns = []
        texts = [written] * len(beside) if written is None or callable(written) else written
        for suffix, found_for in zip(beside, texts):
            found, tables = load_image_ids(
                [folder + suffix for folder in folders], self.cfg.images_per_sentence, [times for _, times in parts]
            )
            columns.append(found)
            first = 0
            for named, table, (sentences, times) in zip(said, tables, parts):
                table.check_against(self.store)
                table.check_lines(sentences, named)
                self._check_what_for(table, named, (mistaken or {}).get(suffix), hides, asks)
                if found_for is not None:
                    self._warn_of_other_text(table, named, found_for, first)
                first += sentences * times
        ids = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        order = str(self.cfg.image_order)
        if order != "blank":
            self._warn_of_another_count(ids.shape[1], f"image ids in {folders[0]} name", len(beside))
        self._learn_with(ids.shape[1], split)
        given, ids = ids, arrange_images(ids, order, self.cfg.image_seed)
        kept = int(keep_own_images(given, ids).sum()) if order == "shuffled" else 0
        if kept:
            self.warn_once(
                f"{share(kept, len(ids), f'sentences of {text}')} keep an image of their own under "
                "--image-order shuffled: too many sentences share their images. Fewer --images-per-sentence may help."
            )
        blind = int((~self._present(ids)).all(axis=1).sum())
        if blind and order != "blank":
            self.warn_once(f"{share(blind, len(ids), f'sentences of {text}')} have no image: text alone must do.")
        self._say(text, ids.shape[1], order, f"{share(blind, len(ids), 'sentences')} have none")
        return VisualContextDataset(dataset, self.store, choose(ids), tags=self.tags)

    def _check_what_for(self, table: ImageIds, named: str, mistaken: Optional[str], hides: bool, asks: bool) -> None:
        """Refuse a table of the text that it is mistaken for; warn of one for a mask that nothing hides, or a leak."""
        if table.text_sha256 is not None and table.text_sha256 == mistaken:
            raise InputError(
                f"the images in {table.folder} should be of the other sentence of each example of {named}: they were "
                "found for the one that this table isn't for. Make it for the file that --image-sentence asks for, or "
                "change that."
            )
        if table.mask is not None and not hides:
            remedy = "Take their own: --method paired" if asks else "Find them for whole lines: without --mask-prob"
            self.warn_once(
                f"the images in {table.folder} were found for what --mask-prob {table.mask.probability} leaves of each "
                f"line, but here no word of its mask is hidden. {remedy}."
            )
        by_words = table.mask is None and _BY_WORDS.search(table.signature) is not None
        if asks and by_words and str(self.cfg.image_order) == "congruent":
            self.warn_once(
                f"the images in {table.folder} were found by the words of each line, and some of these are hidden here "
                "and asked for: such images tell them. What a sentence's own images are worth is learned with those of "
                "visual-grounding retrieve --method paired."
            )

    def _say(self, text: str, count: int, how: str, without: str) -> None:
        """The line of the log that says which images a split has."""
        where = f"{self.store.folder}, {self.store.signature}"
        how, where = printable(how), printable(where)  # signatures are of other people's files
        logger.info("images of %s: %d a sentence, %s; %s; features %s", text, count, how, without, where)

    def _present(self, ids: np.ndarray) -> np.ndarray:
        """Which ids are of an image that the store has something of; of many images, 20,000 are looked at.

        Shapes:
            ids: (S, N)
            returns: (S, N) bool
        """
        present = np.asarray(ids >= 0)
        if isinstance(self.store, FeatureStore):
            rows = np.unique(ids[present])
            if len(rows) > _LOOKED_AT:
                rows = rows[:: -(-len(rows) // _LOOKED_AT)]
            absent = rows[self.store.absent(rows)]
            if len(absent):
                present &= ~np.isin(ids, absent)
                self.warn_once(
                    f"{share(len(absent), len(rows), 'images')} that {self.store.folder} is asked for have no region "
                    "in it: they couldn't be read, or nothing was found in them. They count as none."
                )
        return present

    def _warn_of_other_text(
        self, table: ImageIds, text: str, written: Callable[[int], Iterable[str]], first: int
    ) -> None:
        alike, other = table.likeness(lambda line: written(first + line))
        if other:
            self.warn_once(
                f"the images in {table.folder} were found for another text than {text}: {of_strangers(other)}"
            )
        if alike is not None and alike < UNLIKE:
            self.warn_once(
                f"the images in {table.folder} were found for another text than {text}, of as many lines: on a sample "
                f"they are {percent(alike)} alike. If they are the same sentences in a third language, all is well; "
                "else make the table for this text, with: visual-grounding retrieve … --text FILE --out DIR"
            )

    def add_rows(self, dataset: FairseqDataset, rows: np.ndarray, split: str) -> CompleteBatches:
        """A dataset with images that the task knows by itself; pictures in training are framed anew every epoch.

        Shapes:
            rows: (S, N), −1 = none
        """
        self._check_restored(split)
        if self.store is None:
            return CompleteBatches(dataset)
        self._learn_with(rows.shape[1], split)
        blind = int((~self._present(rows)).all(axis=1).sum())
        self._say(split, rows.shape[1], "its own", f"{share(blind, len(rows), 'sentences')} have none")
        framed = isinstance(self.store, PixelSource) and split == self.cfg.train_subset
        return VisualContextDataset(dataset, self.store, TabledImages(rows), self.cfg.seed if framed else None)

    def add_none(self, dataset: FairseqDataset, split: str) -> CompleteBatches:
        """A dataset whose sentences have no images, whatever the flags say of others.

        Args:
            dataset: sentences.
            split: its name.

        Raises:
            InputError: training goes on from a checkpoint of other features or words.
        """
        self._check_restored(split)
        return CompleteBatches(dataset)

    def add_found(
        self,
        dataset: FairseqDataset,
        split: str,
        finder: Finder,
        line_of: Callable[[Any], str],
        excluded: Optional[np.ndarray] = None,
    ) -> CompleteBatches:
        """A dataset whose images a finder finds while batches are made: for text that is masked anew, for instance.

        Shuffled, each sentence gets what is found for another one's text as that is now, by a seeded derangement.

        Args:
            dataset: its items have their index as `sample["id"]`.
            split: its name.
            finder: of images of this store.
            line_of: the text of an item as it is now.
            excluded: (S,) for each item the row that it must not get, −1 for none.

        Raises:
            InputError: the finder finds images of another collection, or fewer than `--images-per-sentence`, or
                computes on a GPU in the data loader's workers, which are forked: CUDA doesn't work there.
        """
        self._check_restored(split)
        if self.store is None:
            return CompleteBatches(dataset)
        finder.check_store(self.store)
        workers = int(self.cfg.num_workers)
        if workers and finder.device != "cpu":
            raise InputError(
                f"images are found while batches are made, by a finder on {finder.device}; the {workers} processes of "
                "--num-workers that make them can't use it. Let it compute on the cpu, or give --num-workers 0."
            )
        order = str(getattr(self.cfg, "image_order", "congruent"))
        count = getattr(self.cfg, "images_per_sentence", 0)
        if order == "blank":
            blank = TabledImages(np.full((len(dataset), 1), NO_IMAGE))
            self._say(split, 1, order, "all have none")
            return VisualContextDataset(dataset, self.store, blank, tags=self.tags)
        if count < 0:
            raise InputError(f"--images-per-sentence should be 0 (all) or more, but is {count}.")
        if count > finder.images_per_sentence:
            raise InputError(f"--images-per-sentence is {count}, but the finder finds {finder.images_per_sentence}.")
        count = count or finder.images_per_sentence
        self._learn_with(count, split)
        others = None
        if order == "shuffled":
            others = derangement(np.arange(len(dataset)), self.cfg.image_seed), dataset
        self._say_what_is_found(dataset, split, finder, line_of, excluded, count, others)
        choice = FoundImages(finder, line_of, excluded, count, others)
        return VisualContextDataset(dataset, self.store, choice, tags=self.tags)

    def _say_what_is_found(
        self,
        dataset: Any,
        split: str,
        finder: Finder,
        line_of: Callable[[Any], str],
        excluded: Optional[np.ndarray],
        count: int,
        others: Optional[tuple[np.ndarray, Any]] = None,
    ) -> None:
        """Log how images are found, and warn of what a sample of the lines shows: later nobody is told."""
        places = np.arange(len(dataset))[:: -(-len(dataset) // _ASKED) or 1]
        lines = [line_of(dataset[int(place)]) for place in places]
        rows = None if excluded is None else excluded[places]
        found = finder.find(lines, rows)
        blind = int((~self._present(found.ids)).all(axis=1).sum())
        how = f"found while batches are made, {getattr(self.cfg, 'image_order', 'congruent')}, {finder.signature}"
        self._say(split, count, how, f"{share(blind, len(lines), 'lines')} of a sample have none")
        counts = finder.conclude(dict(found.counts), lines, found.ids, rows).counts
        remarks = list(finder.warnings(Counter(counts), len(lines)))
        if others is not None:
            lent = finder.find([line_of(dataset[int(others[0][place])]) for place in places], rows)
            best, theirs = found.ids[:, 0], lent.ids[:, 0]
            kept = int(((best == theirs) & (best != NO_IMAGE)).sum())
            remarks += warn_of(kept, len(lines), "keep their best image when shuffled: it is another line's best, too.")
        for said in remarks:
            self.warn_once(f"{split}, by a sample: {said}")

    def _learn_with(self, images_per_sentence: int, split: str) -> None:
        if split == self.cfg.train_subset:
            self._memory.remember_count(images_per_sentence)

    def _warn_of_another_count(self, count: int, what: str, tables: int = 1) -> None:
        for learned in self.trained_with:
            if learned != count:
                of_each = max(1, learned // tables)
                mend = (
                    f"Take the best with --images-per-sentence {of_each}."
                    if learned < count
                    else f"More are found by: visual-grounding retrieve … -n {of_each}"
                )
                self.warn_once(
                    f"the checkpoint was trained with {learned} images a sentence, but {what} {count}. {mend}"
                )

    def _check_restored(self, split: str) -> None:
        """Compare the task with the checkpoint that training goes on from, which fairseq's trainer doesn't.

        Raises:
            InputError: that was trained on features of another making, or with other words.
        """
        if split == self.cfg.train_subset:
            self._memory.take_over_restored(self.cfg)

    def warn_once(self, message: str) -> None:
        """Warn, unless it was said before in this run; of several processes the first alone does."""
        several, message = torch.distributed.is_initialized(), printable(message)
        if message not in self._said and not (several and torch.distributed.get_rank()):
            logger.warning(message)
        self._said.add(message)


def forget_unchecked(cfg: Any) -> None:
    """Keep `--image-features-unchecked` out of checkpoints: it is for one run, not for whoever loads what came of it.

    fairseq saves the whole configuration, of which `cfg` is a merged copy with the same parent, and `fairseq-validate`
    and `from_pretrained` take it from there.
    """
    whole = cfg._get_parent() if isinstance(cfg, DictConfig) else None
    if isinstance(whole, DictConfig) and whole.get("task") is not None and "image_features_unchecked" in whole.task:
        whole.task.image_features_unchecked = False
