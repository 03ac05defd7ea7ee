"""VLP's modality loss: what a decoder gathers from the regions should point where what it gathers from the text points.

For position j of the target, `h_x,j` and `h_v,j` are what the same query found in the text alone and in the regions
alone (`modules/attention_apart.py`), concatenated heads of one decoder layer. Used in training only.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def modality_distance(text: Tensor, regions: Tensor) -> Tensor:
    """One summand of VLP eq. 3 for every position, in float32.

        1 − cos(h_x,j, h_v,j)

    Where one of the two is 0 its direction is unknown, and the cosine counts as 0.

    Shapes:
        text: h_x (B, U, D);  regions: h_v (B, U, D)
        returns: (B, U), between 0 and 2
    """
    return 1 - F.cosine_similarity(text.float(), regions.float(), dim=2)


def counted_positions(target: Tensor, padding: int, region_padding_mask: Tensor) -> Tensor:
    """Positions that the modality loss is summed over: words of the target, in rows that have a region at all.

    Shapes:
        target: (B, U), `padding` where there is no word;  region_padding_mask: (B, M), True = absent.
        returns: (B, U), True = counts
    """
    return target.ne(padding) & ~region_padding_mask.all(dim=1, keepdim=True)


def modality_loss(distance: Tensor, weight: Tensor | float, counted: Tensor) -> Tensor:
    """A layer's part of VLP eq. 4, with a fixed weight, or of its form with one for each token (eq. 5), unsummed.

        λ Σ_j 1 − cos(h_x,j, h_v,j)        Σ_j λ_j (1 − cos(h_x,j, h_v,j))

    Positions that don't count are 0, and so is their gradient. What it is divided by is the criterion's matter.

    Shapes:
        distance: (B, U);  weight: λ_j (B, U), or one number;  counted: (B, U), True = counts.
        returns: (B, U)
    """
    return (weight * distance).masked_fill(~counted, 0.0)


class TokenWeight(nn.Module):
    """How much the modality loss counts for a token (VLP eq. 5), in float32.

        λ_j = sigmoid(w_y · Emb(y_j) + w_x · h_x,j + w_v · h_v,j)

    The three vectors are the same for all layers. Assumption: they begin at 0 (the paper doesn't say), so that every
    token begins with λ = 1/2, close to the paper's fixed 0.4; Emb(y_j) is the decoder's embedding of the token that is
    to be predicted at j.

    The loss falls when λ does, whatever the cosine: that λ doesn't vanish is to be watched.

    Args:
        embedding_size: of Emb(y_j).
        size: D of the decoder.

    Shapes:
        embedded: Emb(y_j) (B, U, D'), D' = embedding_size;  text: h_x (B, U, D);  regions: h_v (B, U, D)
        returns: λ (B, U)
    """

    def __init__(self, embedding_size: int, size: int) -> None:
        super().__init__()
        self.target = nn.Parameter(torch.zeros(embedding_size))  # w_y
        self.text = nn.Parameter(torch.zeros(size))  # w_x
        self.regions = nn.Parameter(torch.zeros(size))  # w_v

    def forward(self, embedded: Tensor, text: Tensor, regions: Tensor) -> Tensor:
        """embedded (B, U, D'), text (B, U, D), regions (B, U, D) -> (B, U)."""
        pairs = ((embedded, self.target), (text, self.text), (regions, self.regions))
        return torch.sigmoid(torch.stack([(x.float() * w.float()).sum(dim=2) for x, w in pairs]).sum(dim=0))
