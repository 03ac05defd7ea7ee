"""One stream of text and regions through one transformer encoder, as in XLM (VTLM §2.2): text first, regions last."""

from collections.abc import Sequence
from typing import Optional

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from fairseq.modules import LayerNorm
from torch import Tensor, nn

from ..errors import InputError
from ..modules.region_embedding import RegionEmbedding
from .visual_model import features_of

NORM_EPS = 1e-12  # of the norm after the embeddings; a sum of three N(0, 1/D) is small


class LanguageEmbedding(nn.Module):
    """One vector a language. It has its weights by the languages' names, so a checkpoint says which ones it knows.

    Args:
        languages: their names, in the order of their numbers.
        size: D.

    Raises:
        InputError: a name that weights can't have.
    """

    def __init__(self, languages: Sequence[str], size: int) -> None:
        super().__init__()
        for language in languages:
            if not language or "." in language:
                raise InputError(f"a language should have a name without a full stop, but one is {language!r}.")
            vector = nn.Parameter(torch.empty(size))
            nn.init.normal_(vector, std=size**-0.5)
            self.register_parameter(f"language_{language}", vector)

    def forward(self, numbers: Tensor) -> Tensor:
        """numbers (B, L) -> (B, L, D)."""
        return nn.functional.embedding(numbers, torch.stack(list(self.parameters())))


def embedding_of(count: int, size: int, pad: Optional[int] = None) -> nn.Embedding:
    """Vectors from N(0, 1/D), as in XLM; that of padding is 0."""
    embedding = nn.Embedding(count, size, pad)
    nn.init.normal_(embedding.weight, std=size**-0.5)
    if pad is not None:
        nn.init.zeros_(embedding.weight[pad])
    return embedding


class VisualStream(TransformerEncoderBase):
    """Text and regions in one sequence, each position of which attends to all.

        text:    dropout(LayerNorm(word + position + language))
        regions: `RegionEmbedding`
        then the layers of fairseq's transformer encoder over both

    fairseq's layers hand their attention to torch's `multi_head_attention_forward` without asking for weights, which
    computes it by `scaled_dot_product_attention`, so by its fused kernels. The padding mask is always given: to ask
    whether there is padding, as fairseq's encoder does, a GPU would have to be waited for.

    Embeddings are XLM's, whatever fairseq's flags of embeddings say: learned positions that begin with 0 in each
    sentence, no scale, and the norm.

    Args:
        cfg: sizes as those of fairseq's encoder.
        dictionary: V words.
        languages: names of the languages, in the order of their numbers.
        feature_size: F; 0 for text alone, without any weights for regions.
        region_dropout: of embedded regions.

    Raises:
        InputError: `--encoder-embed-path` or `--no-token-positional-embeddings`, which would do nothing.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Dictionary,
        languages: Sequence[str],
        feature_size: int = 0,
        region_dropout: float = 0.1,
    ) -> None:
        for flag, value in (
            ("--encoder-embed-path", cfg.encoder.embed_path),
            ("--no-token-positional-embeddings", cfg.no_token_positional_embeddings),
        ):
            if value:
                raise InputError(f"a stream of text and regions has no {flag}: leave it out.")
        size = cfg.encoder.embed_dim
        super().__init__(cfg, dictionary, embedding_of(len(dictionary), size, dictionary.pad()))
        self.feature_size = feature_size
        self.embed_positions = embedding_of(cfg.max_source_positions, size)
        self.embed_languages = LanguageEmbedding(languages, size)
        self.layernorm_embedding = LayerNorm(size, eps=NORM_EPS)
        self.image_embedding = RegionEmbedding(feature_size, size, region_dropout) if feature_size else None

    def max_positions(self) -> int:
        """Positions that a sentence may have, with `</s>` on both sides."""
        return self.max_source_positions

    def embed_text(self, tokens: Tensor, positions: Tensor, languages: Tensor) -> Tensor:
        """Words as positions of the stream.

        Shapes:
            tokens, positions, languages: (B, L)
            returns: (B, L, D)
        """
        embedded = self.embed_tokens(tokens) + self.embed_positions(positions) + self.embed_languages(languages)
        return self.dropout_module(self.layernorm_embedding(embedded))

    def embed_regions(
        self, visual: Optional[dict[str, Tensor]], mask: Optional[int] = None
    ) -> Optional[tuple[Tensor, Tensor]]:
        """Regions as positions of the stream; None without images, or where the model knows none.

        Args:
            visual: the images of the batch.
            mask: number of the word whose embedding stands for masked regions.

        Shapes:
            visual: as docs/architecture.md, with boxes, and masked (B, N, R) where regions are masked
            returns: (B, M, D);  (B, M), True = absent

        Raises:
            InputError: features of another size, or regions without boxes.
        """
        if visual is None or self.image_embedding is None:
            return None
        found = features_of(visual, self.feature_size)
        if found is None:
            return None
        features, absent = found
        if "boxes" not in visual:
            raise InputError(
                "regions enter the model with their boxes, but the feature store has none. Give --image-features a "
                "store with boxes; docs/regions.md says how to make one."
            )
        features, boxes = features.flatten(1, 2), visual["boxes"].flatten(1, 2)  # (B, M, F), (B, M, 4)
        if mask is None or "masked" not in visual:
            return self.image_embedding(features, boxes), absent.flatten(1)
        masked, vector = visual["masked"].flatten(1), self.embed_tokens.weight[mask]  # (B, M), (D,)
        return self.image_embedding(features, boxes, masked, vector), absent.flatten(1)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        languages: Tensor,
        visual: Optional[dict[str, Tensor]] = None,
        mask: Optional[int] = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """States of all positions, those of the text first; which are padding or absent; and of the regions alone.

        Shapes:
            tokens, positions, languages: (B, L);  visual: as `embed_regions`
            returns: (L + M, B, D) time first;  (B, L + M), True = padding or absent;  (B, M)

        Raises:
            InputError: as `embed_regions`.
        """
        x, padding_mask = self.embed_text(tokens, positions, languages), tokens == self.padding_idx
        region_padding_mask = padding_mask[:, :0]
        regions = self.embed_regions(visual, mask)
        if regions is not None:
            region_padding_mask = regions[1]
            x = torch.cat([x, regions[0].to(x.dtype)], dim=1)  # (B, L + M, D)
            padding_mask = torch.cat([padding_mask, region_padding_mask], dim=1)
        x = x.transpose(0, 1)  # (L + M, B, D)
        for layer in self.layers:
            x = layer(x, encoder_padding_mask=padding_mask)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return x, padding_mask, region_padding_mask
