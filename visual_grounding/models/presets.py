"""Presets: an architecture's sizes under a name of their own, `--arch MODEL_tiny` and so on."""

from argparse import Namespace
from collections.abc import Callable, Mapping

from fairseq.models import register_model_architecture
from fairseq.models.transformer.transformer_legacy import (
    base_architecture,
    transformer_iwslt_de_en,
    transformer_vaswani_wmt_en_de_big,
)

Preset = Callable[[Namespace], None]


def _tiny(args: Namespace) -> None:
    """The small setting that work on Multi30k compares on (4+4 layers, D 128)."""
    for side in ("encoder", "decoder"):
        for name, value in (("embed_dim", 128), ("ffn_embed_dim", 256), ("attention_heads", 4), ("layers", 4)):
            setattr(args, f"{side}_{name}", getattr(args, f"{side}_{name}", value))
    args.dropout = getattr(args, "dropout", 0.3)
    base_architecture(args)


# Of an encoder and a decoder, with images and without.
TRANSFORMER_PRESETS: dict[str, Preset] = {
    "": base_architecture,
    "_tiny": _tiny,
    "_iwslt": transformer_iwslt_de_en,
    "_base": base_architecture,
    "_big": transformer_vaswani_wmt_en_de_big,
}


def register_presets(model_name: str, presets: Mapping[str, Preset]) -> None:
    """Register `--arch <model><suffix>` for every suffix and preset. A flag beats the preset."""
    for suffix, preset in presets.items():
        # A function of its own each: fairseq hands it the namespace and keeps it under the preset's name.
        register_model_architecture(model_name, model_name + suffix)(lambda args, preset=preset: preset(args))
