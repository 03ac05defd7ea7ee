"""Training a retriever: `--task image_text_matching`, captions and images in one space.

Its validation scores are those of retrieval over the *whole* split (every caption against every image), so that
`--best-checkpoint-metric recall_sum --maximize-best-checkpoint-metric` keeps the best retriever.

With `--image-folder` instead of `--image-features` the network that sees the pictures is trained along.
"""

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

import torch
from fairseq.tasks import register_task
from omegaconf import II

from ..data.captions import CaptionDataset, load_captions
from ..data.pictures import Pictures, PicturesConfig
from ..data.text_of_one_language import splits_there
from ..data.visual_context import VisualContext
from ..data.word_memory import check_restored_choices
from ..errors import InputError
from ..modules.joint_embedding import WORD_ENCODERS
from ..retrieval.recall import DIRECTIONS, RECALL_AT, TOKEN_DIRECTION, recall_summary, token_recall_summary
from ..shares import MANY_UNKNOWN, warn_of
from ..text.pretrained_tokenizer import IN_CHECKPOINTS, SAME_ENCODER, PretrainedTokenizer
from ..text.words import DICTIONARY, Vocabulary, WordTokenizer
from .frozen_weights import frozen_weights_kept
from .own_criterions import OwnCriterions
from .validation_scores import Scored, ValidationScores, Values

if TYPE_CHECKING:  # it imports torchvision, which features don't need
    from ..features.image_network import ImageNetwork

logger = logging.getLogger(__name__)

_LOOKED_AT = 2_000  # captions, for the words that aren't known


@dataclass
class ImageTextMatchingConfig(PicturesConfig):
    """Flags of the retriever's data."""

    data: Optional[str] = field(
        default=None, metadata={"help": "folder made by `visual-grounding prepare captions`: <split>.tsv and dict.txt"}
    )
    text_encoder: str = field(
        default="sru",
        metadata={"help": "`sru`, `bag` (mean of learned word vectors), or a pretrained encoder: hub name or folder"},
    )
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    caption_pieces: Optional[int] = field(
        default=None,
        metadata={
            "help": "cut captions at so many words or pieces, special ones included (default: the text encoder's limit)"
        },
    )


def images_of_split(values: Values) -> tuple[torch.Tensor, torch.Tensor]:
    """The images of a split, each once, and which of them each caption describes. They are in the order of their rows.

    Shapes:
        values: image (S,) row of each caption's image; images (S, D), that image once a caption
        returns: (I, D);  (S,)
    """
    rows, place = torch.unique(values["image"], return_inverse=True)  # (I,), (S,)
    last = torch.zeros_like(rows).scatter_reduce(0, place, torch.arange(len(place)), "amax")  # of its captions
    return values["images"][last], place


def recall_of_split(values: Values) -> dict[str, float]:
    """All retrieval scores of a split: every caption against every image; images compete in the order of their rows.

    Shapes:
        values: image (S,) row of each caption's image; text (S, D); images (S, D), that image once a caption
    """
    return recall_summary(values["text"], *images_of_split(values))


def token_recall_of_split(values: Values) -> dict[str, float]:
    """The same for tokens: each against every image.

    Shapes:
        values: image (S,); tokens (S, T, D), 0 where a caption has no token; images (S, D)
    """
    return token_recall_summary(values["tokens"], *images_of_split(values))


def scores_of(direction: str) -> tuple[str, ...]:
    """Names of what is logged of a direction."""
    return (*(f"{direction}_r{k}" for k in RECALL_AT), f"{direction}_median_rank")


EMBEDDINGS = Scored(
    values=("image", "text", "images"),
    scores=(*(score for direction in DIRECTIONS for score in scores_of(direction)), "recall_sum"),
    score=recall_of_split,
)
TOKENS = Scored(
    values=("image", "tokens", "images"),
    scores=scores_of(TOKEN_DIRECTION),
    score=token_recall_of_split,
    optional=True,  # of models with a vector for each token
)


@register_task("image_text_matching", dataclass=ImageTextMatchingConfig)
class ImageTextMatchingTask(OwnCriterions, ValidationScores):
    """Bring captions and their images together.

    A criterion hands over `embeddings` in evaluation (`validation_scores.py`): `image` (B,), which image each caption
    describes, `text` (B, D) and `images` (B, D); of a model with a vector for each token also `tokens`, with `tokens`
    (B, T, D) in place of the text, 0 where there is no token. Special pieces don't count as tokens.

    Attributes:
        tokenizer: sentences to numbers, for the text encoder of `--text-encoder`.
        image_store: the features of the images, or with `--image-folder` their pixels.

    Raises:
        InputError: data, feature store or text encoder can't be loaded.
    """

    criterions = ("hardest_negative_triplet", "token_image_hinge")

    cfg: ImageTextMatchingConfig
    source_dictionary = None
    target_dictionary = None
    scored = {"embeddings": EMBEDDINGS, "tokens": TOKENS}

    def __init__(self, cfg: ImageTextMatchingConfig) -> None:
        super().__init__(cfg)
        if not cfg.data or not (cfg.image_features or cfg.image_folder):
            raise InputError(
                "--task image_text_matching needs a data folder and --image-features DIR (or --image-folder SOURCE)."
            )
        if cfg.image_features and cfg.image_folder:
            raise InputError(
                f"--image-features and --image-folder exclude each other, but both are given ({cfg.image_features}, "
                f"{cfg.image_folder})."
            )
        self.data = cfg.data
        self.pictures = Pictures(cfg) if cfg.image_folder else None
        self.images = VisualContext(cfg, self, self.pictures.source if self.pictures else None)
        self.image_store = self.images.store
        self.vocabulary: Optional[Vocabulary] = None
        dictionary = os.path.join(cfg.data, DICTIONARY)
        if not os.path.isfile(dictionary):  # whatever the encoder: without it, captions may be of two runs
            raise InputError(
                f"{cfg.data} should hold {DICTIONARY}, which is written last, but doesn't: it is unfinished, or "
                f"another folder. Make it with: visual-grounding prepare captions … --out {cfg.data}"
            )
        if cfg.text_encoder in WORD_ENCODERS:
            self.vocabulary = Vocabulary.load(dictionary)
            self.images.remember_words("text", dictionary, self.vocabulary.symbols)
            self.tokenizer: Any = WordTokenizer(self.vocabulary)
        else:
            self.tokenizer = PretrainedTokenizer(cfg.text_encoder)
            self.images.remember_words(IN_CHECKPOINTS, cfg.text_encoder, self.tokenizer.symbols(), SAME_ENCODER)
        if cfg.caption_pieces is not None:
            fewest, most = len(self.tokenizer.around) + 1, self.tokenizer.max_tokens
            if not fewest <= cfg.caption_pieces <= most:
                raise InputError(
                    f"--caption-pieces should be {fewest} to {most}, as --text-encoder {cfg.text_encoder} reads no "
                    f"more and puts {fewest - 1} special ones around a caption, but is {cfg.caption_pieces}."
                )
            self.tokenizer.max_tokens = cfg.caption_pieces

    @classmethod
    def setup_task(cls, cfg: ImageTextMatchingConfig, **kwargs: Any) -> "ImageTextMatchingTask":
        """Build the task; what fairseq adds when it loads a checkpoint says nothing here."""
        return cls(cfg)

    def take_image_network(self) -> Optional["ImageNetwork"]:
        """A network of its own for every model that is built; None with `--image-features`."""
        return self.pictures.take_network() if self.pictures else None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: the checkpoint that training goes on from is of the other level; or the best checkpoint is to be
                chosen by a score that the model hasn't.
        """
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            check_restored_choices(self.cfg, cfg)
            metric = str(self.cfg.best_checkpoint_metric)
            if metric in TOKENS.scores and getattr(cfg, "sentence_level", False):
                raise InputError(
                    f"--best-checkpoint-metric {metric} is of tokens, but --sentence-level has a vector of a sentence "
                    "alone: choose the best by text_to_image_r10, for instance."
                )
        return model

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Tell a model that wants to know."""
        if hasattr(model, "begin_epoch"):
            model.begin_epoch(epoch)

    def optimizer_step(self, optimizer: Any, model: Any, update_num: int) -> None:
        """As fairseq's, but what is frozen stays as it is."""
        with frozen_weights_kept(optimizer):
            super().optimizer_step(optimizer, model, update_num)

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        """Load `<split>.tsv`.

        Raises:
            InputError: a broken line, or an image that isn't in the feature store.
        """
        path = os.path.join(self.data, f"{split}.tsv")
        if not os.path.isfile(path):
            raise InputError(
                f"{path} is missing. {splits_there(self.data, '.tsv')} Make it with: visual-grounding prepare captions "
                f"… --out {self.data}"
            )
        captions, rows = load_captions(path, self.image_store)
        dataset = CaptionDataset(captions, rows, self.tokenizer, shuffle=split == self.cfg.train_subset)
        if dataset.truncated:
            logger.warning(
                f"{dataset.truncated} of {len(captions)} captions in {path} were cut at "
                f"{self.tokenizer.max_tokens} tokens."
            )
        looked_at = [dataset[line]["tokens"] for line in range(0, len(dataset), -(-len(dataset) // _LOOKED_AT) or 1)]
        words, known = (int(counts.sum()) for counts in self.tokenizer.count_known(looked_at))
        if words - known > MANY_UNKNOWN * words:
            place = f"{'a sample of ' if len(looked_at) < len(dataset) else ''}{path}"
            said = f"in {place} aren't known: is the dictionary, or the tokenizer, of another language?"
            for each in warn_of(words - known, words, said, "words"):
                self.images.warn_once(each)
        self.datasets[split] = self.images.add_rows(dataset, rows[:, None], split)  # N = 1

    def max_positions(self) -> None:
        """No limit: captions are cut by the tokenizer."""
        return None
