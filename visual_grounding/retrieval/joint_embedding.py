"""The retriever that was trained here, `--arch visual_semantic_embedding` (VA §2.1), as its folder holds it.

The folder is self-contained: `config.json`, `model.safetensors` (all weights, those of an image network that was
trained along included, which say themselves what network it is), and the tokenizer's files: `dict.txt`, or
`text_encoder/` with the configuration and tokenizer of a pretrained encoder.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError
from ..modules.joint_embedding import PRETRAINED, WORD_ENCODERS, JointEmbedding, JointEmbeddingConfig
from ..storage.weights import read_weights
from ..text.pretrained_tokenizer import PretrainedTokenizer
from ..text.words import DICTIONARY, SPECIAL_SYMBOLS, Vocabulary, WordTokenizer
from .retriever import Retriever, Tokenizer
from .retriever_folder import TEXT_ENCODER, WEIGHTS, Description, unusable, write_retriever, write_weights
from .trained_towers import AGAIN, build_with_text_encoder, check_architecture, load_towers, save_text_encoder

if TYPE_CHECKING:  # it imports torchvision, which features don't need
    from ..features.image_network import ImageNetwork

KIND = "joint_embedding"
IMAGE_NETWORK = "image_network."  # begins the names of the weights of a network that was trained along
_NAMES = {"text_encoder": (*WORD_ENCODERS, PRETRAINED), "image_pooling": ("linear", "weldon")}


class JointEmbeddingRetriever(Retriever):
    """Both towers of a joint embedding with their tokenizer.

    Args:
        folder, description, tokenizer, device: as `Retriever`.
        embedding: the towers.
        image_network: trained with them, where it takes pixels instead of features.
    """

    def __init__(
        self,
        folder: Path,
        description: Description,
        tokenizer: Tokenizer,
        embedding: JointEmbedding,
        image_network: "ImageNetwork | None",
        device: str,
    ) -> None:
        config = embedding.config
        sizes = (config.joint_size, config.image_feature_size, config.image_pooling == "weldon")
        preprocessing = None if image_network is None else image_network.preprocessing
        super().__init__(folder, description, tokenizer, *sizes, preprocessing, device)
        self.has_cells = image_network is None
        self.embedding = embedding.to(device).eval()
        self.image_network = None if image_network is None else image_network.to(device).eval()

    @classmethod
    def open(cls, folder: Path, description: Description, device: str) -> "JointEmbeddingRetriever":
        """Load what `save_joint_embedding` wrote.

        Raises:
            InputError: the folder isn't whole.
        """
        try:
            config = JointEmbeddingConfig(**description.architecture)
            check_architecture(config, layers=("sru_layers",), known=_NAMES)
        except (ValueError, TypeError) as error:
            raise unusable(folder, error) from error
        weights = folder / WEIGHTS
        state, network = split_image_network(read_weights(weights, finite=True, remedy=AGAIN), weights)
        tokenizer = _open_tokenizer(config, folder)
        embedding = load_towers(lambda: _build_embedding(config, folder), state, folder)
        return cls(folder, description, tokenizer, embedding, network, device)

    def embed_text(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of sentences; 0 for one without a token.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D) float32
        """
        return self.embedding.encode_text(tokens, padding_mask)

    def embed_images(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of images; 0 for one without a region.

        Shapes:
            features: (B, R, F), or pixels (B, H, W, 3)
            padding_mask: (B, R), for pixels (B, 1)
            returns: (B, D) float32
        """
        if self.image_network is not None:
            # The same algorithm every time: a rerun after an interruption must give the same bytes.
            with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
                features = self.image_network(features).float()
            self._check_size(*features.shape[1:])
            padding_mask = padding_mask.expand(-1, features.shape[1])
        return self.embedding.encode_images(features, padding_mask)

    def embed_cells(self, features: Tensor) -> Tensor:
        """Each region by itself through the image tower; not normalised.

        A tower for one region takes them, too, so that its mean-pooled features can be looked into: their mean is the
        vector of the mean, because the tower is linear. Weldon pooling of one region x is 2 A x, so for the other tower
        a cell is W (2 A x) + b: the paper's W (A x) but for a factor and an offset that all cells share.

        Shapes:
            features: (B, R, F)
            returns: (B, R, D)
        """
        images, regions, size = features.shape
        alone = features.reshape(images * regions, 1, size)
        present = torch.zeros(alone.shape[:2], dtype=torch.bool, device=alone.device)
        return self.embedding.image(alone, present).view(images, regions, -1)


def save_joint_embedding(
    folder: Path,
    embedding: JointEmbedding,
    tokenizer: Any,
    signature: str,
    image_network: "ImageNetwork | None" = None,
    image_features: str | None = None,
) -> None:
    """Write a retriever's folder.

    Args:
        folder: its place; an older retriever there is replaced.
        embedding: the towers.
        tokenizer: of the text tower.
        signature: how it was trained.
        image_network: trained with them.
        image_features: signature of the features that it learned from.

    Raises:
        InputError: the folder can't be written, or holds something else.
    """

    def write_files(beside: Path) -> None:
        if embedding.config.text_encoder == PRETRAINED:
            save_text_encoder(beside, tokenizer, embedding.text.encoder.model)
        else:
            tokenizer.save(beside)
        seeing = {} if image_network is None else image_network.state_dict()
        along = {IMAGE_NETWORK + name: weight for name, weight in seeing.items()}
        write_weights(beside, {**embedding.state_dict(), **along})

    write_retriever(folder, Description(KIND, asdict(embedding.config), signature, image_features), write_files)


def split_image_network(
    state: dict[str, Tensor], origin: Path | str = ""
) -> "tuple[dict[str, Tensor], ImageNetwork | None]":
    """Take the image network, if there is one, out of a retriever's weights.

    Args:
        state: all weights.
        origin: where they were read from, for messages.

    Raises:
        InputError: its weights don't fit.
    """
    own = {name.removeprefix(IMAGE_NETWORK): state[name] for name in state if name.startswith(IMAGE_NETWORK)}
    rest = {name: weight for name, weight in state.items() if not name.startswith(IMAGE_NETWORK)}
    if not own:
        return rest, None
    from ..features.image_network import restore_image_network

    return rest, restore_image_network(own, origin)


def _open_tokenizer(config: JointEmbeddingConfig, folder: Path) -> Tokenizer:
    if config.text_encoder == PRETRAINED:
        return PretrainedTokenizer(str(folder / TEXT_ENCODER))
    vocabulary = Vocabulary.load(folder / DICTIONARY)
    if len(vocabulary) != config.vocabulary_size:
        raise InputError(
            f"{folder / DICTIONARY} should have the {config.vocabulary_size - len(SPECIAL_SYMBOLS)} words that "
            f"this retriever was trained with, but has {len(vocabulary.words)}. {AGAIN}"
        )
    return WordTokenizer(vocabulary)


def _build_embedding(config: JointEmbeddingConfig, folder: Path) -> JointEmbedding:
    if config.text_encoder != PRETRAINED:
        return JointEmbedding(config)
    return build_with_text_encoder(folder, lambda encoder: JointEmbedding(config, encoder))
