"""Selective attention: each token picks its regions, a gate decides how much of them it takes.

Li et al. 2022, "On Vision Features in Multimodal Machine Translation", §3.
"""

import torch
from torch import Tensor, nn

from .visual_attention import TextToImageAttention


class SelectiveAttention(nn.Module):
    """Attend to the regions, then interpolate.

        H_a = softmax(Q K^T / √d) V,   Q from H, K and V from the regions
        λ   = sigmoid(U H + V H_a)
        H^  = (1 − λ) H + λ H_a

    H -> text. The original uses one head. With no image present λ is 0 and H^ is H.

    Shapes:
        text: (T, B, D);  images: (B, M, D);  image_padding_mask: (B, M), True = absent. None: no images at all.
        returns: (T, B, D)
    """

    def __init__(self, size: int, heads: int = 1, attention_dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = TextToImageAttention(size, heads, attention_dropout)
        self.text_gate = nn.Linear(size, size)
        self.image_gate = nn.Linear(size, size, bias=False)

    def forward(self, text: Tensor, images: Tensor | None, image_padding_mask: Tensor | None) -> Tensor:
        """text (T, B, D), images (B, M, D), image_padding_mask (B, M) -> (T, B, D)."""
        if images is None or image_padding_mask is None:
            return text
        attended = self.attention(text, images, image_padding_mask)  # (T, B, D)
        gate = torch.sigmoid(self.text_gate(text) + self.image_gate(attended))
        gate = gate.masked_fill(image_padding_mask.all(dim=1)[None, :, None], 0.0)
        return (1 - gate) * text + gate * attended
