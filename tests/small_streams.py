"""Small models that read text and regions as one stream, and their inputs."""

from argparse import Namespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from visual_grounding.text.tokenizer_bridge import MASK

SIZE, LABELS = 6, 5
LANGUAGES = ["de", "en", "fr"]
SIZES = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 32, "encoder_attention_heads": 2}


class StreamTask:
    """As much of a task as `vtlm` asks for."""

    def __init__(self, image_feature_size: int = SIZE, image_labels: int = LABELS) -> None:
        self.source_dictionary = self.target_dictionary = Dictionary()
        for word in (*"abcdefgh", MASK):
            self.source_dictionary.add_symbol(word)
        self.stream_languages = LANGUAGES
        self.image_feature_size, self.image_labels = image_feature_size, image_labels
        self.cfg = Namespace(image_features="features/some")


def build_vtlm(task: Any = None, **flags: object) -> Any:
    """A small `vtlm` of random weights, without dropout."""
    torch.manual_seed(1)
    args = Namespace(arch="vtlm_tiny", max_source_positions=12, **{**SIZES, **flags})
    ARCH_CONFIG_REGISTRY["vtlm_tiny"](args)
    return ARCH_MODEL_REGISTRY["vtlm_tiny"].build_model(args, task or StreamTask()).eval()


class TranslationTask(StreamTask):
    """As much of a task as `vtlm_translation` asks for; `<mask>` is one of its words, as in pre-training, or isn't."""

    def __init__(self, image_feature_size: int = SIZE, mask: bool = True, languages: str = "en-de") -> None:
        super().__init__(image_feature_size)
        del self.stream_languages, self.image_labels
        if not mask:
            self.source_dictionary = self.target_dictionary = Dictionary()
            for word in "abcdefgh":
                self.source_dictionary.add_symbol(word)
        source, target = languages.split("-")
        self.cfg = Namespace(image_features="features/some", data="bin", source_lang=source, target_lang=target)


def build_translation(task: Any = None, preset: str = "vtlm_translation_tiny", **flags: object) -> Any:
    """A small `vtlm_translation`; of the sizes of `build_vtlm`."""
    torch.manual_seed(3)
    decoder = {name.replace("encoder", "decoder"): value for name, value in SIZES.items()}
    positions = {"max_source_positions": 12, "max_target_positions": 12}
    args = Namespace(arch=preset, **{**SIZES, **decoder, **positions, **flags})
    ARCH_CONFIG_REGISTRY[preset](args)
    return ARCH_MODEL_REGISTRY[preset].build_model(args, task or TranslationTask()).eval()


def translation_inputs() -> dict[str, torch.Tensor]:
    """Two sentences, the second one padded on the left, as fairseq pads sources."""
    return {
        "src_tokens": torch.tensor([[4, 5, 6, 2], [1, 7, 8, 2]]),
        "src_lengths": torch.tensor([4, 3]),
        "prev_output_tokens": torch.tensor([[2, 4, 5], [2, 6, 1]]),
    }


def stream_inputs(pad: int = 1) -> dict[str, torch.Tensor]:
    """Two pairs of sentences, the second one shorter."""
    return {
        "tokens": torch.tensor([[2, 4, 5, 2, 2, 6, 2], [2, 7, 2, 2, 8, 2, pad]]),
        "positions": torch.tensor([[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 0, 1, 2, 0]]),
        "languages": torch.tensor([[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 2, 2, 2, 0]]),
    }


def region_inputs(masked: bool = True) -> dict[str, torch.Tensor]:
    """Two images of two regions for each; the second sentence has one region in all."""
    generator = torch.Generator().manual_seed(2)
    visual = {
        "features": torch.randn(2, 2, 2, SIZE, generator=generator).half(),
        "padding_mask": torch.tensor([[[0, 0], [0, 1]], [[0, 1], [1, 1]]]).bool(),
        "boxes": torch.rand(2, 2, 2, 4, generator=generator),
    }
    if masked:
        visual["masked"] = torch.tensor([[[0, 1], [0, 0]], [[1, 0], [0, 0]]]).bool()
    return visual
