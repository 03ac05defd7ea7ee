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
from typing import Any, Optional

from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from fairseq.tasks import FairseqTask, register_task

from ..data.masked_pairs import MaskedPairs
from ..data.paired_images import OwnOrOtherImages
from ..data.visual_context import ImageTablesConfig, VisualContext
from ..errors import InputError, in_short
from ..text.pieces import join_pieces
from ..text.tokenizer_bridge import MASK

VALIDATION_SEED = 0  # whatever the seed of the training, so that runs compare


@dataclass
class VisionLanguagePretrainingConfig(ImageTablesConfig):
    """Flags of the pre-training's data."""

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
    mask_prob: float = field(default=0.15, metadata={"help": "share of words and of tags that are masked"})


@register_task("vision_language_pretraining", dataclass=VisionLanguagePretrainingConfig)
class VisionLanguagePretrainingTask(FairseqTask):
    """Say which words and tags are hidden, and whether text and images belong together.

    Batches: `data/masked_pairs.py`.

    Raises:
        InputError: no text or no images; a store without boxes, or with `--image-tags` without labels and scores; a
            dictionary without `<mask>`; a share that is none.
    """

    cfg: VisionLanguagePretrainingConfig
    target_dictionary = None

    def __init__(self, cfg: VisionLanguagePretrainingConfig, dictionary: Dictionary, path: str) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        if not cfg.image_features or not cfg.image_ids:
            raise InputError(
                "--task vision_language_pretraining needs the images of its sentences: --image-features STORE and "
                "--image-ids DIR with a table for each split."
            )
        if not 0 < cfg.mask_prob < 1:
            raise InputError(f"--mask-prob should be a share between 0 and 1, but is {cfg.mask_prob}.")
        self.mask: int = dictionary.indices.get(MASK, -1)
        if self.mask < 0:
            raise InputError(
                f"{path} should have a symbol {MASK} to hide words with, but has none. visual-grounding prepare pieces "
                f"makes a dictionary that has it; to one of plain words add the line '{MASK} 1', and binarise anew."
            )
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
        path = os.path.join(utils.split_paths(cfg.data)[0], name)
        if not os.path.isfile(path):
            raise InputError(
                f"{path} should be the dictionary of the text, as fairseq-preprocess --only-source writes it, but it "
                "isn't there. Text whose files are named by languages needs --source-lang."
            )
        return cls(cfg, cls.load_dictionary(path), path)

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
        prefix = self._prefix(folders[(epoch - 1) % len(folders) if training else 0], split)
        try:
            text = data_utils.load_indexed_dataset(prefix, self.dictionary, None)
        except Exception as error:  # a broken file fails in many ways
            raise InputError(
                f"{prefix}.idx should be binarised text, but reading failed: {in_short(error)}. Binarise the text anew."
            ) from error
        sentences = LanguagePairDataset(text, text.sizes, self.dictionary, left_pad_source=False, shuffle=training)
        seed, fixed = (int(self.cfg.seed), False) if training else (VALIDATION_SEED, True)
        choose = partial(OwnOrOtherImages, seed=seed, fixed=fixed, place=split)

        def written(number: int) -> list[str]:
            return [join_pieces(self.dictionary.string(text[number], unk_string=" "))]

        pairs = self.images.add(sentences, split, split, epoch, written=written, choose=choose)
        self.datasets[split] = MaskedPairs(
            pairs,
            self.dictionary,
            self.mask,
            pairs.choice,  # type: ignore[attr-defined]
            self.cfg.mask_prob,
            seed,
            fixed,
        )

    def _prefix(self, folder: str, split: str) -> str:
        """The binarised text of a split, without its endings."""
        language = self.cfg.source_lang
        if language is None:
            found = [os.path.join(folder, split)]
        else:
            patterns = (f"{split}.{language}-*.{language}.idx", f"{split}.*-{language}.{language}.idx")
            escaped = glob.escape(folder)
            found = sorted({path[:-4] for each in patterns for path in glob.glob(os.path.join(escaped, each))})
        if len(found) != 1 or not os.path.isfile(f"{found[0]}.idx"):
            what = f"text of {split} in {language!r}" if language else f"{split}.idx, text of one language"
            raise InputError(
                f"{folder} should hold {what}, as fairseq-preprocess writes it, once; but there is "
                f"{', '.join(map(os.path.basename, found)) if len(found) > 1 else 'none'}."
            )
        return found[0]

    def max_positions(self) -> None:
        """No limit but the model's."""
        return None
