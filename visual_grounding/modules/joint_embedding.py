"""The retriever's two towers: sentences and images as unit vectors of one space (VA §2.1).

Plain torch: the fairseq model wraps it for training, `visual-grounding export` saves it, and `Retriever` loads it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .sentence_encoders import BagSentenceEncoder, PretrainedSentenceEncoder, SRUSentenceEncoder
from .standardisation import BatchStandardisation
from .weldon_pooling import FULL_FROM, FULL_FROM_BEFORE, weldon_pool

WORD_ENCODERS = ("sru", "bag")
PRETRAINED = "pretrained"
# Fields of the configuration below that are flags of training; the rest follows from the data.
TRAINING_CHOICES = (
    "text_embed_size",
    "sru_layers",
    "text_dropout",
    "image_dropout",
    "joint_batch_norm",
    "text_encoder_freeze",
)


@dataclass(frozen=True)
class JointEmbeddingConfig:
    """What decides the shape of both towers; an exported retriever keeps it in `config.json`."""

    text_encoder: str  # "sru", "bag" or "pretrained"
    image_pooling: str  # "linear" for one region, "weldon" for several
    image_feature_size: int
    joint_size: int
    vocabulary_size: int = 0
    text_embed_size: int = 620
    sru_layers: int = 4
    text_dropout: float = 0.25
    image_dropout: float = 0.5
    joint_batch_norm: bool = False
    text_encoder_freeze: bool = False


def build_projection(input_size: int, output_size: int) -> nn.Linear:
    """A linear layer whose bias starts at 0: a common offset would make all vectors alike."""
    projection = nn.Linear(input_size, output_size)
    nn.init.zeros_(projection.bias)
    return projection


def build_sentence_encoder(config: JointEmbeddingConfig, pretrained: Any = None) -> Any:
    """The sentence encoder that `config` names.

    Raises:
        ValueError: the name is unknown, or "pretrained" without a model.
    """
    if config.text_encoder == "sru":
        sizes = (config.vocabulary_size, config.text_embed_size, config.joint_size)
        return SRUSentenceEncoder(*sizes, config.sru_layers, config.text_dropout)
    if config.text_encoder == "bag":
        return BagSentenceEncoder(config.vocabulary_size, config.text_embed_size)
    if config.text_encoder == PRETRAINED and pretrained is not None:
        return PretrainedSentenceEncoder(pretrained, config.text_encoder_freeze)
    raise ValueError(f"text encoder should be sru, bag, or pretrained with a model, but is {config.text_encoder!r}")


class TextTower(nn.Module):
    """Tokens to a vector.

        sru:                sru(w_1 … w_T), which has the joint size by itself
        bag, pretrained:    W dropout(mean of vectors)

    Shapes:
        tokens: (B, T);  padding_mask: (B, T)
        returns: (B, D)
    """

    def __init__(self, config: JointEmbeddingConfig, pretrained: Any = None) -> None:
        super().__init__()
        self.encoder = build_sentence_encoder(config, pretrained)
        size = self.encoder.output_size
        self.standardise = BatchStandardisation(size) if config.joint_batch_norm else None
        self.projection = None if config.text_encoder == "sru" else build_projection(size, config.joint_size)
        self.dropout = config.text_dropout

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Encode sentences, not yet normalised.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D)
        """
        vectors = self.encoder(tokens, padding_mask)  # (B, E)
        if self.standardise is not None:
            vectors = self.standardise(vectors, ~padding_mask.all(dim=1))
        if self.projection is None:
            return vectors
        return self.projection(functional.dropout(vectors, self.dropout, self.training))


class ImageTower(nn.Module):
    """Image features to a vector.

        one region:       W dropout(x)
        several regions:  W dropout(weldon(A x_1, …, A x_R))

    A is the reference's 1×1 convolution, W its projection. From how many regions on Weldon pooling takes its full
    number goes along with the weights: what was trained by one rule isn't used by another.

    Shapes:
        features: (B, R, F);  padding_mask: (B, R), True = absent
        returns: (B, D)
    """

    full_from: Tensor

    def __init__(self, config: JointEmbeddingConfig) -> None:
        super().__init__()
        several = config.image_pooling == "weldon"
        size = config.joint_size if several else config.image_feature_size
        self.regions = nn.Linear(config.image_feature_size, size) if several else None
        if several:
            self.register_buffer("full_from", torch.tensor(FULL_FROM))
        self.standardise = BatchStandardisation(size) if config.joint_batch_norm else None
        self.projection = build_projection(size, config.joint_size)
        self.dropout = config.image_dropout

    def forward(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Encode images, not yet normalised.

        Shapes:
            features: (B, R, F);  padding_mask: (B, R)
            returns: (B, D)
        """
        if self.regions is None:
            pooled = features[:, 0]
        else:
            pooled = weldon_pool(self.regions(features), padding_mask, self.full_from)
        if self.standardise is not None:
            pooled = self.standardise(pooled, ~padding_mask.all(dim=1))
        return self.projection(functional.dropout(pooled, self.dropout, self.training))

    def upgrade_state_dict_named(self, state: dict[str, Tensor], name: str) -> None:
        """Say the rule of weights that don't; fairseq and `load_strictly` call this before they load.

        Args:
            state: weights, changed in place.
            name: of this module in them.
        """
        if self.regions is not None and f"{name}.regions.weight" in state:
            state.setdefault(f"{name}.full_from", torch.tensor(FULL_FROM_BEFORE))


class JointEmbedding(nn.Module):
    """Sentences and images as unit vectors; their inner product is the cosine that VA retrieves by.

    Shapes:
        tokens: (B, T);  token_padding_mask: (B, T)
        features: (B, R, F);  feature_padding_mask: (B, R), True = absent
        returns: text (B, D), images (B, D), float32
    """

    def __init__(self, config: JointEmbeddingConfig, pretrained: Any = None) -> None:
        super().__init__()
        self.config = config
        self.text = TextTower(config, pretrained)
        self.image = ImageTower(config)

    def encode_text(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of sentences; a sentence without a token is 0.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D) float32
        """
        vectors = functional.normalize(self.text(tokens, padding_mask).float(), dim=-1)
        return vectors.masked_fill(padding_mask.all(dim=1, keepdim=True), 0.0)

    def encode_images(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of images; an image without a region is 0.

        Shapes:
            features: (B, R, F);  padding_mask: (B, R)
            returns: (B, D) float32
        """
        vectors = functional.normalize(self.image(features, padding_mask).float(), dim=-1)
        return vectors.masked_fill(padding_mask.all(dim=1, keepdim=True), 0.0)

    def forward(
        self, tokens: Tensor, token_padding_mask: Tensor, features: Tensor, feature_padding_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Both towers.

        Shapes:
            tokens: (B, T);  token_padding_mask: (B, T)
            features: (B, R, F);  feature_padding_mask: (B, R)
            returns: text (B, D), images (B, D)
        """
        return self.encode_text(tokens, token_padding_mask), self.encode_images(features, feature_padding_mask)


def config_of_state(state: dict[str, torch.Tensor], choices: dict[str, Any]) -> JointEmbeddingConfig:
    """The configuration of trained weights: sizes from the weights, the rest from the choices made in training."""
    several = "image.regions.weight" in state
    name = choices["text_encoder"]
    words = name in WORD_ENCODERS
    return JointEmbeddingConfig(
        text_encoder=name if words else PRETRAINED,
        image_pooling="weldon" if several else "linear",
        image_feature_size=state["image.regions.weight" if several else "image.projection.weight"].shape[1],
        joint_size=state["image.projection.weight"].shape[0],
        vocabulary_size=state["text.encoder.embedding.weight"].shape[0] if words else 0,
        **{name: choices[name] for name in TRAINING_CHOICES},
    )
