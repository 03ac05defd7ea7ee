"""Images for sentences that are typed into `fairseq-interactive`, by any way of finding them.

    --retriever DIR --image-index DIR                    the nearest images in a retriever's space
    --image-finder 'keyword --captions captions.tsv …'   any other method, by the words of `visual-grounding retrieve`

What was found is printed before fairseq's own lines:

    I-0<TAB>key:score<TAB>key:score …     best first; nothing behind I-0 where there is no image

All lines of a buffer (`--buffer-size`, 1 by default) come in their order. `fairseq-interactive` takes tokens and their
lengths out of a batch and drops the rest; a task puts the images back right before the batch is translated.
"""

import logging
import re
import shlex
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from fairseq.dataclass import FairseqDataclass
from torch import Tensor

from ..errors import InputError, printable
from ..features.store import FeatureStore
from ..retrieval.finder import Finder, open_finder, words_of
from ..retrieval.image_names import ImageNames
from ..text.pieces import join_pieces
from .image_tags import ImageTags
from .visual_batches import TabledImages, VisualContextDataset

logger = logging.getLogger(__name__)


@dataclass
class InteractiveImagesConfig(FairseqDataclass):
    """The flags of a task that finds images for what is typed, beside those of its tables."""

    retriever: Optional[str] = field(
        default=None,
        metadata={"help": "for fairseq-interactive: find the images of what is typed with this retriever"},
    )
    image_index: Optional[str] = field(
        default=None,
        metadata={"help": "index that --retriever made, over the images of --image-features"},
    )
    image_finder: Optional[str] = field(
        default=None,
        metadata={
            "help": "for fairseq-interactive: find the images of what is typed in this way, as the method and flags of "
            "`visual-grounding retrieve`: 'keyword --captions captions.tsv --image-features features/photos'"
        },
    )


def finder_words(cfg: Any) -> list[str]:
    """The method and flags that find images for what is typed; nothing without the flags for it.

    Args:
        cfg: `InteractiveImagesConfig` and `ImageTablesConfig`.

    Raises:
        InputError: a flag without the one it needs, or two that exclude each other.
    """
    if not (cfg.retriever or cfg.image_index or cfg.image_finder):
        return []
    needed = {"--retriever": cfg.retriever, "--image-index": cfg.image_index, "--image-features": cfg.image_features}
    if cfg.image_finder:
        given = [flag for flag in ("--retriever", "--image-index") if needed.pop(flag)]
        if given:
            raise InputError(
                f"--image-finder and {' and '.join(given)} exclude each other, but both are given: use --image-finder "
                "alone, for a retriever as --image-finder 'dense --retriever DIR --index DIR'."
            )
        needed = {"--image-finder": cfg.image_finder, **needed}
    absent = [flag for flag, value in needed.items() if not value]
    if absent:
        raise InputError(f"{', '.join(needed)} belong together, but {' and '.join(absent)} isn't given.")
    first, value = next(iter(needed.items()))
    if cfg.image_ids:
        raise InputError(
            f"{first} and --image-ids exclude each other, but both are given ({value}, {cfg.image_ids}): "
            f"fairseq-interactive finds images with {first}, the other commands read them with --image-ids."
        )
    if str(cfg.image_order) != "congruent":
        raise InputError(f"--image-order should be congruent with {first}, but is {cfg.image_order}.")
    if cfg.images_per_sentence < 0:
        raise InputError(f"--images-per-sentence should be at least 1, but is {cfg.images_per_sentence}.")
    if cfg.image_finder:
        return words_of(cfg.image_finder)
    count = ["-n", str(cfg.images_per_sentence)] if cfg.images_per_sentence else []
    return ["dense", "--retriever", cfg.retriever, "--index", cfg.image_index, *count]


class InteractiveImages:
    """Finds the images of what is typed, says which, and gives them to the model.

    Args:
        words: method and flags of the finder.
        store: the images as the model sees them.
        images_per_sentence: the best N of what is found; 0 for all.
        follows: where that is 0, and `words` say no number: find as many as the model had in training.

    Attributes:
        finder: what finds them.

    Raises:
        InputError: there is no such finder, it finds other images than the store has, or fewer than N.
    """

    def __init__(
        self, words: Sequence[str], store: FeatureStore, images_per_sentence: int = 0, follows: bool = False
    ) -> None:
        self.words = words
        self._follows = follows and not images_per_sentence
        self.store = store
        self.finder: Finder = open_finder(words, device="cpu")
        if self.finder.reads != "text":
            raise InputError(
                f"--image-finder should find images for text, but {self.finder.method} reads {self.finder.reads}."
            )
        self.finder.check_store(store)
        self.images_per_sentence = images_per_sentence or self.finder.images_per_sentence
        if self.images_per_sentence > self.finder.images_per_sentence:
            raise InputError(
                f"--images-per-sentence is {self.images_per_sentence}, but --image-finder finds "
                f"{self.finder.images_per_sentence} images a sentence. Let it find more: --image-finder "
                f"'{shlex.join(words)} -n {self.images_per_sentence}'"
            )
        self._names = ImageNames(store)
        self._typed: tuple[list[str], Any] = [], []  # the last lines, and their tokens
        self._lines_before = 0  # lines typed before those
        self._said_counts: set[int] = set()
        self._sentences: Optional[TypedSentences] = None
        self._said_pieces = False
        self._said: set[str] = set()  # what was warned of, but for the numbers

    def follow(self, counts: Sequence[int]) -> None:
        """Find as many images a sentence as the models had in training, where that may be chosen; else warn once.

        Args:
            counts: N of each model that says it, every number once.
        """
        if self._follows and len(counts) == 1 and counts[0] != self.images_per_sentence:
            self.words = [*self.words, "-n", str(counts[0])]
            self.finder = open_finder(self.words, device="cpu")
            self.images_per_sentence = counts[0]
        for count in counts:
            if count != self.images_per_sentence and count not in self._said_counts:
                logger.warning(
                    f"the checkpoint was trained with {count} images a sentence, but for what is typed "
                    f"{self.images_per_sentence} are found. Give --images-per-sentence {count}, and -n {count} in "
                    "--image-finder where it finds fewer."
                )
                self._said_counts.add(count)

    def find(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The best images of each line.

        Shapes:
            returns: ids (L, N) int32, −1 = none; scores (L, N) float32, 0 where there is none
        """
        found = self.finder.find(lines)
        for said in self.finder.warnings(Counter(found.counts), len(lines)):
            kind = re.sub(r"[\d.]+", "", said)
            if kind not in self._said:
                logger.warning(said)
                self._said.add(kind)
        return found.ids[:, : self.images_per_sentence], found.scores[:, : self.images_per_sentence]

    def remember(self, lines: list[str], tokens: list[Tensor]) -> None:
        """What was typed, and its tokens, (T,) each; a finder needs words, and the dictionary doesn't have all."""
        self._lines_before += len(self._typed[0])
        self._typed = list(lines), tokens

    def add(
        self,
        dataset: FairseqDataset,
        tokens: list[Tensor],
        dictionary: Dictionary,
        tags: Optional[ImageTags] = None,
    ) -> "TypedSentences":
        """Sentences with the images that are found for them; where they were typed, these are printed.

        Args:
            dataset: the sentences.
            tokens: (T,) of each; those that `remember` saw stand for the lines that were typed.
            dictionary: what makes lines of tokens that weren't typed: fairseq's hub interface gives tokens alone.
            tags: what writes labels as words; None for none.
        """
        typed = self._typed[1] is tokens
        lines = self._typed[0] if typed else [dictionary.string(sentence) for sentence in tokens]
        ids, scores = self.find(self._plain(lines))
        if typed:
            for number, found in enumerate(zip(ids, scores), self._lines_before):
                print("\t".join([f"I-{number}", *map(printable, self._names.describe(*found))]))
        self._sentences = TypedSentences(dataset, self.store, TabledImages(ids), tags)
        return self._sentences

    def _plain(self, lines: list[str]) -> list[str]:
        """Lines as a finder reads them; with fairseq's `--bpe` and `--tokenizer` they are typed like that."""
        plain = [join_pieces(line) for line in lines]
        if plain != lines and not self._said_pieces:
            logger.warning(
                "what is typed holds subword pieces; they are joined to find images. With --bpe (and --tokenizer) "
                "plain sentences can be typed."
            )
            self._said_pieces = True
        return plain

    def put_back(self, sample: dict[str, Any], models: Sequence[Any]) -> dict[str, Any]:
        """A batch with the images that fairseq dropped.

        Raises:
            InputError: a model takes no images.
        """
        if self._sentences is None or "visual" in sample["net_input"]:
            return sample
        blind = [model for model in models if "visual" not in signature(model.encoder.forward).parameters]
        if blind:
            raise InputError(
                f"--retriever and --image-finder find images for a model that looks at them, but {len(blind)} of "
                f"{len(models)} in --path take text alone ({type(blind[0]).__name__}). Leave --retriever, "
                "--image-index, --image-finder and --image-features out."
            )
        visual = self._sentences.images_of(sample["net_input"]["src_tokens"])
        return {**sample, "net_input": {**sample["net_input"], "visual": visual}}


class TypedSentences(VisualContextDataset):
    """As `VisualContextDataset`, and it hands the images of each batch out again."""

    def __init__(
        self, dataset: FairseqDataset, store: FeatureStore, images: TabledImages, tags: Optional[ImageTags] = None
    ) -> None:
        super().__init__(dataset, store, images, tags=tags)
        self._collated: deque[tuple[Tensor, dict[str, Tensor]]] = deque()

    def collater(self, samples: list[Any], **kwargs: Any) -> dict[str, Any]:
        """Collate, and remember the images."""
        batch = super().collater(samples, **kwargs)
        if batch:
            self._collated.append((batch["net_input"]["src_tokens"], batch["net_input"]["visual"]))
        return batch

    def images_of(self, src_tokens: Tensor) -> dict[str, Tensor]:
        """The images of the earliest batch that they weren't asked of yet, on its tokens' device.

        Shapes:
            src_tokens: (B, T)
            returns: features (B, N, R, F), padding_mask (B, N, R), and the optional columns

        Raises:
            RuntimeError: that batch has other tokens: batches were translated in another order than collated.
        """
        tokens, visual = self._collated.popleft()
        if not torch.equal(tokens, src_tokens.to(tokens.device)):
            raise RuntimeError("batches of typed sentences should be translated in the order of their collation")
        return {name: value.to(src_tokens.device) for name, value in visual.items()}
