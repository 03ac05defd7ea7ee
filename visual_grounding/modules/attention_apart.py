"""Attention whose keys are text and regions in one sequence: to both at once, and to each of the two apart (VLP §3.3).

H heads of size E; K keys, of which the first L are text and the last M regions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, padding_mask: Tensor, dropout: float = 0.0) -> Tensor:
    """Multi-head attention on what is projected already, by torch's fused kernels.

        ATT(q, k, v) = softmax(q kᵀ / √E) v

    Where every key is masked, the result is exactly 0, and so are its gradients.

    Shapes:
        q: (B, H, U, E);  k, v: (B, H, K, E);  padding_mask: (B, K), True = padding or absent.
        returns: (B, H, U, E)
    """
    if not k.shape[2]:
        return torch.zeros_like(q)
    blind, visible = _visible(padding_mask)
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None, None], dropout_p=dropout)
    return attended.masked_fill(blind[:, None, None, None], 0.0)


def attend_apart(
    q: Tensor, k: Tensor, v: Tensor, padding_mask: Tensor, regions: int, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The same queries once more, to the text alone and to the regions alone, from the same projections (VLP eq. 2).

        h_x = ATT(q, k_x, v_x),    h_v = ATT(q, k_v, v_v)

    x -> the text (words and tags), v -> the regions. Assumption: attention's dropout holds here as everywhere, drawn
    anew; h_x and h_v are the heads side by side, before the output projection.

    Args:
        regions: M.

    Shapes:
        q, k, v, padding_mask: as `attend`, K = L + M.
        returns: h_x, h_v: (B, U, D), D = H·E;  exactly 0 where there is nothing to attend to.
    """
    text = k.shape[2] - regions  # L
    looks = [
        attend(q, k[:, :, part], v[:, :, part], padding_mask[:, part], dropout)
        for part in (slice(0, text), slice(text, None))
    ]
    return side_by_side(looks[0]), side_by_side(looks[1])


def attention_weights(q: Tensor, k: Tensor, padding_mask: Tensor) -> Tensor:
    """What `attend` weighs its values with, in float32; fused kernels don't say. 0 where every key is masked.

    Shapes:
        q: (B, H, U, E);  k: (B, H, K, E);  padding_mask: (B, K), True = padding or absent.
        returns: (B, H, U, K)
    """
    blind, visible = _visible(padding_mask)
    scores = (q * q.shape[3] ** -0.5) @ k.transpose(2, 3)  # (B, H, U, K)
    weights = scores.float().masked_fill(~visible[:, None, None], float("-inf")).softmax(dim=3)
    return weights.masked_fill(blind[:, None, None, None], 0.0)


def side_by_side(heads: Tensor) -> Tensor:
    """Heads one behind the other.

    Shapes:
        heads: (B, H, U, E)
        returns: (B, U, H·E)
    """
    return heads.transpose(1, 2).flatten(2)


def weights_of_columns(weights: Tensor, positions: Tensor) -> Tensor:
    """Attention's weights at chosen keys.

    Shapes:
        weights: (B, U, K);  positions: (B, T) keys, −1 for none, which has weight 0.
        returns: (B, U, T)
    """
    chosen = positions.clamp(min=0).unsqueeze(1).expand(-1, weights.shape[1], -1)  # (B, U, T)
    return weights.gather(2, chosen).masked_fill((positions < 0).unsqueeze(1), 0.0)


def _visible(padding_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (B,) that see nothing, and the keys (B, K) that are seen: softmax over nothing is NaN, so they see all."""
    blind = padding_mask.all(dim=1)
    return blind, ~padding_mask | blind[:, None]
