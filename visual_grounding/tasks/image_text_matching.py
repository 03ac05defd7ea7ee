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
from fairseq.logging import metrics
from fairseq.logging.meters import Meter
from fairseq.tasks import FairseqTask, register_task
from torch import Tensor

from ..data.captions import CaptionDataset, load_captions
from ..data.pictures import Pictures, PicturesConfig
from ..data.visual_context import VisualContext
from ..errors import InputError
from ..modules.joint_embedding import WORD_ENCODERS
from ..retrieval.recall import DIRECTIONS, RECALL_AT, recall_summary
from ..text.pretrained_tokenizer import PretrainedTokenizer
from ..text.words import DICTIONARY, Vocabulary, WordTokenizer

if TYPE_CHECKING:  # it imports torchvision, which features don't need
    from ..features.image_network import ImageNetwork

logger = logging.getLogger(__name__)

SCORES = [
    f"{direction}_{score}" for direction in DIRECTIONS for score in (*(f"r{k}" for k in RECALL_AT), "median_rank")
]


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


class RetrievalMeter(Meter):
    """Collects embeddings while a split is validated; scores them when asked. A caption seen twice counts once."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.text: dict[int, Tensor] = {}
        self.image_row: dict[int, int] = {}
        self.images: dict[int, Tensor] = {}
        self._scores: Optional[dict[str, float]] = None

    def update(self, ids: list[int], image_rows: list[int], text: Tensor, images: Tensor) -> None:
        """Add a batch: text (B, D) and images (B, D), one pair a row."""
        for number, (caption, row) in enumerate(zip(ids, image_rows)):
            self.text[caption] = text[number]
            self.image_row[caption] = row
            self.images[row] = images[number]
        self._scores = None

    @property
    def scores(self) -> dict[str, float]:
        """All retrieval scores of what was collected; images compete in the order of their rows."""
        if self._scores is None:
            captions, rows = sorted(self.text), sorted(self.images)
            place = {row: number for number, row in enumerate(rows)}
            self._scores = recall_summary(
                torch.stack([self.text[caption] for caption in captions]),
                torch.stack([self.images[row] for row in rows]),
                torch.tensor([place[self.image_row[caption]] for caption in captions]),
            )
        return self._scores


@register_task("image_text_matching", dataclass=ImageTextMatchingConfig)
class ImageTextMatchingTask(FairseqTask):
    """Bring captions and their images together.

    Attributes:
        tokenizer: sentences to numbers, for the text encoder of `--text-encoder`.
        image_store: the features of the images, or with `--image-folder` their pixels.

    Raises:
        InputError: data, feature store or text encoder can't be loaded.
    """

    cfg: ImageTextMatchingConfig
    source_dictionary = None
    target_dictionary = None

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
        if cfg.text_encoder in WORD_ENCODERS:
            path = os.path.join(cfg.data, DICTIONARY)
            if not os.path.isfile(path):
                raise InputError(
                    f"{cfg.data} should hold {DICTIONARY}. Make it with: visual-grounding prepare captions … --out DIR"
                )
            self.vocabulary = Vocabulary.load(path)
            self.tokenizer: Any = WordTokenizer(self.vocabulary)
        else:
            self.tokenizer = PretrainedTokenizer(cfg.text_encoder)
        self._gathered: list[tuple[list[int], list[int], Tensor, Tensor]] = []

    @classmethod
    def setup_task(cls, cfg: ImageTextMatchingConfig, **kwargs: Any) -> "ImageTextMatchingTask":
        """Build the task; what fairseq adds when it loads a checkpoint says nothing here."""
        return cls(cfg)

    def take_image_network(self) -> Optional["ImageNetwork"]:
        """A network of its own for every model that is built; None with `--image-features`."""
        return self.pictures.take_network() if self.pictures else None

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Tell a model that wants to know."""
        if hasattr(model, "begin_epoch"):
            model.begin_epoch(epoch)

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        """Load `<split>.tsv`.

        Raises:
            InputError: a broken line, or an image that isn't in the feature store.
        """
        path = os.path.join(self.data, f"{split}.tsv")
        if not os.path.isfile(path):
            raise InputError(f"{path} is missing. Make it with: visual-grounding prepare captions … --out {self.data}")
        captions, rows = load_captions(path, self.image_store)
        dataset = CaptionDataset(captions, rows, self.tokenizer, shuffle=split == self.cfg.train_subset)
        if dataset.truncated:
            logger.warning(
                f"{dataset.truncated} of {len(captions)} captions in {path} were cut at "
                f"{self.tokenizer.max_tokens} tokens."
            )
        self.datasets[split] = self.images.add_rows(dataset, rows[:, None], split)  # N = 1

    def max_positions(self) -> None:
        """No limit: captions are cut by the tokenizer."""
        return None

    def valid_step(self, sample: dict[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Loss of a batch; its embeddings, from every process, wait for the scores of the split."""
        mine: tuple[list[int], list[int], Tensor, Tensor] | None = None
        if sample:
            loss, sample_size, logging_output = super().valid_step(sample, model, criterion)
            text, images = (embeddings.float().cpu() for embeddings in logging_output.pop("embeddings"))
            mine = (sample["id"].tolist(), sample["image_rows"].tolist(), text, images)
        else:  # fairseq-validate gives a process without a batch left an empty one
            loss, sample_size, logging_output = 0.0, 0, {"loss": 0.0, "ntokens": 0, "nsentences": 0, "sample_size": 0}
        everyone: list[Any] = [mine]
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            everyone = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(everyone, mine)
        self._gathered += [batch for batch in everyone if batch is not None]
        return loss, sample_size, logging_output

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """Log the criterion's numbers, and in validation the retrieval scores."""
        super().reduce_metrics(logging_outputs, criterion)
        if not self._gathered:
            return
        for batch in self._gathered:
            metrics.log_custom(RetrievalMeter, "_retrieval", *batch)
        self._gathered = []
        for name in (*SCORES, "recall_sum"):
            metrics.log_derived(name, lambda meters, name=name: round(meters["_retrieval"].scores[name], 4))
