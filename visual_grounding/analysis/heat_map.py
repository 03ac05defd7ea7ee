"""Where in a picture a text is: each cell of a feature grid, projected into the joint space, against the text's vector.

Engilberge et al., Finding Beans in Burgers, CVPR 2018, §3.3, whose way VA follows (§5.1, Fig. 4).
"""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

# The reference takes the 180 largest of 2400 entries; other joint sizes keep that share.
_REFERENCE_CHANNELS, _REFERENCE_SIZE = 180, 2400


def default_channels(joint_size: int) -> int:
    """How many of the text's entries count.

    >>> default_channels(2400), default_channels(256), default_channels(4)
    (180, 19, 1)
    """
    return max(1, round(joint_size * _REFERENCE_CHANNELS / _REFERENCE_SIZE))


def heat_map(cells: Tensor, text: Tensor, channels: int) -> Tensor:
    """How well each cell matches a text.

        H_i = sum over u in K(v) of v_u G'_iu

    v -> text, G' -> cells, K(v) -> the `channels` largest entries of v. With all of them it is the inner product.

    Deviation: the reference multiplies with |v_u|. That is the same as long as the chosen entries are positive; where
    they aren't, a cell would match better the less it agrees.

    Shapes:
        cells: (..., R, D), projected but not normalised;  text: (..., D)
        returns: (..., R)
    """
    largest = text.topk(channels, dim=-1)
    weights = torch.zeros_like(text).scatter(-1, largest.indices, largest.values)  # (..., D)
    return (cells * weights.unsqueeze(-2)).sum(dim=-1)


def upsample(grid: Tensor, height: int, width: int) -> Tensor:
    """Stretch a map over a picture, bilinearly between the centres of its cells.

    Shapes:
        grid: (n, n)
        returns: (height, width)
    """
    return interpolate(grid[None, None].float(), (height, width), mode="bilinear", align_corners=False)[0, 0]


def peak(grid: Tensor) -> tuple[float, float]:
    """Where the upsampled map is highest: x and y in 0..1 of the square, from its top left.

    Bilinear values lie between those of the cells, so that is the middle of the highest cell, the first one of equals.
    (The reference takes a cell's corner.)

    >>> peak(torch.tensor([[0.0, 0.0], [3.0, 1.0]]))
    (0.25, 0.75)

    Shapes:
        grid: (n, n)
    """
    side = grid.shape[-1]
    row, column = divmod(int(grid.argmax()), side)
    return (column + 0.5) / side, (row + 0.5) / side


def stretch(grid: Tensor) -> Tensor:
    """Move the lowest value to 0 and the highest to 1, for the eye; a map without differences becomes 0.

    Shapes:
        grid: any
        returns: the same
    """
    low, high = grid.min(), grid.max()
    return (grid - low) / (high - low) if high > low else torch.zeros_like(grid)
