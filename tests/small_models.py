"""Small models for the tests of architectures."""

from argparse import Namespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

ARCHITECTURES = ("visual_aware_transformer", "gated_fusion_transformer", "selective_attention_transformer")
SIZE = 6


class Task:
    """As much of a task as a model may ask for."""

    def __init__(self, image_feature_size: int = SIZE) -> None:
        self.source_dictionary = self.target_dictionary = Dictionary()
        for word in "abcdefgh":
            self.source_dictionary.add_symbol(word)
        self.image_feature_size = image_feature_size
        self.cfg = Namespace(image_features="features/some")


def build(arch: str, task: Task | None = None, **flags: object) -> torch.nn.Module:
    """A registered architecture with one small layer on each side, where no flag says otherwise."""
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 16}
    return build_preset(arch, task, **{**sizes, "encoder_attention_heads": 2, "decoder_attention_heads": 2, **flags})


def build_preset(arch: str, task: Task | None = None, **flags: object) -> torch.nn.Module:
    """A registered architecture in its own size."""
    torch.manual_seed(1)
    args = Namespace(arch=arch, **flags)
    ARCH_CONFIG_REGISTRY[arch](args)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task or Task())
