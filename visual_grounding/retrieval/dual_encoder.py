"""A pretrained CLIP or SigLIP as retriever, without any training: its text tower, beside a store of its image vectors.

`extract --backbone clip:NAME --pool own` computes the image vectors, once; `export --dual-encoder NAME` puts the text
tower, its tokenizer and the image tower's digest into a retriever folder, and `index` and `retrieve` use that as any.
"""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from ..errors import InputError, first_line
from ..features.backbones.dual_encoder_towers import FAMILIES
from ..storage.signature import signature
from ..storage.weights import read_weights
from ..text.pretrained_tokenizer import count_known_pieces, load_tokenizer, refuse_many_layers
from .retriever import Retriever
from .retriever_folder import CONFIG, TEXT_ENCODER, WEIGHTS, Description, write_retriever, write_weights
from .trained_towers import load_towers

KIND = "dual_encoder"
_AGAIN = "Make it again with: visual-grounding export --dual-encoder NAME --out DIR"


@dataclass(frozen=True)
class DualEncoderConfig:
    """What decides both towers; kept in the retriever's `config.json`.

    Attributes:
        dual_encoder: the family, "clip" or "siglip".
        joint_size: D, of both towers' vectors.
        max_tokens: longer sentences are cut here.
        pads_text: whether every sentence is filled up to `max_tokens`, as SigLIP's were in training.
        masks_padding: whether the text tower is told which tokens are padding.
        image_weights: digest of the image tower, as the feature store names its weights.
    """

    dual_encoder: str
    joint_size: int
    max_tokens: int
    pads_text: bool
    masks_padding: bool
    image_weights: str

    @property
    def image_features(self) -> str:
        """What the signature of its own image vectors says, whatever the tower's name and the size of the pictures."""
        return signature("extract", weights=self.image_weights, pool="own")


class DualEncoderRetriever(Retriever):
    """Sentences through the text tower, images as they come from the store; both to unit length.

        cos(t, v) = <t, v> / (|t| |v|)     as in the model's own logits, before their scale and bias, which don't rank

    Args:
        folder, description, tokenizer, device: as `Retriever`.
        config: what decides both towers.
        text: the text tower.
    """

    features_may_differ_in = ("backbone", "preprocessing", "grid", "precision")

    def __init__(
        self,
        folder: Path,
        description: Description,
        tokenizer: "DualEncoderTokenizer",
        config: DualEncoderConfig,
        text: nn.Module,
        device: str,
    ) -> None:
        described = replace(description, image_features=config.image_features)
        super().__init__(folder, described, tokenizer, config.joint_size, config.joint_size, device=device)
        self.config = config
        self.text = text.to(device).eval()

    @classmethod
    def open(cls, folder: Path, description: Description, device: str) -> "DualEncoderRetriever":
        """Load what `save_dual_encoder` wrote.

        Raises:
            InputError: the folder isn't whole.
        """
        import transformers

        weights = read_weights(folder / WEIGHTS, finite=True, remedy=_AGAIN)
        try:
            config = DualEncoderConfig(**description.architecture)
            for field in fields(config):
                if type(getattr(config, field.name)) is not field.type:
                    raise ValueError(f"its config.json has {getattr(config, field.name)!r:.80} as {field.name}")
            text_class = getattr(transformers, FAMILIES[config.dual_encoder].text_tower)
            refuse_many_layers(folder / TEXT_ENCODER)
            sizes = text_class.config_class.from_pretrained(str(folder / TEXT_ENCODER))
            if not 0 < config.max_tokens <= sizes.max_position_embeddings:
                raise ValueError(
                    f"its config.json has {config.max_tokens} max_tokens, its text tower "
                    f"{sizes.max_position_embeddings} positions"
                )
            tokenizer = load_tokenizer(str(folder / TEXT_ENCODER))
        except Exception as error:  # broken files of a configuration or a tokenizer fail in many ways
            raise InputError(
                f"{folder} should hold a whole dual encoder, but doesn't: {first_line(error)}. {_AGAIN}"
            ) from error
        what = f"the text tower of a {config.dual_encoder}"
        text = load_towers(lambda: text_class(sizes), weights, folder, what, _AGAIN, f"{TEXT_ENCODER}/{CONFIG}")
        wrapped = DualEncoderTokenizer(tokenizer, config.max_tokens, config.pads_text)
        return cls(folder, description, wrapped, config, text, device)

    def embed_text(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of sentences; 0 for one without a token.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D) float32
        """
        absent = padding_mask.all(dim=1, keepdim=True)
        options: dict[str, Tensor] = {}
        if self.config.masks_padding:
            padding = tokens == self.tokenizer.pad if self.config.pads_text else padding_mask
            options["attention_mask"] = (~padding | absent).long()
        found = self.text(input_ids=tokens, **options)
        vectors = getattr(found, FAMILIES[self.config.dual_encoder].text_output)
        return functional.normalize(vectors.float(), dim=-1).masked_fill(absent, 0.0)

    def embed_images(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of images; 0 for one without a region.

        Shapes:
            features: (B, 1, D);  padding_mask: (B, 1)
            returns: (B, D) float32
        """
        vectors = functional.normalize(features[:, 0], dim=-1)
        return vectors.masked_fill(padding_mask.all(dim=1, keepdim=True), 0.0)


class DualEncoderTokenizer:
    """The text tower's own tokenizer.

    Attributes:
        pad: number of the padding token.
        max_tokens: longer sentences are cut here, the closing symbol kept.
    """

    def __init__(self, tokenizer: Any, max_tokens: int, pads_text: bool) -> None:
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.pads_text = pads_text
        self.pad: int = tokenizer.pad_token_id or 0

    def encode(self, texts: list[str]) -> tuple[list[list[int]], int]:
        """Numbers of each sentence's tokens, and how many sentences were cut."""
        if not texts:
            return [], 0
        cut = sum(len(tokens) > self.max_tokens for tokens in self.tokenizer(texts, verbose=False)["input_ids"])
        padding = "max_length" if self.pads_text else False
        options = {"truncation": True, "max_length": self.max_tokens, "padding": padding}
        return self.tokenizer(texts, **options)["input_ids"], cut

    def count_known(self, tokens: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """`count_known_pieces` of each sentence.

        Shapes:
            returns: pieces (S,), known pieces (S,)
        """
        return count_known_pieces(self.tokenizer, tokens)


def save_dual_encoder(folder: Path, config: DualEncoderConfig, text: Any, tokenizer: Any, signature: str) -> None:
    """Write a retriever's folder.

    Args:
        folder: its place; an older retriever there is replaced.
        config: what decides both towers.
        text: the text tower, from transformers.
        tokenizer: its tokenizer, from transformers.
        signature: how it was made.

    Raises:
        InputError: the folder can't be written, or holds something else.
    """

    def write_files(beside: Path) -> None:
        tokenizer.save_pretrained(beside / TEXT_ENCODER)
        text.config.save_pretrained(beside / TEXT_ENCODER)
        write_weights(beside, text.state_dict())

    write_retriever(folder, Description(KIND, asdict(config), signature, config.image_features), write_files)
