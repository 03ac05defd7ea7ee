"""Attention from text to images, and the fusion layer of visual-aware representations (VA §2.3, §2.4)."""

import torch.nn.functional as F
from torch import Tensor, nn

from .attention_apart import attention_weights
from .standardisation import BatchStandardisation


class ImageProjection(nn.Module):
    """Turn image features into vectors of the model's size: the feed-forward layer of VA §2.3.

        M = W v + b                          ffn_size = 0
        M = W_2 ReLU(W_1 v + b_1) + b_2      ffn_size > 0

    Assumption: the paper says "a feed forward layer" and no more; we take one linear layer, and let a flag make it two.

    Args:
        feature_size: F.
        size: D.
        ffn_size: hidden size of the feed-forward layer; 0 for a single linear layer.
        dropout: on the features and on the result, so that a model doesn't learn single images by heart.
        standardise: bring every feature to mean 0 and variance 1 first (batch normalisation without weights). Features
            whose common part is much larger than what tells images apart are otherwise learned late or never.

    Shapes:
        features: (B, N, R, F) of any float dtype;  padding_mask: (B, N, R), True = absent.
        returns: (B, N·R, D), the regions of an image side by side.
    """

    def __init__(
        self, feature_size: int, size: int, ffn_size: int = 0, dropout: float = 0.0, standardise: bool = False
    ) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.standardise = BatchStandardisation(feature_size) if standardise else None
        self.hidden = nn.Linear(feature_size, ffn_size) if ffn_size else None
        self.output = nn.Linear(ffn_size or feature_size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """features (B, N, R, F), padding_mask (B, N, R) -> (B, N·R, D)."""
        x = features.flatten(1, 2)  # (B, N·R, F)
        if self.standardise is not None:
            x = self.standardise(x.float(), ~padding_mask.flatten(1, 2))
        x = x.to(self.output.weight.dtype)
        x = self.dropout(x)
        if self.hidden is not None:
            x = F.relu(self.hidden(x))
        return self.dropout(self.output(x))


class TextToImageAttention(nn.Module):
    """Multi-head attention with text queries, image keys and values: `ATT(H, K_M, V_M)` of VA eq. 2.

    A sentence without an image attends to nothing: its result is exactly 0, whatever stands in the image tensor.

    Shapes:
        text: (T, B, D)  time first, as in fairseq's encoder layers.
        images: (B, M, D), M = N·R;  image_padding_mask: (B, M), True where there is no image.
        returns: (T, B, D)

    Raises:
        ValueError: D isn't a multiple of `heads`, or `images` and `text` disagree on B or D.
    """

    def __init__(self, size: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or size % heads:
            raise ValueError(
                f"the model size must be a multiple of the attention heads, but {size} isn't one of {heads}"
            )
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.output = nn.Linear(size, size)
        for layer in (self.query, self.key, self.value, self.output):  # as fairseq initialises its own attention
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, text: Tensor, images: Tensor, image_padding_mask: Tensor) -> Tensor:
        """text (T, B, D), images (B, M, D), image_padding_mask (B, M) -> (T, B, D)."""
        if images.shape[0] != text.shape[1] or images.shape[2] != text.shape[2]:
            raise ValueError(f"text (T, B, D) {tuple(text.shape)} and images (B, M, D) {tuple(images.shape)} disagree")
        blind = image_padding_mask.all(dim=1)  # (B,)
        # Softmax over nothing is NaN, so blind sentences look everywhere and their result is thrown away.
        visible = ~image_padding_mask | blind[:, None]  # (B, M)
        q = self._heads(self.query, text.transpose(0, 1))  # (B, H, T, D/H)
        k, v = self._heads(self.key, images), self._heads(self.value, images)  # (B, H, M, D/H)
        attended = F.scaled_dot_product_attention(
            q, k, v, attn_mask=visible[:, None, None, :], dropout_p=self.dropout if self.training else 0.0
        )  # (B, H, T, D/H)
        result = self.output(attended.transpose(1, 2).flatten(2))  # (B, T, D)
        return result.masked_fill(blind[:, None, None], 0.0).transpose(0, 1)

    def weights(self, text: Tensor, images: Tensor, image_padding_mask: Tensor) -> Tensor:
        """How much each token looks at each image, which the fused kernels of `forward` don't say.

        Shapes:
            text: (T, B, D);  images: (B, M, D);  image_padding_mask: (B, M), True where there is no image.
            returns: (B, H, T, M) in float32, without dropout; 0 for a sentence without an image
        """
        q, k = self._heads(self.query, text.transpose(0, 1)), self._heads(self.key, images)
        return attention_weights(q, k, image_padding_mask)

    def _heads(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """x (B, L, D), projected -> (B, H, L, D/H)."""
        return layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]


class VisualAttention(nn.Module):
    """Let every token look at the images of its sentence.

        H'  = ATT(H, K_M, V_M)               (VA eq. 2)
        H^  = LayerNorm(W (H + H') + b)      (VA eq. 3)

    H -> text, M -> images. With no image present H' is 0, so the text passes through W and the norm alone.

    Shapes:
        text: (T, B, D)  time first, as in fairseq's encoder layers.
        images: (B, M, D), M = N·R;  image_padding_mask: (B, M), True where there is no image. None: no images at all.
        returns: (T, B, D)

    Raises:
        ValueError: `images` and `text` disagree on B or D.
    """

    def __init__(self, size: int, heads: int, attention_dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = TextToImageAttention(size, heads, attention_dropout)
        self.output = nn.Linear(size, size)
        # Assumption: W starts as the identity, b at 0 (the paper doesn't say), so that the decoder first sees what the
        # text encoder made. From random numbers the same model learned more slowly than its text-only twin.
        nn.init.eye_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.norm = nn.LayerNorm(size)

    def forward(self, text: Tensor, images: Tensor | None, image_padding_mask: Tensor | None) -> Tensor:
        """text (T, B, D), images (B, M, D), image_padding_mask (B, M) -> (T, B, D)."""
        if images is None or image_padding_mask is None:
            return self.norm(self.output(text))
        return self.norm(self.output(text + self.attention(text, images, image_padding_mask)))
