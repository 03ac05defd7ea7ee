"""A pretrained CLIP or SigLIP as retriever, without any training: its text tower, beside a store of its image vectors.

`extract --backbone clip:NAME --pool own` computes the image vectors, once; `export --dual-encoder NAME` puts the text
tower, its tokenizer and the image tower's digest into a retriever folder, and `index` and `retrieve` use that as any.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from ..errors import InputError, first_line
from ..features.backbones.dual_encoder_towers import (
    FAMILIES,
    PREFIX,
    load_image_tower,
    load_pretrained_part,
    load_tower,
    read_config,
)
from ..features.store import FeatureStore
from ..storage.artefact import write_json
from ..storage.signature import signature
from ..storage.weights import sha256_of_state
from .retriever_files import CONFIG, RETRIEVER, TEXT_ENCODER, VERSION, WEIGHTS, begin_folder


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
    def image_feature_size(self) -> int:
        """F: the store has the joint vectors themselves."""
        return self.joint_size

    @property
    def image_pooling(self) -> str:
        """One region."""
        return "linear"


class DualEncoder(nn.Module):
    """Sentences through the text tower, images as they come from the store; both to unit length.

        cos(t, v) = <t, v> / (|t| |v|)     as in the model's own logits, before their scale and bias, which don't rank

    Shapes:
        tokens: (B, T);  token_padding_mask: (B, T)
        features: (B, 1, D);  feature_padding_mask: (B, 1), True = absent
        returns: text (B, D), images (B, D), float32
    """

    def __init__(self, config: DualEncoderConfig, text: nn.Module, pad: int) -> None:
        super().__init__()
        self.config = config
        self.text = text
        self.pad = pad

    def encode_text(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of sentences; a sentence without a token is 0.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D) float32
        """
        absent = padding_mask.all(dim=1, keepdim=True)
        options: dict[str, Tensor] = {}
        if self.config.masks_padding:
            padding = tokens == self.pad if self.config.pads_text else padding_mask
            options["attention_mask"] = (~padding | absent).long()
        found = self.text(input_ids=tokens, **options)
        vectors = getattr(found, FAMILIES[self.config.dual_encoder].text_output)
        return functional.normalize(vectors.float(), dim=-1).masked_fill(absent, 0.0)

    def encode_images(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of images; an image without a region is 0.

        Shapes:
            features: (B, 1, D);  padding_mask: (B, 1)
            returns: (B, D) float32
        """
        vectors = functional.normalize(features[:, 0].float(), dim=-1)
        return vectors.masked_fill(padding_mask.all(dim=1, keepdim=True), 0.0)

    def check_store(self, store: FeatureStore, folder: Path) -> None:
        """Refuse images that aren't this model's own vectors.

        Raises:
            InputError: another network made them, or they are pooled otherwise.
        """
        expected = {"weights": self.config.image_weights, "pool": "own"}
        wrong = {name: store.plan.get(name) for name in expected if store.plan.get(name) != expected[name]}
        if wrong:
            found = ", ".join(f"{name} {'unknown' if value is None else value}" for name, value in wrong.items())
            wanted = ", ".join(f"{name} {expected[name]}" for name in wrong)
            raise InputError(
                f"{store.folder} should hold the image vectors of the dual encoder in {folder} ({wanted}), but has "
                f"{found}. Make them with: visual-grounding extract --backbone {PREFIX}… --pool own --images … --out …"
            )


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


def export_dual_encoder(source: str, folder: Path) -> tuple[DualEncoderConfig, str]:
    """Write a retriever folder; the configuration comes last, so that an interrupted export isn't mistaken for a whole.

    Args:
        source: a name on the hub or a folder, with or without `clip:`.
        folder: to write.

    Returns:
        what the retriever is, and its signature.

    Raises:
        InputError: nothing loads from `source`, it is no dual encoder, or the folder can't be written.
    """
    from transformers import AutoTokenizer

    source = source.removeprefix(PREFIX)
    family, whole = read_config(source)
    images = load_image_tower(PREFIX + source, None, None, 0)
    if not hasattr(whole, "text_config") or images.own is None:
        raise InputError(
            f"{source} should hold both towers of a dual encoder, but its config.json says {whole.model_type}."
        )
    text = load_tower(FAMILIES[family].text_tower, source).eval()
    tokenizer = load_pretrained_part(AutoTokenizer, source, "its tokenizer")
    _check_vocabulary(tokenizer, whole.text_config.vocab_size, source)
    config = _describe(family, whole.text_config, tokenizer, images.weights)
    made = signature(
        "retriever", dual_encoder=family, text=sha256_of_state(text)[:8], images=images.weights[len("sha256-") :][:8]
    )
    try:
        begin_folder(folder)
        tokenizer.save_pretrained(folder / TEXT_ENCODER)
        text.config.save_pretrained(folder / TEXT_ENCODER)
        weights = {name: weight.contiguous() for name, weight in text.state_dict().items()}
        (folder / WEIGHTS).write_bytes(save(weights))
        description = {"format": RETRIEVER, "version": VERSION, "architecture": asdict(config), "signature": made}
        write_json(folder / CONFIG, description)
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}.") from error
    return config, made


def _check_vocabulary(tokenizer: Any, expected: int, source: str) -> None:
    """Where its files are missing, transformers may make a tokenizer that knows nothing."""
    if not 0.9 * expected <= len(tokenizer) <= expected:  # some models embed a few pieces more than there are
        raise InputError(
            f"{source} should have a tokenizer of the {expected} pieces that its text tower embeds, but its tokenizer "
            f"has {len(tokenizer)}. Copy the tokenizer's files too (tokenizer.json, or vocab.json and merges.txt)."
        )


def _describe(family: str, text: Any, tokenizer: Any, image_weights: str) -> DualEncoderConfig:
    return DualEncoderConfig(
        dual_encoder=family,
        joint_size=text.projection_dim if family == "clip" else text.projection_size,
        max_tokens=int(min(tokenizer.model_max_length, text.max_position_embeddings)),
        pads_text=family == "siglip",
        masks_padding="attention_mask" in tokenizer.model_input_names,
        image_weights=image_weights,
    )


def load_dual_encoder(folder: Path, architecture: dict[str, Any]) -> tuple[DualEncoder, DualEncoderTokenizer]:
    """Load what `export_dual_encoder` wrote.

    Raises:
        InputError: the folder isn't whole.
    """
    import transformers

    from .retriever import read_weights

    weights = read_weights(folder / WEIGHTS)
    try:
        config = DualEncoderConfig(**architecture)
        for field in fields(config):
            if type(getattr(config, field.name)) is not field.type:
                raise ValueError(f"its config.json has {getattr(config, field.name)!r:.80} as {field.name}")
        family = FAMILIES[config.dual_encoder]
        text_class = getattr(transformers, family.text_tower)
        text_config = text_class.config_class.from_pretrained(str(folder / TEXT_ENCODER))
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder / TEXT_ENCODER), trust_remote_code=False)
        text = text_class(text_config)
        text.load_state_dict(weights)
    except Exception as error:  # broken files of a configuration or a tokenizer fail in many ways
        raise InputError(
            f"{folder} should hold a whole dual encoder, but doesn't: {first_line(error)}. Make it again with: "
            "visual-grounding export --dual-encoder NAME --out DIR"
        ) from error
    wrapped = DualEncoderTokenizer(tokenizer, config.max_tokens, config.pads_text)
    return DualEncoder(config, text, wrapped.pad), wrapped
