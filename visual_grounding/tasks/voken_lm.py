"""`--task voken_lm`: language models that tell masked words, and which image goes with each word (VOK §2.2).

    fairseq-train bin --task voken_lm --vokens vokens --arch voken_bert_6l_512h --criterion voken_classification …

The text is what `fairseq-preprocess --only-source` makes of an artefact's tokens.txt; `--vokens DIR` has an artefact
for each split, `DIR/<split>`. Without vokens it is masked language modelling, of any text whose dictionary has
`<mask>`.
"""

import logging
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from fairseq.tasks.fairseq_task import StatefulContainer
from omegaconf import II

from ..data.complete_batches import CompleteBatches
from ..data.text_of_one_language import (
    check_same_dictionaries,
    load_dictionary,
    load_text,
    number_of_mask,
    parts_of_split,
)
from ..data.voken_blocks import ENDS, VokenBlocks
from ..data.voken_labels import LABELS, SENTENCE_LABELS, VokenLabels
from ..data.voken_memory import VokenMemory
from ..data.voken_text import VokenText
from ..data.word_masking import Masking, MaskingConfig, WordMasking, check_mask_prob
from ..errors import InputError, check_weight, printable
from ..modules.masking import BERT_REPLACEMENT
from ..shares import share
from ..storage.artefact import META
from ..text.tokenizer_bridge import PADDING_WORD
from ..text.words import DICTIONARY
from ..vokenization.vokens import NO_VOKEN, Vokens
from .one_iterator import OneIterator
from .own_criterions import OwnCriterions

logger = logging.getLogger(__name__)

_LOOKED_AT = 2**22  # vokens, to say how many pieces have none


@dataclass
class VokenLMConfig(MaskingConfig):
    """Flags of the text, of its vokens, and of what is learned."""

    data: Optional[str] = field(
        default=None,
        metadata={"help": "text binarised by fairseq-preprocess --only-source; colon-separated: one an epoch"},
    )
    vokens: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder with the vokens of each split: DIR/<split>; as many, colon-separated, as data paths. "
            "Without it masked words alone are learned"
        },
    )
    tokens_per_sample: int = field(
        default=128,
        metadata={"help": "positions of a block: so many pieces of consecutive text, less two for its ends"},
    )
    voken_labels: ChoiceEnum(LABELS) = field(  # type: ignore[valid-type]
        default="vokens",
        metadata={
            "help": "what is told of each piece: its voken, that of another piece of the batch, a random one, or the "
            "piece itself"
        },
    )
    voken_sentence_label: ChoiceEnum(SENTENCE_LABELS) = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "with vokens of sentences: ask [CLS] of a block, or the first piece of each sentence, instead of "
            "every piece"
        },
    )
    voken_weight: float = field(
        default=1.0, metadata={"help": "weight of the mean loss of vokens; 0: masked words alone, as without --vokens"}
    )
    mlm_weight: float = field(
        default=1.0, metadata={"help": "lambda, the weight of the mean loss of masked words; 0: vokens alone"}
    )
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")
    save_dir: str = II("checkpoint.save_dir")  # this and the next: which checkpoint training goes on from
    restore_file: str = II("checkpoint.restore_file")
    continue_once: Optional[str] = II("checkpoint.continue_once")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")


@register_task("voken_lm", dataclass=VokenLMConfig)
class VokenLMTask(OwnCriterions, OneIterator):
    """Tell masked words, and the voken of every piece.

    Batches: `data/voken_blocks.py`.

    Raises:
        InputError: flags that don't make sense together; a dictionary without `<mask>`; vokens of another dictionary.
    """

    criterions = ("voken_classification",)

    cfg: VokenLMConfig
    target_dictionary = None

    def __init__(self, cfg: VokenLMConfig, dictionary: Dictionary, path: str) -> None:
        super().__init__(cfg)
        self.dictionary, self.path = dictionary, path
        _check_flags(cfg)
        check_same_dictionaries(utils.split_paths(str(cfg.data)), [DICTIONARY])
        self.mask = number_of_mask(dictionary, path)
        self.memory = VokenMemory(StatefulContainer())
        self.state = self.memory
        self.memory.remember_words("pieces", path, dictionary.symbols)
        if self.tells_vokens:
            self.memory.remember_labels(str(cfg.voken_labels), str(cfg.voken_sentence_label))
        self._tokenizers: set[str] = set()  # whose dictionary this is
        self._vokens: dict[str, Vokens] = {}  # that were opened, by their folders

    @classmethod
    def setup_task(cls, cfg: VokenLMConfig, **kwargs: Any) -> "VokenLMTask":
        """Load the dictionary.

        Raises:
            InputError: no text is given, or there is no dictionary with it.
        """
        if not cfg.data:
            raise InputError("--task voken_lm needs a folder of binarised text.")
        return cls(cfg, *load_dictionary(utils.split_paths(cfg.data)[0]))

    @property
    def source_dictionary(self) -> Dictionary:
        """Of the pieces."""
        return self.dictionary

    @property
    def tells_vokens(self) -> bool:
        """Whether there is something to tell beside masked words, and it counts."""
        return self.cfg.voken_weight > 0 and (bool(self.cfg.vokens) or str(self.cfg.voken_labels) == "tokens")

    @property
    def predicts_words(self) -> bool:
        """Whether masked words count."""
        return self.cfg.mlm_weight > 0

    @property
    def voken_count(self) -> int:
        """V of the vokens, or of what takes their place; 0 where there is nothing to tell.

        Raises:
            InputError: as `load_dataset`.
        """
        if not self.tells_vokens:
            return 0
        if str(self.cfg.voken_labels) == "tokens":
            return len(self.dictionary)
        if self.memory.known is None:
            self._open(self.cfg.train_subset, 1)
        return int(self.memory.known["count"]) if self.memory.known else 0

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: blocks are longer than the model's positions.
        """
        model = super().build_model(cfg, from_checkpoint)
        longest = model.max_positions()
        if isinstance(longest, int) and longest < self.cfg.tokens_per_sample:
            raise InputError(
                f"--tokens-per-sample is {self.cfg.tokens_per_sample}, but the model has {longest} positions. Give "
                "fewer, or the model more: --bert-positions"
            )
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the text of a split, and its vokens of `--vokens DIR/<split>`, in blocks.

        Raises:
            InputError: there is no such text or no vokens, or they don't belong together.
        """
        training = split == self.cfg.train_subset
        if training:
            self.memory.take_over_restored(self.cfg)
        folders = utils.split_paths(str(self.cfg.data))
        folder = folders[(epoch - 1) % len(folders) if training else 0]
        masking = Masking(self.cfg.mask_prob, BERT_REPLACEMENT, int(self.cfg.seed) if training else None)
        labels = None
        if self.tells_vokens:
            kind, sentence = str(self.cfg.voken_labels), str(self.cfg.voken_sentence_label)
            labels = VokenLabels(kind, self.voken_count, masking, sentence)
        texts = []
        for name in parts_of_split(folder, split, combine):
            text, place = load_text(folder, name, self.dictionary), os.path.join(folder, name)
            vokens = self._open(name, epoch if training else 1) if self._reads_vokens else None
            texts.append(VokenText(text, place, self.dictionary.symbols, vokens))
            if vokens is not None:
                first = np.asarray(vokens.vokens[:_LOOKED_AT])
                none = share(int((first == NO_VOKEN).sum()), len(first), "pieces")
                logger.info(
                    "vokens of %s: %s have none; %s, %s", place, none, vokens.folder, printable(vokens.signature)
                )
        own = [not PADDING_WORD.fullmatch(symbol) for symbol in self.dictionary.symbols]
        last = len(own) - own[::-1].index(True)  # fairseq's padding words are no pieces
        words = WordMasking(masking, self.mask, range(self.dictionary.nspecial, last))
        blocks = VokenBlocks(texts, self.cfg.tokens_per_sample, words, labels, shuffle=training)
        self.datasets[split] = CompleteBatches(blocks)

    @property
    def _reads_vokens(self) -> bool:
        return self.tells_vokens and str(self.cfg.voken_labels) != "tokens"

    def _open(self, name: str, epoch: int) -> Vokens:
        """The vokens of a part of a split: of these candidates, of this dictionary."""
        roots = utils.split_paths(str(self.cfg.vokens))
        root = roots[(epoch - 1) % len(roots)]
        folder = os.path.join(root, name)
        if os.path.isfile(os.path.join(root, META)) and not os.path.isdir(folder):
            parent, own = os.path.split(os.path.normpath(root))
            raise InputError(
                f"--vokens should be a folder with the vokens of each split, such as DIR/{name}, but {root} is itself "
                f"those of one. If they are of the split {own}, give the folder it lies in: --vokens {parent or '.'}"
            )
        if folder in self._vokens:
            return self._vokens[folder]
        vokens = Vokens(folder)
        vokens.check_range()
        vokens.check_arrays()
        deque(vokens.keys(), maxlen=0)  # as many as it says, by their digest: the model has an output for each
        sentence = str(self.cfg.voken_sentence_label)
        if sentence != "none" and vokens.label != "sentence":
            raise InputError(
                f"--voken-sentence-label {sentence} is for vokens that were chosen for sentences, but those in "
                f"{folder} were chosen for each {vokens.label}."
            )
        if vokens.tokenizer_sha256 not in self._tokenizers:
            vokens.bridge().check_dictionary(self.dictionary.symbols, self.path)
            self._tokenizers.add(vokens.tokenizer_sha256)
        self.memory.meet(vokens)
        self._vokens[folder] = vokens
        return vokens

    def max_positions(self) -> int:
        """Blocks are no longer than that."""
        return int(self.cfg.tokens_per_sample)


def _check_flags(cfg: VokenLMConfig) -> None:
    check_mask_prob(cfg.mask_prob)
    if cfg.tokens_per_sample <= ENDS:
        raise InputError(
            f"--tokens-per-sample should be more than {ENDS}, which [CLS] and [SEP] take, but is "
            f"{cfg.tokens_per_sample}."
        )
    for flag, weight in (("--voken-weight", cfg.voken_weight), ("--mlm-weight", cfg.mlm_weight)):
        check_weight(flag, weight)
    labels, sentence = str(cfg.voken_labels), str(cfg.voken_sentence_label)
    if labels in ("shuffled", "random") and not cfg.vokens:
        raise InputError(f"--voken-labels {labels} takes the place of vokens: give those, too, as --vokens DIR.")
    if sentence != "none" and (labels != "vokens" or not cfg.vokens):
        raise InputError(f"--voken-sentence-label {sentence} asks for vokens: give --vokens DIR and no --voken-labels.")
    if cfg.mlm_weight == 0 and (cfg.voken_weight == 0 or not (cfg.vokens or labels == "tokens")):
        raise InputError(
            "there is nothing to learn: --mlm-weight 0 leaves masked words out, and vokens are left out, too. Give "
            "--vokens DIR and a --voken-weight above 0."
        )
    if cfg.vokens:
        texts, roots = utils.split_paths(cfg.data), utils.split_paths(cfg.vokens)
        if len(texts) != len(roots):
            raise InputError(
                f"--vokens should name as many folders as there are of text ({len(texts)}: {cfg.data}), but names "
                f"{len(roots)}: {cfg.vokens}."
            )
