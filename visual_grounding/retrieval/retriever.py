"""A trained retriever: sentences and images to unit vectors of one space. Needs torch (and transformers where its text
encoder is a pretrained one), not fairseq.

The folder is self-contained: `config.json` (architecture and signature), `model.safetensors` (all weights, those of an
image network that was trained along included, which say themselves what network it is), and the tokenizer's files:
`dict.txt`, or `text_encoder/` with the configuration and tokenizer of a pretrained encoder or of a dual encoder's text
tower.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from ..errors import InputError
from ..features.store import FeatureStore
from ..modules.joint_embedding import PRETRAINED, WORD_ENCODERS, JointEmbedding, JointEmbeddingConfig
from ..modules.sentence_encoders import build_pretrained_encoder
from ..storage.artefact import sha256_of_file, write_json
from ..text.pretrained_tokenizer import PretrainedTokenizer
from ..text.words import DICTIONARY, SPECIAL_SYMBOLS, Vocabulary, WordTokenizer
from .retriever_files import CONFIG, RETRIEVER, TEXT_ENCODER, VERSION, WEIGHTS, begin_folder

if TYPE_CHECKING:  # it imports torchvision, which other retrievers don't need
    from ..features.image_network import ImageNetwork
    from ..features.pixels import PixelSource

_MOST_LAYERS, _LARGEST_SIZE = 100, 2**24
IMAGE_NETWORK = "image_network."  # begins the names of the weights of a network that was trained along


class Retriever:
    """Both towers with their tokenizer, in evaluation mode.

    Attributes:
        folder: where it was loaded from.
        joint_size: D.
        signature: how it was trained.
        sha256: digest of its files: its identity. Others in its folder, a README say, don't count.
        max_tokens: longer sentences are cut here.
        image_network: trained with it, where it takes pixels instead of features.
    """

    def __init__(
        self,
        folder: Path,
        embedding: Any,
        tokenizer: Any,
        signature: str,
        device: str,
        image_network: "ImageNetwork | None" = None,
    ) -> None:
        self.folder = folder
        self.image_network = None if image_network is None else image_network.to(device).eval()
        self.embedding = embedding.to(device).eval()
        self.tokenizer = tokenizer
        self.signature = signature
        self.device = device
        self.joint_size = embedding.config.joint_size
        self.max_tokens: int = tokenizer.max_tokens
        self.sha256 = sha256_of_retriever(folder)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> "Retriever":
        """Load what `visual-grounding export` wrote.

        Raises:
            InputError: the folder isn't a whole retriever.
        """
        folder = Path(folder)
        tokenizer: Any
        try:
            description = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            if (description["format"], description["version"]) != (RETRIEVER, VERSION):
                raise ValueError(f"it says {description['format']}, version {description['version']}")
            architecture = description["architecture"]
            config = None if "dual_encoder" in architecture else JointEmbeddingConfig(**architecture)
            if config is not None:
                _check_architecture(config)
            if not isinstance(description["signature"], str):
                raise ValueError(f"signature should be text, but is {description['signature']!r:.80}")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{folder} should hold a {RETRIEVER}, version {VERSION}, but its {CONFIG} can't be used: {error}. "
                "Make it with: visual-grounding export --checkpoint … --out DIR"
            ) from error
        if config is None:
            from .dual_encoder import load_dual_encoder  # imports torchvision, which others don't need

            return cls(folder, *load_dual_encoder(folder, architecture), description["signature"], device)
        weights = read_weights(folder / WEIGHTS)
        if config.text_encoder == PRETRAINED:
            name = str(folder / TEXT_ENCODER)
            tokenizer = PretrainedTokenizer(name)
        else:
            vocabulary = Vocabulary.load(folder / DICTIONARY)
            if len(vocabulary) != config.vocabulary_size:
                raise InputError(
                    f"{folder / DICTIONARY} should have the {config.vocabulary_size - len(SPECIAL_SYMBOLS)} words that "
                    f"this retriever was trained with, but has {len(vocabulary.words)}. Export it again."
                )
            tokenizer = WordTokenizer(vocabulary)
        state, network = split_image_network(weights)
        with torch.device("meta"):  # claims no memory: sizes that don't belong to the weights are refused first
            planned = _build_embedding(config, folder)
        load_weights(planned, state, str(folder / WEIGHTS), assign=True)
        embedding = _build_embedding(config, folder)
        load_weights(embedding, state, str(folder / WEIGHTS))
        return cls(folder, embedding, tokenizer, description["signature"], device, network)

    def check_store(self, store: "FeatureStore | PixelSource") -> None:
        """Refuse a store that this retriever's images can't be; what only its size tells shows when they are encoded.

        Raises:
            InputError: a dual encoder's images were made by another network.
        """
        if hasattr(self.embedding, "check_store"):
            self.embedding.check_store(store, self.folder)

    def tokenize(self, sentences: list[str]) -> tuple[list[list[int]], int]:
        """Token numbers of each sentence, and how many sentences were cut at `max_tokens`."""
        return self.tokenizer.encode(sentences)

    @torch.inference_mode()
    def encode_tokens(self, tokens: Sequence[Sequence[int]], batch_size: int = 256) -> Tensor:
        """Unit vectors of tokenised sentences; 0 for one without a token. Sentences of similar length share a batch.

        Shapes:
            returns: (S, D) float32, on the CPU
        """
        vectors = torch.zeros(len(tokens), self.joint_size)
        order = sorted(range(len(tokens)), key=lambda sentence: len(tokens[sentence]))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            lengths = torch.tensor([len(tokens[sentence]) for sentence in chosen])
            batch = torch.full((len(chosen), max(1, int(lengths.max()))), self.tokenizer.pad)  # (B, T)
            for row, sentence in enumerate(chosen):
                batch[row, : len(tokens[sentence])] = torch.tensor(tokens[sentence], dtype=torch.long)
            padding_mask = torch.arange(batch.shape[1]) >= lengths.unsqueeze(1)
            encoded = self.embedding.encode_text(batch.to(self.device), padding_mask.to(self.device))
            vectors[chosen] = encoded.cpu()
        return vectors

    @torch.inference_mode()
    def encode_text(self, sentences: list[str], batch_size: int = 256) -> Tensor:
        """Unit vectors of sentences; 0 for an empty one.

        Shapes:
            returns: (S, D) float32, on the CPU
        """
        vectors = self.encode_tokens(self.tokenize(sentences)[0], batch_size)
        empty = torch.tensor([not sentence.strip() for sentence in sentences], dtype=torch.bool)
        vectors[empty] = 0.0  # an encoder may put special tokens around nothing
        return vectors

    @torch.inference_mode()
    def encode_images(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of images; 0 for one without a region.

        Shapes:
            features: (I, R, F), or pixels (I, H, W, 3) uint8 where the retriever has an image network
            padding_mask: (I, R), for pixels (I, 1), True = absent
            returns: (I, D) float32, on the CPU

        Raises:
            InputError: features of another size than the retriever was trained on, or pixels where it takes features.
        """
        config = self.embedding.config
        pixels = features.dtype == torch.uint8
        if pixels != (self.image_network is not None):
            raise InputError(
                f"retriever {self.folder} was trained on features, so give --image-features DIR, not --images."
                if pixels
                else f"retriever {self.folder} was trained with its image network, so give the images themselves, not "
                "features: --images SOURCE."
            )
        if self.image_network is not None:
            # The same algorithm every time: a rerun after an interruption must give the same bytes.
            with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
                features = self.image_network(features.to(self.device))
            padding_mask = padding_mask.expand(-1, features.shape[1])
        several = features.shape[1] > 1
        if features.shape[2] != config.image_feature_size or several != (config.image_pooling == "weldon"):
            regions = "several regions" if config.image_pooling == "weldon" else "1 region"
            raise InputError(
                f"retriever {self.folder} was trained on images of {regions} with {config.image_feature_size} numbers, "
                f"but these have {features.shape[1]} with {features.shape[2]}. Use the features that it was trained on."
            )
        return self.embedding.encode_images(features.to(self.device).float(), padding_mask.to(self.device)).cpu()

    @torch.inference_mode()
    def encode_cells(self, features: Tensor) -> Tensor:
        """Each region by itself through the image tower, as if the picture were nothing else; not normalised.

        A tower for one region takes them, too, so that its mean-pooled features can be looked into: their mean is the
        vector of the mean, because the tower is linear. Weldon pooling of one region x is 2 A x, so for the other tower
        a cell is W (2 A x) + b: the paper's W (A x) but for a factor and an offset that all cells share.

        Shapes:
            features: (I, R, F)
            returns: (I, R, D) float32, on the CPU

        Raises:
            InputError: features of another size than the retriever was trained on, or it doesn't project images.
        """
        tower = getattr(self.embedding, "image", None)
        if tower is None or self.image_network is not None:
            takes = "images that are projected already" if tower is None else "pictures"
            raise InputError(
                f"retriever {self.folder} should project image features, but takes {takes}. Use one that was trained "
                "with --arch visual_semantic_embedding on --image-features."
            )
        images, regions, size = features.shape
        expected = self.embedding.config.image_feature_size
        if size != expected:
            raise InputError(
                f"retriever {self.folder} was trained on regions with {expected} numbers, but these have {size}. "
                "Use a grid of the features that it was trained on."
            )
        alone = features.reshape(images * regions, 1, size).to(self.device).float()
        present = torch.zeros(alone.shape[:2], dtype=torch.bool, device=self.device)
        return tower(alone, present).float().cpu().view(images, regions, -1)


def _build_embedding(config: JointEmbeddingConfig, folder: Path) -> JointEmbedding:
    if config.text_encoder != PRETRAINED:
        return JointEmbedding(config)
    try:
        described = json.loads((folder / TEXT_ENCODER / CONFIG).read_text(encoding="utf-8"))
        for name, value in described.items():  # would be built one by one until the memory is full
            if "layer" in name and type(value) is int and value > _MOST_LAYERS:
                raise ValueError(f"{CONFIG} has {value} as {name}")
        return JointEmbedding(config, build_pretrained_encoder(str(folder / TEXT_ENCODER)))
    except InputError:
        raise
    except Exception as error:  # sizes that don't fit one another fail in many ways
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{folder / TEXT_ENCODER} should describe a text encoder, but none can be built from it: {reason}. "
            "Export the retriever again."
        ) from error


def _check_architecture(config: JointEmbeddingConfig) -> None:
    """Refuse what no training wrote: other types, sizes that are negative or beyond any model."""
    known = {"text_encoder": (*WORD_ENCODERS, PRETRAINED), "image_pooling": ("linear", "weldon")}
    for field in fields(config):
        value = getattr(config, field.name)
        sound = type(value) is field.type or (field.type is float and type(value) is int)
        if sound and field.type is int:
            sound = 0 <= value <= (_MOST_LAYERS if field.name == "sru_layers" else _LARGEST_SIZE)
        if sound and field.type is float:
            sound = 0 <= value < 1
        if not sound or value not in known.get(field.name, (value,)):
            raise ValueError(f"its architecture has {value!r:.80} as {field.name}")


def load_weights(embedding: JointEmbedding, state: dict[str, Tensor], origin: str, assign: bool = False) -> None:
    """Put weights into both towers; all of them must fit.

    Args:
        assign: take the tensors themselves instead of copying their numbers.

    Raises:
        InputError: weights are missing, too many, or of another shape.
    """
    try:
        embedding.load_state_dict(state, assign=assign)
    except RuntimeError as error:
        reason = "; ".join(line.strip()[:300] for line in str(error).splitlines()[1:4])
        raise InputError(
            f"{origin} should hold exactly the weights of this retriever, but doesn't: {reason}"
        ) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """All weights of a retriever.

    Raises:
        InputError: they can't be read, or aren't finite.
    """
    try:
        weights = load_file(path)
    except Exception as error:  # OSError and SafetensorError, but also KeyError for a type that torch doesn't have
        raise InputError(f"{path} should hold a retriever's weights, but can't be read: {error}.") from error
    for name, weight in weights.items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise InputError(f"{path} should hold finite weights, but {name} has NaN or infinity. Export it again.")
    return weights


def split_image_network(state: dict[str, Tensor]) -> "tuple[dict[str, Tensor], ImageNetwork | None]":
    """Take the image network, if there is one, out of a retriever's weights.

    Raises:
        InputError: its weights don't fit.
    """
    own = {name.removeprefix(IMAGE_NETWORK): state[name] for name in state if name.startswith(IMAGE_NETWORK)}
    rest = {name: weight for name, weight in state.items() if not name.startswith(IMAGE_NETWORK)}
    if not own:
        return rest, None
    from ..features.image_network import restore_image_network

    return rest, restore_image_network(own)


def save_retriever(
    folder: Path, embedding: JointEmbedding, tokenizer: Any, signature: str, image_network: "ImageNetwork | None" = None
) -> None:
    """Write a retriever's folder; `config.json` comes last, so an interrupted export isn't mistaken for a whole one.

    Raises:
        InputError: the folder can't be written, or holds something else.
    """
    try:
        begin_folder(folder)
        if embedding.config.text_encoder == PRETRAINED:
            tokenizer.save(folder / TEXT_ENCODER)
            embedding.text.encoder.model.config.save_pretrained(folder / TEXT_ENCODER)
        else:
            tokenizer.save(folder)
        weights = {name: weight.contiguous() for name, weight in embedding.state_dict().items()}
        if image_network is not None:
            own = image_network.state_dict()
            weights |= {IMAGE_NETWORK + name: weight.contiguous() for name, weight in own.items()}
        (folder / WEIGHTS).write_bytes(save(weights))  # safetensors' own save_file would let only the owner read it
        description = {
            "format": RETRIEVER,
            "version": VERSION,
            "architecture": asdict(embedding.config),
            "signature": signature,
        }
        write_json(folder / CONFIG, description)
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}.") from error


def sha256_of_retriever(folder: Path) -> str:
    """Digest of the names and contents of the files that `save_retriever` wrote."""
    named = [folder / name for name in (CONFIG, WEIGHTS, DICTIONARY)]
    digest = hashlib.sha256()
    for path in sorted(path for path in [*named, *(folder / TEXT_ENCODER).rglob("*")] if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{sha256_of_file(path)}\n".encode())
    return digest.hexdigest()
