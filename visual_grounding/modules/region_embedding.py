"""Regions of images as positions of a single stream with text: VTLM §2.2 and its reference code, VLP §3.2."""

import torch
from torch import Tensor, nn


class RegionEmbedding(nn.Module):
    """Feature and box of each region, projected into the space of the words.

        e = dropout(ReLU(W_f f + b_f) + ReLU(W_b b + b_b) + l)

    f -> features, b -> boxes, l -> `language`: images are one more language. There is no norm and no position. Where a
    region is masked, the embedding of the word `<mask>` stands instead of ReLU(W_f f + b_f): its box stays visible.

    Deviation: the reference code has boxes as y0 x0 y1 x1, ours are x0 y0 x1 y1, in which W_b's columns change places.

    Args:
        feature_size: F.
        size: D.
        dropout: of the sum.

    Shapes:
        features: (B, M, F) of any precision;  boxes: (B, M, 4)
        masked: (B, M) bool;  mask: (D,), the embedding of the mask word. Without both none is masked
        returns: (B, M, D)
    """

    def __init__(self, feature_size: int, size: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.feature = nn.Linear(feature_size, size)
        self.box = nn.Linear(4, size)
        self.language = nn.Parameter(torch.empty(size))
        nn.init.normal_(self.language, std=size**-0.5)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, features: Tensor, boxes: Tensor, masked: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """features (B, M, F), boxes (B, M, 4), masked (B, M), mask (D,) -> (B, M, D)."""
        projected = self.feature(features.to(self.feature.weight.dtype)).relu()  # a store's are float16
        if masked is not None and mask is not None:
            projected = torch.where(masked.unsqueeze(-1), mask.to(projected.dtype), projected)
        return self.dropout(projected + self.box(boxes.to(self.box.weight.dtype)).relu() + self.language)


class RegionProjection(nn.Module):
    """Feature and place of each region in the space of a BERT's words (VLP §3.2, FFN of eq. 1).

        e = dropout(W [f; b; w; h] + c)

    f -> features, b -> boxes (x0 y0 x1 y1), w, h -> their width and height.

    Assumption: the paper only says that a region's position is concatenated to its feature, and that a feed-forward
    network brings both to the size of the words: one layer here, and no norm.

    Args:
        feature_size: F.
        size: D.
        dropout: of the result, as BERT drops out its embedding.
        deviation: of the first weights, as BERT's own.

    Shapes:
        features: (B, M, F) of any precision;  boxes: (B, M, 4)
        returns: (B, M, D)
    """

    def __init__(self, feature_size: int, size: int, dropout: float, deviation: float = 0.02) -> None:
        super().__init__()
        self.linear = nn.Linear(feature_size + 6, size)
        nn.init.normal_(self.linear.weight, std=deviation)
        nn.init.zeros_(self.linear.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, features: Tensor, boxes: Tensor) -> Tensor:
        """features (B, M, F), boxes (B, M, 4) -> (B, M, D)."""
        place = torch.cat([boxes, boxes[..., 2:] - boxes[..., :2]], dim=-1)  # (B, M, 6)
        dtype = self.linear.weight.dtype  # a store's features are float16
        return self.dropout(self.linear(torch.cat([features.to(dtype), place.to(dtype)], dim=-1)))
