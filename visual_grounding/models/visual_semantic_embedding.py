"""`--arch visual_semantic_embedding`: the retriever of VA §2.1, wired from `modules/joint_embedding.py`."""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model
from omegaconf import II
from torch import Tensor

from ..errors import InputError
from ..modules.joint_embedding import PRETRAINED, TRAINING_CHOICES, WORD_ENCODERS, JointEmbedding, JointEmbeddingConfig
from ..modules.sentence_encoders import load_text_encoder
from .visual_model import StrictLoading, check_numbers

if TYPE_CHECKING:  # it imports torchvision, which features don't need
    from ..features.image_network import ImageNetwork

logger = logging.getLogger(__name__)

# A frozen encoder gives the same vector every epoch: 1.5 kB a sentence for 384 numbers, against most of the time.
REMEMBERED_SENTENCES = 1_000_000
FREEZE_EPOCHS = 8  # VA's retriever


@dataclass
class VisualSemanticEmbeddingConfig(FairseqDataclass):
    """Flags of the retriever."""

    joint_size: int = field(default=2400, metadata={"help": "size of the common space; 256 is enough on small data"})
    text_embed_size: int = field(default=620, metadata={"help": "size of learned word vectors"})
    sru_layers: int = field(default=4, metadata={"help": "layers of the SRU text encoder"})
    text_dropout: float = field(default=0.25, metadata={"help": "dropout in the text encoder that is learned here"})
    image_dropout: float = field(default=0.5, metadata={"help": "dropout before the image projection"})
    joint_batch_norm: bool = field(
        default=False,
        metadata={
            "help": "standardise what both towers project, over the batch; not in the paper, but on small data the "
            "loss otherwise stays where all similarities are equal (several processes: with --broadcast-buffers)"
        },
    )
    text_encoder_freeze: bool = field(default=False, metadata={"help": "keep a pretrained text encoder as it is"})
    image_backbone_freeze_epochs: Optional[int] = field(
        default=None,
        metadata={
            "help": "epochs before the network of --image-folder begins to learn (default: 8, as in the paper's "
            "retriever; 0 where it begins with random numbers)"
        },
    )
    text_encoder: str = II("task.text_encoder")


@register_model("visual_semantic_embedding", dataclass=VisualSemanticEmbeddingConfig)
class VisualSemanticEmbeddingModel(StrictLoading, BaseFairseqModel):
    """Sentences and images as unit vectors of one space.

    Shapes:
        tokens: (B, T);  token_padding_mask: (B, T)
        visual["features"]: (B, 1, R, F);  visual["padding_mask"]: (B, 1, R), True = absent
        visual["pixels"]: (B, 1, H, W, 3) uint8, instead of features, where the image network is trained along; R = 1
        returns: text (B, D), images (B, D)

    Args:
        embedding: both towers.
        image_network: pixels to features, with `--image-folder`.
        freeze_epochs: epochs before that network learns.
    """

    def __init__(
        self, embedding: JointEmbedding, image_network: Optional["ImageNetwork"] = None, freeze_epochs: int = 0
    ) -> None:
        super().__init__()
        self.embedding = embedding
        # Last: fairseq's optimizer for --fp16 misplaces the gradients of whatever comes behind a frozen weight.
        self.image_network = image_network
        self.freeze_epochs = freeze_epochs

    @classmethod
    def build_model(cls, cfg: VisualSemanticEmbeddingConfig, task: Any) -> "VisualSemanticEmbeddingModel":
        """Build for the task's vocabulary and images.

        Raises:
            InputError: a pretrained encoder can't be loaded, or there is none to freeze.
        """
        check_numbers(cfg)
        words = cfg.text_encoder in WORD_ENCODERS
        if words and cfg.text_encoder_freeze:
            raise InputError(
                f"--text-encoder-freeze needs a pretrained --text-encoder, but it is {cfg.text_encoder!r}."
            )
        if not hasattr(task, "take_image_network"):
            raise InputError(
                "visual_semantic_embedding is a retriever, which belongs to --task image_text_matching: it finds "
                "images and translates nothing. Make a folder of its checkpoint with: visual-grounding export"
            )
        network = task.take_image_network()
        regions, size = (
            network.map_shape() if network else (task.image_store.num_regions, task.image_store.feature_size)
        )
        config = JointEmbeddingConfig(
            text_encoder=cfg.text_encoder if words else PRETRAINED,
            image_pooling="linear" if regions == 1 else "weldon",
            image_feature_size=size,
            joint_size=cfg.joint_size,
            vocabulary_size=len(task.vocabulary) if words else 0,
            **{name: getattr(cfg, name) for name in TRAINING_CHOICES},
        )
        embedding = JointEmbedding(config, None if words else load_text_encoder(cfg.text_encoder))
        if cfg.text_encoder_freeze:
            embedding.text.encoder.remember_sentences(REMEMBERED_SENTENCES)
        freeze_epochs = cfg.image_backbone_freeze_epochs
        if network is None:
            if freeze_epochs is not None:
                raise InputError("--image-backbone-freeze-epochs needs a network that is trained: give --image-folder.")
            return cls(embedding)
        if freeze_epochs is None:
            freeze_epochs = FREEZE_EPOCHS if network.pretrained else 0
        return cls(embedding, network, freeze_epochs)

    def begin_epoch(self, epoch: int) -> None:
        """The image network learns from the epoch after `--image-backbone-freeze-epochs` on."""
        if self.image_network is None:
            return
        self.image_network.freeze(epoch <= self.freeze_epochs)
        if self.image_network.frozen:
            several = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
            logger.info(
                f"{self.image_network.name} is frozen up to epoch {self.freeze_epochs} "
                "(--image-backbone-freeze-epochs)"
                + ("; several processes need --ddp-backend legacy_ddp meanwhile" if several else "")
            )

    def forward(self, tokens: Tensor, token_padding_mask: Tensor, visual: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Embed a batch of pairs.

        Shapes:
            tokens: (B, T);  token_padding_mask: (B, T)
            visual["features"]: (B, 1, R, F), or visual["pixels"]: (B, 1, H, W, 3);  visual["padding_mask"]: (B, 1, R)
            returns: text (B, D), images (B, D)

        Raises:
            ValueError: a sentence has several images, where each should have the one that it describes.
        """
        padding_mask = visual["padding_mask"]
        if padding_mask.shape[1] != 1:
            raise ValueError(f"each sentence should have 1 image, but has {padding_mask.shape[1]}")
        padding_mask = padding_mask[:, 0]  # (B, 1, R) -> (B, R)
        if self.image_network is not None:
            features = self.image_network(visual["pixels"][:, 0])  # (B, 1, H, W, 3) -> (B, R, F)
            padding_mask = padding_mask.expand(-1, features.shape[1])  # (B, 1) -> (B, R)
        else:  # the store has float16
            features = visual["features"][:, 0].to(self.embedding.image.projection.weight.dtype)
        return self.embedding(tokens, token_padding_mask, features, padding_mask)
