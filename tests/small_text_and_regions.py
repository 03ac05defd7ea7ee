"""A small model whose decoder attends to text and regions, for the tests of what stands on that decoder."""

from argparse import Namespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from visual_grounding.models.text_and_regions import TextAndRegionsEncoder
from visual_grounding.models.text_and_regions_decoder import TextAndRegionsDecoder, TextAndRegionsModel

D, F = 16, 6


def small_dictionary() -> Dictionary:
    """Eight words, from 4 on."""
    dictionary = Dictionary()
    for word in "abcdefgh":
        dictionary.add_symbol(word)
    return dictionary


class SmallEncoder(TextAndRegionsEncoder):
    """Its text is a mark, then the words; so a word isn't where its column is. Regions are mapped one by one."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__(dictionary)
        self.words = nn.Embedding(len(dictionary), D, dictionary.pad())
        self.mark = nn.Parameter(torch.randn(D))
        self.mix = nn.Linear(D, D)
        self.image_projection = nn.Linear(F, D)

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor | None = None, visual: dict[str, Tensor] | None = None
    ) -> dict[str, list[Tensor]]:
        """src_tokens (B, T), visual as everywhere -> text (1 + T) and regions (N·R)."""
        words = self.words(src_tokens)  # (B, T, D)
        x = torch.cat([self.mark.expand(len(words), 1, -1), words], dim=1)
        padding = src_tokens.eq(self.dictionary.pad())
        positions = torch.arange(1, padding.shape[1] + 1, device=padding.device).expand_as(padding)
        regions_absent = None
        if visual is not None:
            regions_absent = visual["padding_mask"].flatten(1)
            x = torch.cat([x, self.image_projection(visual["features"].to(x.dtype).flatten(1, 2))], dim=1)
        return self.text_and_regions_out(
            torch.tanh(self.mix(x)).transpose(0, 1),
            torch.cat([padding[:, :1] & False, padding], dim=1),
            regions_absent,
            positions.masked_fill(padding, -1),
            src_tokens=[src_tokens],
        )

    def max_positions(self) -> int:
        """Of the source."""
        return 64


def small_config(**flags: Any) -> TransformerConfig:
    """Two layers of two heads on each side."""
    sizes = {"embed_dim": D, "ffn_embed_dim": 24, "attention_heads": 2, "layers": 2}
    named = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    choices = {"decoder_output_dim": D, "decoder_input_dim": D, "dropout": 0.0, "max_target_positions": 64}
    return TransformerConfig.from_namespace(Namespace(**{**named, **choices, **flags}))


def small_words(dictionary: Dictionary) -> nn.Embedding:
    """An embedding of the target's words."""
    return nn.Embedding(len(dictionary), D, dictionary.pad())


def small_model(**flags: Any) -> TextAndRegionsModel:
    """From fixed random weights."""
    torch.manual_seed(1)
    dictionary = small_dictionary()
    decoder = TextAndRegionsDecoder(small_config(**flags), dictionary, small_words(dictionary))
    return TextAndRegionsModel(SmallEncoder(dictionary), decoder)


def small_batch(images: int = 3, regions: int = 2) -> dict[str, Any]:
    """Three sentences: all regions, some, none; padded on the left, as fairseq pads sources."""
    absent = torch.zeros(3, images, regions, dtype=torch.bool)
    absent[1, 1:] = True
    absent[2] = True
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(3, images, regions, F, generator=generator, device="cpu")
    return {
        "src_tokens": torch.tensor([[4, 5, 6, 2], [1, 7, 8, 2], [1, 1, 9, 2]]),
        "src_lengths": torch.tensor([4, 3, 2]),
        "prev_output_tokens": torch.tensor([[2, 4, 5, 6], [2, 6, 7, 1], [2, 8, 1, 1]]),
        "visual": {
            "features": features.to(torch.get_default_device(), torch.float16),
            "padding_mask": absent,
        },
    }
