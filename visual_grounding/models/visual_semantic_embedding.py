"""`--arch visual_semantic_embedding`: the retriever of VA §2.1, wired from `modules/joint_embedding.py`."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model
from omegaconf import II
from torch import Tensor

from ..errors import InputError
from ..modules.joint_embedding import PRETRAINED, TRAINING_CHOICES, WORD_ENCODERS, JointEmbedding, JointEmbeddingConfig
from ..modules.sentence_encoders import load_pretrained_encoder
from ..storage.checkpoints import check_weights_fit

# A frozen encoder gives the same vector every epoch: 1.5 kB a sentence for 384 numbers, against most of the time.
REMEMBERED_SENTENCES = 1_000_000


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
    text_encoder: str = II("task.text_encoder")


@register_model("visual_semantic_embedding", dataclass=VisualSemanticEmbeddingConfig)
class VisualSemanticEmbeddingModel(BaseFairseqModel):
    """Sentences and images as unit vectors of one space.

    Shapes:
        tokens: (B, T);  token_padding_mask: (B, T)
        features: (B, R, F);  feature_padding_mask: (B, R), True = absent
        returns: text (B, D), images (B, D)
    """

    def __init__(self, embedding: JointEmbedding) -> None:
        super().__init__()
        self.embedding = embedding

    @classmethod
    def build_model(cls, cfg: VisualSemanticEmbeddingConfig, task: Any) -> "VisualSemanticEmbeddingModel":
        """Build for the task's vocabulary and images.

        Raises:
            InputError: a pretrained text encoder can't be loaded, or there is none to freeze.
        """
        words = cfg.text_encoder in WORD_ENCODERS
        if words and cfg.text_encoder_freeze:
            raise InputError(
                f"--text-encoder-freeze needs a pretrained --text-encoder, but it is {cfg.text_encoder!r}."
            )
        config = JointEmbeddingConfig(
            text_encoder=cfg.text_encoder if words else PRETRAINED,
            image_pooling="linear" if task.image_store.num_regions == 1 else "weldon",
            image_feature_size=task.image_store.feature_size,
            joint_size=cfg.joint_size,
            vocabulary_size=len(task.vocabulary) if words else 0,
            **{name: getattr(cfg, name) for name in TRAINING_CHOICES},
        )
        embedding = JointEmbedding(config, None if words else load_pretrained_encoder(cfg.text_encoder))
        if cfg.text_encoder_freeze:
            embedding.text.encoder.remember_sentences(REMEMBERED_SENTENCES)
        return cls(embedding)

    def forward(
        self, tokens: Tensor, token_padding_mask: Tensor, features: Tensor, feature_padding_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Embed a batch of pairs.

        Shapes:
            tokens: (B, T);  token_padding_mask: (B, T)
            features: (B, R, F);  feature_padding_mask: (B, R)
            returns: text (B, D), images (B, D)
        """
        return self.embedding(tokens, token_padding_mask, features, feature_padding_mask)

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True, **kwargs: Any) -> Any:
        """As fairseq's, but says which weights don't fit.

        Raises:
            InputError: the checkpoint was made with other flags.
        """
        if strict:
            check_weights_fit(self.state_dict(), state_dict)
        return super().load_state_dict(state_dict, strict=strict, **kwargs)
