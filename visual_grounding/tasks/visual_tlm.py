"""`--task visual_tlm`: sentences, their translations and the regions of their images as one stream (VTLM §2).

    fairseq-train bin --task visual_tlm --lang-pairs en-de,en-fr --image-features store --image-ids ids \\
        --arch vtlm --criterion visual_tlm …

The data is what `fairseq-preprocess --joined-dictionary` makes, the pairs beside each other in one folder with one
dictionary. Of one pair the tables of images are those of translation, `--image-ids DIR/<split>`; of several pairs each
has its own, `DIR/<split>.en-de`. Without images it is translation language modelling (TLM).
"""

import os
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Callable, Optional

from fairseq import utils
from fairseq.data import ConcatDataset, Dictionary
from fairseq.tasks import register_task
from fairseq.tasks.translation import load_langpair_dataset

from ..data.region_masking import RegionMasking
from ..data.sentence_pairs import PairedText, SentencePairs
from ..data.text_of_one_language import (
    check_binarised_pair,
    check_same_dictionaries,
    pairs_in,
    read_dictionary,
    splits_there,
    warn_of_unknown,
)
from ..data.visual_batches import VisualContextDataset
from ..data.visual_context import ImageTablesConfig, VisualContext
from ..data.word_masking import Masking, MaskingConfig, WordMasking, check_mask_prob
from ..data.word_memory import check_restored_choices
from ..errors import InputError
from ..modules.masking import BERT_REPLACEMENT
from ..text.pieces import join_pieces
from ..text.tokenizer_bridge import MASK
from .one_iterator import OneIterator
from .own_criterions import OwnCriterions


@dataclass
class VisualTLMConfig(ImageTablesConfig, MaskingConfig):
    """Flags of the pairs, of their images and of what is masked."""

    data: Optional[str] = field(
        default=None, metadata={"help": "folder of binarised pairs with one dictionary; colon-separated: one an epoch"}
    )
    lang_pairs: Optional[str] = field(
        default=None,
        metadata={
            "help": "pairs of languages, comma-separated, such as en-de,en-fr; default: that of the data, where it has "
            "one alone"
        },
    )
    visual_unmasked: bool = field(
        default=False,
        metadata={"help": "predict the labels of the chosen regions from what they are: no region is masked"},
    )


@register_task("visual_tlm", dataclass=VisualTLMConfig)
class VisualTLMTask(OwnCriterions, OneIterator):
    """Predict words of two sentences, and labels of the regions beside them.

    Attributes:
        stream_languages: names of the languages, sorted: their numbers in the stream.
        image_feature_size: F of the feature store, 0 without one; a model may ask for it.
        image_labels: how many labels it names, 0 without one.

    Raises:
        InputError: data, pairs of languages, dictionaries, or images that don't belong together; a store without boxes
            or labels; `--visual-unmasked` without images.
    """

    criterions = ("visual_tlm",)

    cfg: VisualTLMConfig

    def __init__(self, cfg: VisualTLMConfig) -> None:
        super().__init__(cfg)
        if not cfg.data:
            raise InputError("--task visual_tlm needs a folder of binarised pairs of sentences.")
        check_mask_prob(cfg.mask_prob)
        self.pairs = language_pairs(cfg)
        self.stream_languages = sorted({language for pair in self.pairs for language in pair})
        self.images = VisualContext(cfg, self)
        folder = utils.split_paths(cfg.data)[0]
        self.dictionary = joined_dictionary(folder, self.stream_languages)
        names = [f"dict.{language}.txt" for language in self.stream_languages]
        check_same_dictionaries(utils.split_paths(cfg.data), names)
        path = os.path.join(folder, names[0])
        self.images.remember_words("stream", path, self.dictionary.symbols)
        self.images.write_tags(path, self.dictionary.symbols)  # which no model of pairs reads: `check_model` says so
        self.dictionary.add_symbol(MASK)  # at the end, where the data doesn't have it
        self.images.check_tables()
        self.images.need_columns("boxes", "labels", why="for visual translation language modelling")
        self.image_store = self.images.store
        if cfg.visual_unmasked and self.image_store is None:
            raise InputError("--visual-unmasked is about the regions of images: give --image-features and --image-ids.")
        if self.image_store is not None:
            names = self.image_store.label_names
            self.images.remember_words("labels", os.path.join(str(cfg.image_features), "label_names.txt"), names)

    @classmethod
    def setup_task(cls, cfg: VisualTLMConfig, **kwargs: Any) -> "VisualTLMTask":
        """Build the task; what fairseq adds when it loads a checkpoint says nothing here."""
        return cls(cfg)

    @property
    def source_dictionary(self) -> Dictionary:
        """The dictionary of all languages, with `<mask>`."""
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        """The same."""
        return self.dictionary

    @property
    def image_feature_size(self) -> int:
        """F of the feature store, 0 without one."""
        return self.images.feature_size

    @property
    def image_labels(self) -> int:
        """How many labels the feature store names, 0 without one."""
        return 0 if self.image_store is None else len(self.image_store.label_names)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: there are images, but the model takes text alone; or tags, which it doesn't read.
        """
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            check_restored_choices(self.cfg, cfg)
        self.images.check_model(model)
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the pairs of a split as streams, with words and regions that are masked.

        Raises:
            InputError: there is no such split, or text, ids and store don't belong together.
        """
        training = split == self.cfg.train_subset
        masking = Masking(self.cfg.mask_prob, BERT_REPLACEMENT, self.cfg.seed if training else None)
        folders = utils.split_paths(self.cfg.data)
        folder = folders[(epoch - 1) % len(folders)] if training else folders[0]
        texts, names, parts = [], [], []
        for source, target in self.pairs:
            text, sizes = self._load_pair(folder, split, source, target, combine)
            for lines, language in ((text.source, source), (text.target, target)):
                for said in warn_of_unknown(lines, self.dictionary, f"{split}.{source}-{target}.{language}"):
                    self.images.warn_once(said)
            texts.append(text)
            names += [f"{split}{number or ''}.{source}-{target}" for number in range(len(sizes))]
            parts += [(size, 1) for size in sizes]
        words = WordMasking(masking, self.dictionary.index(MASK), range(self.dictionary.nspecial, len(self.dictionary)))
        dataset = SentencePairs(texts, words, self.dictionary.pad(), self.dictionary.eos(), shuffle=training)
        alone = len(self.pairs) == 1  # then the tables of images are those of translation
        said = names[0] if alone else f"{split} ({', '.join('-'.join(pair) for pair in self.pairs)})"
        found: Any = self.images.add(
            dataset, split, said, epoch, parts, self._written(dataset), None if alone else names, asks=True
        )
        if isinstance(found, VisualContextDataset):
            found = RegionMasking(found, masking, hides=not self.cfg.visual_unmasked)
        self.datasets[split] = found

    def _load_pair(self, folder: str, split: str, source: str, target: str, combine: bool) -> tuple[PairedText, list]:
        """Sentences of a pair, and how many each part of the split (train, train1 …) has."""
        sides = [(source, self.dictionary), (target, self.dictionary)]
        check_binarised_pair(folder, split, source, target, combine)
        try:
            loaded = load_langpair_dataset(
                folder, split, *sides[0], *sides[1], combine=combine, dataset_impl=None, upsample_primary=1,
                left_pad_source=False, left_pad_target=False, max_source_positions=None, max_target_positions=None,
                shuffle=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            endings = [f".{one}-{other}.{source}.idx" for one, other in ((source, target), (target, source))]
            raise InputError(
                f"{folder} should hold binarised text of the split {split!r}, as fairseq-preprocess writes it, but "
                f"there is none for {source}-{target}. {splits_there(folder, *endings)}"
            ) from error
        if loaded.tgt is None:
            raise InputError(
                f"{folder} should hold both sides of {split}.{source}-{target}, as fairseq-preprocess writes them, but "
                f"there is no {target}."
            )
        numbers = [self.stream_languages.index(language) for language in (source, target)]
        sizes = loaded.src.real_sizes if isinstance(loaded.src, ConcatDataset) else [len(loaded.src)]
        return PairedText(loaded.src, loaded.tgt, (numbers[0], numbers[1])), list(sizes)

    def _written(self, dataset: SentencePairs) -> Callable[[int], list[str]]:
        """A sentence's number -> source and target as words, as well as the dictionary knows them."""

        def written(number: int) -> list[str]:
            return [join_pieces(self.dictionary.string(each, unk_string=" ")) for each in dataset.sentences(number)[0]]

        return written

    def max_positions(self) -> None:
        """No limit but the model's."""
        return None


def language_pairs(cfg: VisualTLMConfig) -> list[tuple[str, str]]:
    """The pairs of `--lang-pairs`, or the one in the data.

    Raises:
        InputError: not two languages each, the same pair twice, or one that the data hasn't, which has others; none is
            named, and the data has none or several.
    """
    folder = utils.split_paths(cfg.data)[0]
    if not cfg.lang_pairs:
        found = pairs_in(folder)
        if not found:
            raise InputError(
                f"{folder} should hold binarised pairs of sentences, as fairseq-preprocess --joined-dictionary writes "
                "them, but holds none. If it does, name them: --lang-pairs en-de,en-fr"
            )
        if len(found) > 1:  # fairseq takes the one that the file system lists first
            raise InputError(
                f"{folder} should hold one pair of languages where none is named, but holds {', '.join(found)}. Name "
                f"those that are meant: --lang-pairs {','.join(found)}"
            )
        source, target = found[0].split("-")
        return [(source, target)]
    found = pairs_in(folder)
    pairs = [tuple(pair.strip().split("-")) for pair in cfg.lang_pairs.split(",")]
    for pair in pairs:
        if len(pair) != 2 or not all(pair) or pair[0] == pair[1] or pairs.count(pair) > 1:
            raise InputError(
                f"--lang-pairs should be pairs of two languages, each once, such as en-de,en-fr, but is "
                f"{cfg.lang_pairs!r}: {'-'.join(pair)!r}."
            )
        if found and not {"-".join(pair), "-".join(pair[::-1])} & set(found):
            raise InputError(
                f"--lang-pairs should be pairs that {folder} holds, which are {', '.join(found)}, but has "
                f"{'-'.join(pair)}."
            )
    return [(source, target) for source, target in pairs]


def joined_dictionary(folder: str, languages: list[str]) -> Dictionary:
    """The dictionary that all languages share.

    Raises:
        InputError: one has none, or another than the others.
    """
    paths = [os.path.join(folder, f"dict.{language}.txt") for language in languages]
    for path in paths:
        if not os.path.isfile(path):
            raise InputError(
                f"{path} is missing: the languages of the stream should share a dictionary, as fairseq-preprocess "
                "--joined-dictionary makes it."
            )
    first, *others = [read_dictionary(path) for path in paths]
    for path, other in zip(paths[1:], others):
        if other.symbols != first.symbols:
            place = next(n for n, pair in enumerate(zip_longest(first.symbols, other.symbols)) if len(set(pair)) > 1)
            raise InputError(
                f"all languages of the stream should share one dictionary, but {paths[0]} and {path} differ: number "
                f"{place} is {first[place]!r} in one and {other[place]!r} in the other. Binarise the text with "
                "fairseq-preprocess --joined-dictionary, further pairs with --srcdict of the first."
            )
    return first
