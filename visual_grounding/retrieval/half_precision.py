"""A scan in half precision: where it's fast, what it may be wrong by, and when it isn't worth it.

Scans find candidates, which are scored again exactly (search.py, nearest.py): so the precision never changes what is
found, if what it may be wrong by is reckoned with. What it can't tell is scanned again in float32.
"""

from collections import Counter

import torch
from torch import Tensor

from .products import rounding_error

HALF = {torch.bfloat16, torch.float16}
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 0.0}  # of a score that is written
SMALLEST = {torch.bfloat16: 2.0**-100, torch.float16: 2.0**-24, torch.float32: 2.0**-100}  # what may be lost as 0
_LONG = {torch.bfloat16: 2.0**20, torch.float16: 2.0**7}  # vectors that may be too long to multiply
_TRIED = 1000  # queries after which it's clear whether half precision is worth it


def fast_precision(device: torch.device) -> torch.dtype:
    """What a device multiplies fastest, among what a scan may be in."""
    if device.type == "cuda":
        return torch.float16  # has tensor cores, and scores of half the size: memory is what a scan there waits for
    # Without such instructions a product in bfloat16 goes by way of float32.
    has = (getattr(torch.cpu, name, lambda: False) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return torch.bfloat16 if torch.backends.mkldnn.is_available() and any(each() for each in has) else torch.float32


class Precisions:
    """In what a collection is scanned, one after the other: what one can't tell is left to the next.

    Half precision is given up where most queries need float32 all the same: images that are much alike.

    Args:
        first: bfloat16, float16 or float32.

    Attributes:
        asked: queries that were scanned in each precision.
        undecided: of these, how many the scan left to the next.
    """

    def __init__(self, first: torch.dtype) -> None:
        self._scans = list(dict.fromkeys([first, torch.float32]))
        self.asked: Counter[torch.dtype] = Counter()
        self.undecided: Counter[torch.dtype] = Counter()

    @property
    def worth_it(self) -> list[torch.dtype]:
        """Those that are, the fastest first."""
        return list(self._scans)

    def note(self, precision: torch.dtype, asked: int, undecided: int) -> None:
        """Count queries that were asked of a scan, and those of which it didn't tell."""
        self.asked[precision] += asked
        self.undecided[precision] += undecided
        if precision in HALF and _TRIED < self.asked[precision] < 2 * self.undecided[precision]:
            self._scans = [torch.float32]


def comparable(scores: Tensor) -> Tensor:
    """Scores, or, in half precision, their bits as whole numbers: those above 0 have the same order.

    The maximum of whole numbers takes a third of the time. Those below 0 have the opposite order, but stay below 0.

    Shapes:
        scores and returned: any
    """
    return scores.view(torch.int16) if scores.dtype in HALF else scores


def lengths(vectors: Tensor) -> Tensor:
    """Euclidean norms. In float32 squares of small numbers would be 0, and what a scan may be wrong by with them.

    Shapes:
        vectors: (n, D)
        returns: (n,) float32
    """
    return torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64).float()


def largest_error(
    norm: Tensor, loss: Tensor, largest_norm: Tensor, largest_loss: Tensor, size: int, precision: torch.dtype
) -> Tensor:
    """How far a score of a scan, before it is written, may be from the true one; no number where it may overflow.

        |q̂·x̂ − q·x| ≤ |q̂ − q||x̂| + |q||x̂ − x| + (rounding of the sum)

    q̂, x̂ -> rounded to the precision; their distances from q and x, where measured, are half of what they might be.

    Shapes:
        norm: (Q,) |q|;  loss: (Q,) |q̂ − q|;  largest_norm: () of |x|;  largest_loss: () of |x̂ − x|
        returns: (Q,)
    """
    # A sum in float32 in any order: D·u/(1 − D·u), u = 2⁻²⁴; 8 more for ties and for what is computed with the bound.
    # Tensor cores cut off instead of rounding, and line numbers up before they add: 8 times as much.
    steps = (size + 8) * 2.0 ** (-21 if precision in HALF else -24)
    largest = largest_norm + largest_loss
    error = loss * largest + norm * largest_loss + steps / (1 - steps) * (norm + loss) * largest
    return error * 1.001 + size * SMALLEST[precision]


def error_of_scan(queries: Tensor, largest_norm: float, precision: torch.dtype) -> Tensor:
    """`largest_error` of images of which only the largest norm is known: infinite where products may overflow.

    Shapes:
        queries: (Q, D) float32
        returns: (Q,) float64
    """
    size = queries.shape[1]
    norm = lengths(queries)  # (Q,)
    if precision not in HALF:
        # |computed − true| ≤ D·u/(1 − D·u)·|q|·|x| for a sum in any order; 2 more for rounding the true one, and norms.
        return rounding_error(size + 2) * largest_norm * norm.double()
    loss = lengths(queries - queries.to(precision).float())  # (Q,)
    largest = norm.new_tensor(largest_norm)
    error = largest_error(
        norm, loss, largest, ROUNDOFF[precision] * largest + size * SMALLEST[precision], size, precision
    )
    return error.masked_fill((norm > _LONG[precision]) | (largest > _LONG[precision]), float("inf")).double()
