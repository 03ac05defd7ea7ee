"""Pre-training of VLP §3.2: `--task vision_language_pretraining`, text beside its images, with masks in it.

Text of one language in the pieces of a pretrained tokenizer (docs/tokenizers.md), or in other words. A step of it hides
words, and labels of regions where `--image-tags` gives them, and shows every second sentence other images than its own;
the model says what is hidden, and whether the images are the sentence's own. Continued on the translation task's own
pairs (Algorithm 1, step 4) it is the same with `--finetune-from-model`.
"""

import glob
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Optional

from fairseq import utils
from fairseq.data import ConcatDataset, Dictionary, LanguagePairDataset
from fairseq.tasks import register_task

from ..data.masked_pairs import MaskedPairs
from ..data.paired_images import OwnOrOtherImages
from ..data.text_of_one_language import (
    check_same_dictionaries,
    number_of_mask,
    open_text,
    read_dictionary,
    splits_there,
    warn_of_unknown,
)
from ..data.visual_context import ImageTablesConfig, VisualContext
from ..data.word_masking import Masking, MaskingConfig, WordMasking, check_mask_prob
from ..errors import InputError
from ..modules.masking import MASK_ALONE
from ..text.pieces import join_pieces
from .one_iterator import OneIterator
from .own_criterions import OwnCriterions

VALIDATION_SEED = 0  # whatever the seed of the training, so that runs compare


@dataclass
class VisionLanguagePretrainingConfig(ImageTablesConfig, MaskingConfig):
    """Flags of the pre-training's data, and of what is masked."""

    data: Optional[str] = field(
        default=None,
        metadata={
            "help": "text binarised by fairseq-preprocess: of one language (--only-source), or with --source-lang one "
            "side of a translation task; several folders, colon-separated, one an epoch"
        },
    )
    source_lang: Optional[str] = field(
        default=None, metadata={"help": "language of the text, where its files are named by languages"}
    )


@register_task("vision_language_pretraining", dataclass=VisionLanguagePretrainingConfig)
class VisionLanguagePretrainingTask(OwnCriterions, OneIterator):
    """Say which words and tags are hidden, and whether text and images belong together.

    Batches: `data/masked_pairs.py`.

    Raises:
        InputError: no text or no images; a store without boxes, or with `--image-tags` without labels and scores; a
            dictionary without `<mask>`; a share that is none.
    """

    criterions = ("masked_lm_with_paired_image",)

    cfg: VisionLanguagePretrainingConfig
    target_dictionary = None

    def __init__(self, cfg: VisionLanguagePretrainingConfig, dictionary: Dictionary, path: str) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        check_same_dictionaries(utils.split_paths(cfg.data), [os.path.basename(path)])
        if not cfg.image_features or not cfg.image_ids:
            raise InputError(
                "--task vision_language_pretraining needs the images of its sentences: --image-features STORE and "
                "--image-ids DIR with a table for each split."
            )
        if str(cfg.image_order) == "shuffled":
            raise InputError(
                "--image-order shuffled gives sentences others' images, which --task vision_language_pretraining gives "
                "half of them anyway and lets the model tell apart: leave it out, or give blank."
            )
        check_mask_prob(cfg.mask_prob)
        self.mask = number_of_mask(dictionary, path)
        self.images = VisualContext(cfg, self)
        self.images.check_tables()
        self.images.need_columns("boxes", why="for --task vision_language_pretraining")
        self.images.remember_words("source", path, dictionary.symbols)
        self.images.write_tags(path, dictionary.symbols)

    @classmethod
    def setup_task(cls, cfg: VisionLanguagePretrainingConfig, **kwargs: Any) -> "VisionLanguagePretrainingTask":
        """Load the dictionary.

        Raises:
            InputError: no text is given, or there is no dictionary with it.
        """
        if not cfg.data:
            raise InputError("--task vision_language_pretraining needs a folder of binarised text.")
        name = f"dict.{cfg.source_lang}.txt" if cfg.source_lang else "dict.txt"
        folder = utils.split_paths(cfg.data)[0]
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            there = sorted(each.name for each in Path(folder).glob("dict*.txt"))
            raise InputError(
                f"{path} should be the dictionary of the text, as fairseq-preprocess --only-source writes it, but it "
                f"isn't there; the folder has {', '.join(there) or 'none'}. Where its files are named by languages, "
                "--source-lang says which of them is read."
            )
        return cls(cfg, read_dictionary(path), path)

    @property
    def source_dictionary(self) -> Dictionary:
        """Of words and tags."""
        return self.dictionary

    @property
    def image_feature_size(self) -> int:
        """F of the feature store."""
        return self.images.feature_size

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: the model takes text alone, or reads no tags.
        """
        model = super().build_model(cfg, from_checkpoint)
        self.images.check_model(model)
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the text of a split and the images of `--image-ids DIR/<split>`, and let them be masked.

        Raises:
            InputError: there is no such text, or text, ids and store don't belong together.
        """
        training = split == self.cfg.train_subset
        folders = utils.split_paths(str(self.cfg.data))
        texts = self._texts(folders[(epoch - 1) % len(folders) if training else 0], split, combine)
        text = texts[0] if len(texts) == 1 else ConcatDataset(texts)
        sentences = LanguagePairDataset(text, text.sizes, self.dictionary, left_pad_source=False, shuffle=training)
        seed = int(self.cfg.seed) if training else VALIDATION_SEED
        choose = partial(OwnOrOtherImages, seed=seed, fixed=not training, place=split)

        def written(number: int) -> list[str]:
            return [join_pieces(self.dictionary.string(text[number], unk_string=" "))]

        parts = [(len(each), 1) for each in texts]
        pairs: Any = self.images.add(sentences, split, split, epoch, parts, written, choose=choose, asks=True)
        masking = Masking(self.cfg.mask_prob, MASK_ALONE, seed if training else None)
        words = WordMasking(masking, self.mask, range(self.mask, self.mask + 1))  # MASK_ALONE draws no other word
        self.datasets[split] = MaskedPairs(pairs, self.dictionary, pairs.choice, words)

    def _texts(self, folder: str, split: str, combine: bool) -> list[Any]:
        """The binarised text of a split; with `combine` that of its further parts, too: train, train1, train2 …"""
        prefixes = [self._prefix(folder, split)]
        while combine and self._found(folder, f"{split}{len(prefixes)}"):
            prefixes.append(self._prefix(folder, f"{split}{len(prefixes)}"))
        texts = [open_text(prefix, self.dictionary) for prefix in prefixes]
        for prefix, text in zip(prefixes, texts):
            for said in warn_of_unknown(text, self.dictionary, prefix):
                self.images.warn_once(said)
        return texts

    def _prefix(self, folder: str, split: str) -> str:
        """The binarised text of a split, without its endings."""
        found = self._found(folder, split)
        if len(found) != 1:
            language = self.cfg.source_lang
            what = f"text of {split} in {language!r}" if language else f"{split}.idx, text of one language"
            raise InputError(
                f"{folder} should hold {what}, as fairseq-preprocess writes it, once; but there is "
                f"{', '.join(map(os.path.basename, found)) or 'none'}. {splits_there(folder, '.idx')}"
            )
        return found[0]

    def _found(self, folder: str, split: str) -> list[str]:
        """What could be meant by the text of a split, without endings."""
        language = self.cfg.source_lang
        names = [f"{language}-*.{language}", f"*-{language}.{language}"] if language else [""]
        patterns = [f"{glob.escape(folder)}/{split}{'.' if name else ''}{name}.idx" for name in names]
        return sorted({path.removesuffix(".idx") for pattern in patterns for path in glob.glob(pattern)})

    def max_positions(self) -> None:
        """No limit but the model's."""
        return None
