"""Translation with images beside the source: `--task grounded_translation`.

fairseq's translation task, whose batches carry `net_input["visual"]` when `--image-features` names a feature store.
Without it nothing is added, so `--arch text_only_transformer` is the text-only twin on the same data.

With `--retriever` and `--image-index`, `fairseq-interactive` finds the images of what is typed, and prints them:

    I-0<TAB>key:cosine<TAB>key:cosine …     best first; nothing behind I-0 where there is no image

All lines of a buffer (`--buffer-size`, 1 by default) come in their order, before fairseq's own lines for them.
"""

import logging
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Optional

import numpy as np
from fairseq.data import ConcatDataset, Dictionary
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ..data.typed_sentences import TypedSentences
from ..data.visual_context import ImageTablesConfig, VisualContext
from ..errors import InputError
from ..retrieval.live import LiveRetrieval
from ..text.pieces import join_pieces

logger = logging.getLogger(__name__)

IMAGES_PER_TYPED_SENTENCE = 8  # as `visual-grounding retrieve` (VA §3.2)


@dataclass
class GroundedTranslationConfig(ImageTablesConfig, TranslationConfig):
    """Flags of the translation task and of its images."""

    retriever: Optional[str] = field(
        default=None,
        metadata={"help": "for fairseq-interactive: find the images of what is typed with this retriever"},
    )
    image_index: Optional[str] = field(
        default=None,
        metadata={"help": "index that --retriever made, over the images of --image-features"},
    )


@register_task("grounded_translation", dataclass=GroundedTranslationConfig)
class GroundedTranslationTask(TranslationTask):
    """Translate sentences that have images beside them.

    Attributes:
        image_feature_size: F of the feature store, 0 without one; a model may ask for it.

    Raises:
        InputError: only one of `--image-features` and `--image-ids`, or the two don't belong together; the training set
            can't be repeated as `--upsample-primary` says.
    """

    cfg: GroundedTranslationConfig

    def __init__(self, cfg: GroundedTranslationConfig, src_dict: Dictionary, tgt_dict: Dictionary) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        _check_image_flags(cfg)
        if cfg.upsample_primary == -1:
            cfg.upsample_primary = 1  # fairseq's default takes train minus once, where there are train and train1
        elif cfg.upsample_primary < 1:
            raise InputError(f"--upsample-primary should be at least 1, but is {cfg.upsample_primary}.")
        self.images = VisualContext(cfg, self)
        if not cfg.retriever:
            self.images.check_tables()
        self.image_store = self.images.store
        self.live = None
        if cfg.retriever and cfg.image_index and self.image_store is not None:
            count = cfg.images_per_sentence or IMAGES_PER_TYPED_SENTENCE
            self.live = LiveRetrieval(cfg.retriever, cfg.image_index, self.image_store, count)
        self._typed: tuple[list[str], list[Any]] = [], []  # the last lines, and their tokens
        self._lines_before = 0  # lines typed before those
        self._sentences: Optional[TypedSentences] = None
        self._said_blind = False
        self._said_pieces = False

    @property
    def image_feature_size(self) -> int:
        """F of the feature store, 0 without one."""
        return self.images.feature_size

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: there are images, but the model takes text alone.
        """
        model = super().build_model(cfg, from_checkpoint)
        self.images.check_model(model)
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the text of a split, and put the images of `--image-ids DIR/<split>` beside it.

        Raises:
            InputError: there is no such split, or text, ids and store don't belong together.
        """
        if self.live is not None:
            raise InputError(
                f"--retriever finds images for what is typed into fairseq-interactive, but {split} is binarised text. "
                "Make a table of its images and give that as --image-ids instead: visual-grounding retrieve --method "
                f"dense --retriever {self.cfg.retriever} --index {self.cfg.image_index} --text FILE --out DIR/{split}"
            )
        try:
            super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        except FileNotFoundError as error:
            raise InputError(
                f"{self.cfg.data} should hold binarised text of the split {split!r}, as fairseq-preprocess writes it, "
                f"but there is none for {self.cfg.source_lang}-{self.cfg.target_lang}."
            ) from error
        dataset = self.datasets[split]
        text = f"{split}.{self.cfg.source_lang}-{self.cfg.target_lang}"
        self.datasets[split] = self.images.add(dataset, split, text, epoch, _parts(dataset))

    def get_interactive_tokens_and_lengths(self, lines: list[str], encode_fn: Any) -> tuple[list, list]:
        """As fairseq's; the lines themselves are kept for the retriever, which needs words, not pieces."""
        self._lines_before += len(self._typed[0])
        tokens, lengths = super().get_interactive_tokens_and_lengths(lines, encode_fn)
        self._typed = list(lines), tokens
        return tokens, lengths

    def build_dataset_for_inference(self, src_tokens: list, src_lengths: list, constraints: Any = None) -> Any:
        """Sentences to translate, with the images that `--retriever` finds for them; without it, from text alone."""
        dataset = super().build_dataset_for_inference(src_tokens, src_lengths, constraints)
        if self.live is None or self.image_store is None:
            if not self._said_blind:
                logger.warning(
                    "sentences given to fairseq-interactive have no images; they are translated from text alone. "
                    "Images are found with --retriever, --image-index and --image-features."
                )
                self._said_blind = True
            return dataset
        typed = self._typed[1] is src_tokens
        # fairseq's hub interface gives tokens alone; words that the dictionary doesn't have are lost there.
        lines = self._typed[0] if typed else [self.source_dictionary.string(tokens) for tokens in src_tokens]
        ids, scores = self.live.find(self._plain(lines))
        if typed:
            for number, found in enumerate(zip(ids, scores), self._lines_before):
                print("\t".join([f"I-{number}", *self.live.describe(*found)]))
        self._sentences = TypedSentences(dataset, self.image_store, ids.astype(np.int32))
        return self._sentences

    def _plain(self, lines: list[str]) -> list[str]:
        """Lines as a retriever reads them; with fairseq's `--bpe` and `--tokenizer` they are typed like that."""
        plain = [join_pieces(line) for line in lines]
        if plain != lines and not self._said_pieces:
            logger.warning(
                "what is typed holds subword pieces; they are joined to find images. With --bpe (and --tokenizer) "
                "plain sentences can be typed."
            )
            self._said_pieces = True
        return plain

    def inference_step(
        self, generator: Any, models: Any, sample: dict, prefix_tokens: Any = None, constraints: Any = None
    ) -> Any:
        """Translate a batch; fairseq-interactive dropped its images, so they are put back.

        Raises:
            InputError: a model takes no images.
        """
        if self._sentences is not None and "visual" not in sample["net_input"]:
            blind = [model for model in models if "visual" not in signature(model.encoder.forward).parameters]
            if blind:
                raise InputError(
                    f"--retriever finds images for a model that looks at them, but {len(blind)} of {len(models)} in "
                    f"--path take text alone ({type(blind[0]).__name__}). Leave --retriever, --image-index and "
                    "--image-features out."
                )
            visual = self._sentences.images_of(sample["net_input"]["src_tokens"])
            sample = {**sample, "net_input": {**sample["net_input"], "visual": visual}}
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)


def _parts(dataset: Any) -> Optional[list[tuple[int, int]]]:
    """Sentences of train, train1, train2 …, and how often each is repeated; None where a split has one part."""
    source = dataset.src
    return list(zip(source.real_sizes, source.sample_ratios)) if isinstance(source, ConcatDataset) else None


def _check_image_flags(cfg: GroundedTranslationConfig) -> None:
    """Refuse image flags that don't make sense together.

    Raises:
        InputError: a flag without the one it needs, or two that exclude each other.
    """
    if not cfg.retriever and not cfg.image_index:
        return
    needed = {"--retriever": cfg.retriever, "--image-index": cfg.image_index, "--image-features": cfg.image_features}
    absent = [flag for flag, value in needed.items() if not value]
    if absent:
        raise InputError(f"{', '.join(needed)} belong together, but {' and '.join(absent)} isn't given.")
    if cfg.image_ids:
        raise InputError(
            f"--retriever and --image-ids exclude each other, but both are given ({cfg.retriever}, {cfg.image_ids}): "
            "fairseq-interactive finds images with --retriever, the other commands read them with --image-ids."
        )
    if str(cfg.image_order) != "congruent":
        raise InputError(f"--image-order should be congruent with --retriever, but is {cfg.image_order}.")
