"""Weldon pooling: an image is its most and its least matching regions, chosen for every channel by itself.

Durand, Thome, Cord: WELDON, CVPR 2016; VA names it for the image side of its retriever (§2.1).
"""

import torch
from torch import Tensor

LIMIT = 15
FULL_FROM = 49
FULL_FROM_BEFORE = 60  # a quarter up to 15 everywhere: the rule of retrievers whose weights don't say one


def pooled_regions(present: Tensor, full_from: Tensor | int = FULL_FROM) -> Tensor:
    """k, how many regions are pooled at each end: 15 from 49 on, below that a quarter of those present, at least 1.

    The reference uses 15 of 49 or more. Assumption: of smaller grids a quarter, and never more than 15.

    >>> pooled_regions(torch.tensor([0, 3, 16, 48, 49, 196])).tolist()
    [1, 1, 4, 12, 15, 15]
    >>> pooled_regions(torch.tensor([49, 59, 60]), full_from=FULL_FROM_BEFORE).tolist()
    [12, 14, 15]

    Shapes:
        present: (B,);  full_from: ()
        returns: (B,)
    """
    return (present // 4).clamp(1, LIMIT).masked_fill(present >= full_from, LIMIT)


def weldon_pool(regions: Tensor, padding_mask: Tensor, full_from: Tensor | int = FULL_FROM) -> Tensor:
    """Mean of the k highest plus mean of the k lowest values of each channel.

        s_d = 1/k sum of top-k_r(x_rd) + 1/k sum of bottom-k_r(x_rd)

    Absent regions take no part; more of them change nothing. An image without regions becomes 0. It is computed in
    float32, under autocast too: in float16 values above 2183 have no sum over 30 regions.

    Args:
        full_from: as `pooled_regions`.

    Shapes:
        regions: (B, R, D);  padding_mask: (B, R), True = absent
        returns: (B, D)
    """
    counts = (~padding_mask).sum(dim=1)  # (B,)
    k = pooled_regions(counts, full_from)
    ordered = regions.masked_fill(padding_mask.unsqueeze(-1), float("-inf")).sort(dim=1, descending=True).values
    position = torch.arange(regions.shape[1], device=regions.device)  # (R,)
    top = position < k.unsqueeze(1)  # (B, R)
    bottom = position >= (counts - k).clamp(min=0).unsqueeze(1)
    real = position < counts.unsqueeze(1)
    wide = torch.promote_types(regions.dtype, torch.float32)
    weights = (top & real).to(wide) + (bottom & real).to(wide)  # (B, R)
    ordered = ordered.masked_fill(~real.unsqueeze(-1), 0.0).to(wide)
    with torch.autocast(regions.device.type, enabled=False):
        pooled = torch.einsum("brd,br->bd", ordered, weights) / k.unsqueeze(1).to(wide)
    return pooled.to(regions.dtype)
