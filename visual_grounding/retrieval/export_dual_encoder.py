"""A retriever's folder from a pretrained CLIP or SigLIP, without any training."""

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..features.backbones.dual_encoder_towers import (
    FAMILIES,
    PREFIX,
    load_image_tower,
    load_tower,
    read_config,
)
from ..storage.signature import signature
from ..storage.weights import sha256_of_state
from ..text.pretrained_tokenizer import check_vocabulary, load_tokenizer
from .dual_encoder import DualEncoderConfig, save_dual_encoder
from .export import Exported


def export_dual_encoder(source: str, folder: Path) -> Exported:
    """Write the text tower of a CLIP or SigLIP as a retriever of that model's own image vectors.

    Args:
        source: a name on the hub or a folder, with or without `clip:`.
        folder: to write; an older retriever there is replaced.

    Raises:
        InputError: nothing loads from `source`, it is no dual encoder, or the folder can't be written.
    """
    source = source.removeprefix(PREFIX)
    family, whole = read_config(source)
    images = load_image_tower(PREFIX + source, None, None, 0)
    if not hasattr(whole, "text_config") or images.own is None:
        raise InputError(
            f"{source} should hold both towers of a dual encoder, but its config.json says {whole.model_type}."
        )
    text = load_tower(FAMILIES[family].text_tower, source).eval()
    tokenizer = load_tokenizer(source)
    check_vocabulary(len(tokenizer), whole.text_config.vocab_size, source)
    config = _describe(family, whole.text_config, tokenizer, images.weights)
    digests = {"text": sha256_of_state(text)[:8], "images": images.weights[len("sha256-") :][:8]}
    made = signature("retriever", dual_encoder=family, **digests)
    save_dual_encoder(folder, config, text, tokenizer, made)
    sizes = f"joint size {config.joint_size}, sentences of up to {config.max_tokens} tokens"
    return Exported(f"{family} text tower, {sizes}", made, True)


def _describe(family: str, text: Any, tokenizer: Any, image_weights: str) -> DualEncoderConfig:
    return DualEncoderConfig(
        dual_encoder=family,
        joint_size=text.projection_dim if family == "clip" else text.projection_size,
        max_tokens=int(min(tokenizer.model_max_length, text.max_position_embeddings)),
        pads_text=family == "siglip",
        masks_padding="attention_mask" in tokenizer.model_input_names,
        image_weights=image_weights,
    )
