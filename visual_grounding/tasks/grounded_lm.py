"""Grounded language modelling (GS §2): `--task grounded_lm`, hidden words and regions of text with images or without.

Which strategy it is say the flags of images:

    none of them                                        no grounding: always the placeholder
    --image-features --image-ids                        each line's images: paired, or found beforehand (associative)
    --image-features --image-finder                     found in the data loader for each line as it is masked now
    --image-features --image-ids --caption-data         transferred: captions with images, mixed 1:1 with text without

With `--caption-data` the images are those of captions; the text of DATA has none. Captions stand in training alone;
`--valid-subset captions-valid` asks for theirs.
"""

import logging
import os
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
from fairseq import utils
from fairseq.data import ConcatDataset, Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from ..data.caption_mixture import CaptionMixture, ImagesOfMixture
from ..data.complete_batches import CompleteBatches
from ..data.grounded_text import OBJECTIVES, GroundedBatches, MaskedLines, QueryOfItem
from ..data.text_of_one_language import (
    check_positions,
    check_same_dictionaries,
    load_dictionary,
    load_text,
    number_of_mask,
    parts_of_split,
    warn_of_unknown,
)
from ..data.visual_batches import VisualContextDataset
from ..data.visual_context import ImageTablesConfig, VisualContext
from ..data.word_masking import Masking, MaskingConfig, check_mask_prob
from ..errors import InputError
from ..modules.masking import MASK_ALONE
from ..retrieval.finder import Finder, open_finder
from ..retrieval.image_ids import ImageIds
from ..shares import share, warn_of
from ..text.masked_words import WordsOfPieces
from ..text.pieces import join_pieces
from ..text.tokenizer_bridge import TokenizerBridge, without_padding_words
from ..text.words import DICTIONARY, digest_of_symbols
from .one_iterator import OneIterator
from .own_criterions import OwnCriterions

logger = logging.getLogger(__name__)

_REGION_MASK_PROB = 0.15
CAPTIONS = "captions-"  # subsets of --caption-data


@dataclass
class GroundedLMConfig(ImageTablesConfig, MaskingConfig):
    """Flags of the text, of what is hidden, and of where images come from."""

    data: Optional[str] = field(
        default=None,
        metadata={
            "help": "text binarised by fairseq-preprocess --only-source, in its encoder's pieces (visual-"
            "grounding prepare pieces); several folders, colon-separated, one an epoch"
        },
    )
    caption_data: Optional[str] = field(
        default=None,
        metadata={
            "help": "captions, binarised likewise: --image-ids are theirs, and training mixes as many of them as there "
            "are lines of text; theirs are also --valid-subset captions-valid and the like"
        },
    )
    image_finder: Optional[str] = field(
        default=None,
        metadata={
            "help": "find images for each line as it is masked in this epoch, in the data loader, as the method and "
            "flags of visual-grounding retrieve: 'scene --captions … --word-vectors … --image-features …'"
        },
    )
    finder_tokenizer: Optional[str] = field(
        default=None,
        metadata={
            "help": "with --image-finder: the tokenizer whose pieces the text has, that of --grounded-text-encoder"
        },
    )
    grounding_objective: ChoiceEnum(OBJECTIVES) = field(  # type: ignore[valid-type]
        default="jmlm",
        metadata={
            "help": "what is told of a line with images: hidden words (i2t), hidden regions (t2i), or the one or the "
            "other; a line without has words alone"
        },
    )
    # Assumption: the paper doesn't say it; as many as of words, in LXMERT's code.
    region_mask_prob: float = field(
        default=_REGION_MASK_PROB,
        metadata={"help": "with --grounding-objective jmrm or both: share of regions that are hidden"},
    )
    max_pieces: int = field(default=64, metadata={"help": "pieces of a line, the symbols around it included"})


@register_task("grounded_lm", dataclass=GroundedLMConfig)
class GroundedLMTask(OwnCriterions, OneIterator):
    """Tell hidden words, or hidden regions.

    Batches: `data/grounded_text.py`.

    Attributes:
        mask: number of `<mask>`.

    Raises:
        InputError: flags that don't make sense together, no text, or a dictionary without `<mask>`.
    """

    criterions = ("grounded_masked_lm",)

    cfg: GroundedLMConfig
    target_dictionary = None

    def __init__(self, cfg: GroundedLMConfig, dictionary: Dictionary, path: str) -> None:
        super().__init__(cfg)
        self.dictionary, self.path = dictionary, path
        _check_flags(cfg)
        check_same_dictionaries(utils.split_paths(str(cfg.data)), [DICTIONARY])
        self.mask = number_of_mask(dictionary, path)
        self.images = VisualContext(cfg, self)
        if not (cfg.image_finder or cfg.caption_data):
            self.images.check_tables()
        self.images.remember_words("source", path, dictionary.symbols)
        self.images.write_tags(path, dictionary.symbols)
        self._finder: Optional[Finder] = None
        if cfg.caption_data:
            self._check_same_dictionary()

    @classmethod
    def setup_task(cls, cfg: GroundedLMConfig, **kwargs: Any) -> "GroundedLMTask":
        """Load the dictionary.

        Raises:
            InputError: no text is given, or there is no dictionary with it.
        """
        if not cfg.data:
            raise InputError("--task grounded_lm needs a folder of binarised text.")
        return cls(cfg, *load_dictionary(utils.split_paths(cfg.data)[0]))

    def _check_same_dictionary(self) -> None:
        theirs, path = load_dictionary(str(self.cfg.caption_data))
        if theirs.symbols != self.dictionary.symbols:
            raise InputError(
                f"{path} should have the symbols of {self.path}, in their order, but hasn't. Binarise the captions "
                f"with: fairseq-preprocess --only-source --srcdict {self.path} …"
            )

    @property
    def source_dictionary(self) -> Dictionary:
        """Of the pieces."""
        return self.dictionary

    @property
    def image_feature_size(self) -> int:
        """F of the feature store."""
        return self.images.feature_size

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: the model takes text alone, or has positions for fewer pieces than a line may have.
        """
        model = super().build_model(cfg, from_checkpoint)
        self.images.check_model(model)
        check_positions(model, int(self.cfg.max_pieces))
        return model

    @property
    def _positions(self) -> int:
        """Of a line, its `</s>` included; what stands before it takes one."""
        return int(self.cfg.max_pieces) - 1

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the text of a split and its images.

        Raises:
            InputError: there is no such text, or text, ids and store don't belong together; or regions are to be
                learned without images.
        """
        training = split == self.cfg.train_subset
        if training and str(self.cfg.grounding_objective) != "jmlm" and str(self.cfg.image_order) == "blank":
            raise InputError(
                f"--grounding-objective {self.cfg.grounding_objective} learns regions of images, but --image-order "
                "blank gives none: choose another order, or jmlm."
            )
        folders = utils.split_paths(str(self.cfg.data))
        folder = folders[(epoch - 1) % len(folders) if training else 0]
        if split.startswith(CAPTIONS):
            if not self.cfg.caption_data:
                raise InputError(f"subset {split} is one of captions: give --caption-data.")
            found = self._pairs(str(self.cfg.caption_data), split.removeprefix(CAPTIONS), training, epoch, combine)
        elif self.cfg.caption_data and training:
            found = self._mixture(folders, split, epoch, combine)
        elif self.cfg.caption_data or not self.cfg.image_features:
            lines = self._lines(self._texts(folder, split, combine), training, os.path.join(folder, split))
            found = self.images.add_none(lines, split)
        else:
            found = self._pairs(folder, split, training, epoch, combine)
        regions = Masking(self.cfg.region_mask_prob, MASK_ALONE, int(self.cfg.seed) if training else None)
        self.datasets[split] = GroundedBatches(found, str(self.cfg.grounding_objective), regions)

    def _lines(self, texts: list[Any], training: bool, place: str, tables: list[ImageIds] | None = None) -> MaskedLines:
        """Lines with masks: their own, or the tables'."""
        # Assumption: GS §2.2 has "replaced by a [masked] token"; LXMERT's code keeps or exchanges a fifth of them.
        masking = Masking(self.cfg.mask_prob, MASK_ALONE, int(self.cfg.seed) if training else None)
        text = texts[0] if len(texts) == 1 else ConcatDataset(texts)
        sizes = np.concatenate([np.asarray(each.sizes) for each in texts])
        given = None
        if tables and any(table.mask is not None for table in tables):
            given = self.given_masks(tables, texts, place)
        lines = MaskedLines(text, sizes, self.dictionary, self._positions, masking, given, shuffle=training)
        for said in warn_of(int((sizes > self._positions).sum()), len(sizes), "are cut at --max-pieces."):
            self.images.warn_once(f"{place}: {said}")
        return lines

    def given_masks(self, tables: list[ImageIds], texts: list[Any], place: str) -> Any:
        """Which pieces of a line are hidden, as its tables say.

        Raises:
            InputError: not all tables have a mask, or of another probability, or of other lines.
        """
        masks = [table.mask for table in tables]
        starts = np.cumsum([0, *(len(table) for table in tables)])
        own = digest_of_symbols(without_padding_words(self.dictionary.symbols))
        for table, mask, text in zip(tables, masks, texts):
            table.check_lines(len(text), place)
            if mask is None:
                raise InputError(
                    f"{table.folder} should have been made with --mask-prob, as other tables of {place} were, but "
                    "wasn't."
                )
            if mask.symbols_sha256 != own:
                raise InputError(
                    f"{table.folder} hides pieces of another tokenizer than those of {self.path}: the sha256 of its "
                    f"symbols is {mask.symbols_sha256[:8]}…, of these {own[:8]}…. Make it again with the tokenizer of "
                    "the text's pieces: visual-grounding retrieve … --mask-tokenizer …"
                )
            if mask.probability != self.cfg.mask_prob:
                raise InputError(
                    f"{table.folder} was made with --mask-prob {mask.probability}, and its mask is trained with, but "
                    f"--mask-prob is {self.cfg.mask_prob}: give the same."
                )
            sizes = np.asarray(text.sizes) - 1
            other = np.flatnonzero(sizes != mask.pieces)
            if len(other):
                line = int(other[0])
                raise InputError(
                    f"line {line + 1} of {place} has {sizes[line]} pieces, but {table.folder} hides some of "
                    f"{mask.pieces[line]}: the mask is of another text. Give prepare pieces no --max-pieces, and "
                    "retrieve the same text."
                )

        def given(line: int) -> np.ndarray:
            number = int(np.searchsorted(starts, line, side="right")) - 1
            found: np.ndarray = masks[number].hidden(line - int(starts[number]))  # type: ignore[union-attr]
            return found

        return given

    def _pairs(self, folder: str, split: str, training: bool, epoch: int, combine: bool) -> CompleteBatches:
        """Lines with their images."""
        texts = self._texts(folder, split, combine)
        place = os.path.join(folder, split)
        if self.cfg.image_finder:
            lines = self._lines(texts, training, place)
            finder = self._open_finder()
            if finder.reads != "text":
                raise InputError(f"--image-finder should find images for text, but {finder.method} reads image keys.")
            return self.images.add_found(lines, split, finder, self._query())
        names = [split + (str(part) if part else "") for part in range(len(texts))]
        roots = utils.split_paths(str(self.cfg.image_ids))
        root = roots[(epoch - 1) % len(roots) if training else 0]
        found = [os.path.join(root, name) for name in names]
        tables = [ImageIds(each) for each in found if os.path.isdir(each)]  # `add` says which isn't there
        if len(tables) == len(texts):
            if self.cfg.caption_data and training:
                self._check_paired(tables)
            self._check_leak(tables, training)
        lines = self._lines(texts, training, place, tables if len(tables) == len(texts) else None)

        def written(number: int) -> list[str]:
            line = texts[0] if len(texts) == 1 else lines.texts
            return [join_pieces(self.dictionary.string(line[number], unk_string=" "))]

        parts = [(len(each), 1) for each in texts]
        return self.images.add(lines, split, place, epoch, parts, written, names=names, hides=True)

    def _mixture(self, folders: list[str], split: str, epoch: int, combine: bool) -> CompleteBatches:
        """Text without images, and as many captions with theirs (GS §3.2).

        Raises:
            InputError: images of captions were found.
        """
        number = (epoch - 1) % len(folders)
        captions: Any = self._pairs(str(self.cfg.caption_data), split, True, epoch, combine)
        texts = [self._texts(each, split, combine) for each in folders]
        lines = self._lines(texts[number], True, os.path.join(folders[number], split))
        sizes = [sum(map(len, each)) for each in texts]
        mixture = CaptionMixture(lines, captions.dataset, int(self.cfg.seed), sizes, number)
        logger.info("%d lines of text, and as many of %d captions with their images", len(lines), len(captions))
        images = ImagesOfMixture(mixture, captions.choice.ids)
        return VisualContextDataset(mixture, self.images.store, images, tags=self.images.tags)

    def _check_paired(self, tables: list[ImageIds]) -> None:
        """Refuse images of captions that aren't their own.

        Raises:
            InputError: they were found.
        """
        for table in tables:
            if "|method:paired|" not in table.signature:
                raise InputError(
                    f"images of --caption-data should be the captions' own, but those in {table.folder} were found by "
                    "text. Make tables of them with: visual-grounding retrieve --method paired …"
                )

    def _check_leak(self, tables: list[ImageIds], training: bool) -> None:
        """Refuse images that were found for the whole text: they tell what is hidden, wherever words are asked.

        Raises:
            InputError: they were.
        """
        if str(self.cfg.image_order) == "blank" or (training and str(self.cfg.grounding_objective) == "jmrm"):
            return
        for table in tables:
            if table.mask is None and "|method:paired|" not in table.signature:
                raise InputError(
                    f"the images in {table.folder} were found for whole lines, so they tell the words that are hidden "
                    "here. Find them for what a mask leaves: visual-grounding retrieve … --mask-prob "
                    f"{self.cfg.mask_prob} --mask-tokenizer … --out …"
                )
            told = 0 if table.mask is None else table.mask.tells_what_stands_behind(int(self.cfg.max_pieces))
            if told:
                raise InputError(
                    f"the images in {table.folder} were found by more of a line than --max-pieces "
                    f"{self.cfg.max_pieces} lets the model read, in {share(told, len(table), 'lines')}: a hidden word "
                    "may stand there again. Find them anew: visual-grounding retrieve … --mask-max-pieces "
                    f"{self.cfg.max_pieces} --out …"
                )

    def _open_finder(self) -> Finder:
        if self._finder is None:
            self._finder = open_finder(str(self.cfg.image_finder), "cpu")
        return self._finder

    def _query(self) -> QueryOfItem:
        bridge = TokenizerBridge(str(self.cfg.finder_tokenizer))
        bridge.check_dictionary(self.dictionary.symbols, self.path)
        return QueryOfItem(WordsOfPieces(bridge))

    def _texts(self, folder: str, split: str, combine: bool) -> list[Any]:
        """The binarised text of a split, and with `combine` of its further parts."""
        names = parts_of_split(folder, split, combine)
        texts = [load_text(folder, name, self.dictionary) for name in names]
        for name, text in zip(names, texts):
            for said in warn_of_unknown(text, self.dictionary, os.path.join(folder, name)):
                self.images.warn_once(said)
        return texts

    def max_positions(self) -> int:
        """Lines are no longer than that."""
        return self._positions


def _check_flags(cfg: GroundedLMConfig) -> None:
    check_mask_prob(cfg.mask_prob)
    if not 0 < cfg.region_mask_prob <= 1:
        raise InputError(f"--region-mask-prob should be more than 0 and at most 1, but is {cfg.region_mask_prob}.")
    if cfg.region_mask_prob != _REGION_MASK_PROB and str(cfg.grounding_objective) == "jmlm":
        raise InputError("--region-mask-prob is of regions that are learned: give --grounding-objective both or jmrm.")
    if cfg.max_pieces < 3:
        raise InputError(
            f"--max-pieces should be at least 3, for a piece between two symbols, but is {cfg.max_pieces}."
        )
    if cfg.image_finder and (cfg.image_ids or cfg.caption_data):
        raise InputError(
            "--image-finder finds the images, so --image-ids and --caption-data can't name them, too. Where a "
            "checkpoint was trained with a finder, leave it away: --image-finder '' --finder-tokenizer ''."
        )
    if cfg.image_finder and not (cfg.image_features and cfg.finder_tokenizer):
        raise InputError(
            "--image-finder also needs --image-features, and --finder-tokenizer, that of the text's pieces."
        )
    if cfg.finder_tokenizer and not cfg.image_finder:
        raise InputError("--finder-tokenizer is for --image-finder, which isn't given.")
    if cfg.caption_data:
        if not (cfg.image_features and cfg.image_ids):
            raise InputError("--caption-data also needs --image-features and --image-ids, the images of captions.")
        for flag, given in (("--caption-data", cfg.caption_data), ("--image-ids", cfg.image_ids)):
            if len(utils.split_paths(given)) != 1:
                raise InputError(f"{flag} should be one folder, that of captions, but is {given}.")
    if str(cfg.grounding_objective) != "jmlm" and not cfg.image_features:
        raise InputError(
            f"--grounding-objective {cfg.grounding_objective} tells regions of images: give --image-features, too."
        )
