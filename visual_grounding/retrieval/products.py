"""The matrix product of a scan: in float32 whichever is fastest where it runs."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

# queries (Q, D), images (n, D), memory for the result (Q, n), which may be left unused -> (Q, n); all of one precision
Product = Callable[[Tensor, Tensor, Tensor], Tensor]
_UNIT_ROUNDOFF = 2.0**-24
_WORTH_TIMING = 2**26  # multiplications of a product, 1 ms or so: in less they say little
_ROUNDS = 3  # products of each kind that are timed
STEP = 64  # queries: oneDNN keeps half a megabyte for each number of them that it has seen


def rounding_error(size: int) -> float:
    """How far an inner product of `size` numbers, in float32, may be from the true one, by the vectors' norms."""
    return 1.001 * size * _UNIT_ROUNDOFF / (1 - size * _UNIT_ROUNDOFF)


def product_of_blas(queries: Tensor, images: Tensor, memory: Tensor) -> Tensor:
    """As torch multiplies anywhere: on most builds for x86 by MKL, which keeps to slow kernels on an AMD.

    Shapes:
        queries: (Q, D);  images: (n, D);  memory: (Q, n), written
        returns: (Q, n)
    """
    return torch.mm(queries, images.T, out=memory)


def product_of_onednn(queries: Tensor, images: Tensor, memory: Tensor) -> Tensor:
    """By oneDNN, which torch brings, too: on an AMD EPYC of 2024 (Zen 5) twice as fast as MKL.

    Shapes:
        queries: (Q, D);  images: (n, D), on the CPU;  memory: (Q, n), not used
        returns: (Q, n)
    """
    found = torch.nn.functional.linear(in_steps(queries).to_mkldnn(), images.to_mkldnn())
    return found.to_dense()[: len(queries)]


def in_steps(queries: Tensor) -> Tensor:
    """With rows of zeros, so that oneDNN sees few numbers of rows.

    Shapes:
        queries: (Q, D)
        returns: (a multiple of 64, D)
    """
    return torch.nn.functional.pad(queries, (0, 0, 0, -len(queries) % STEP))


def product_of_numpy(queries: Tensor, images: Tensor, memory: Tensor) -> Tensor:
    """As numpy multiplies, mostly by OpenBLAS, with torch's threads: a tenth faster on an AMD EPYC of 2022 (Zen 4).

    Shapes:
        queries: (Q, D);  images: (n, D), on the CPU;  memory: (Q, n), written
        returns: (Q, n)
    """
    # Numbers that aren't finite are the scan's to find: numpy would warn of them.
    with _blas_threads().limit(limits=torch.get_num_threads()), np.errstate(all="ignore"):
        np.matmul(queries.detach().numpy(), images.detach().numpy().T, out=memory.numpy())
    return memory


@cache
def _blas_threads() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def product_for(queries: Tensor) -> Product:
    """The product for a scan: torch's own, but in float32 on a CPU, where there is enough to do, the fastest one.

    Shapes:
        queries: (Q, D)
    """
    if queries.device.type != "cpu" or queries.dtype != torch.float32:
        return product_of_blas
    return fastest_product(queries.shape[1], min(len(queries), 1024).bit_length(), torch.get_num_threads())


@cache
def fastest_product(size: int, queries: int, threads: int) -> "FastestProduct":
    """The one of this process for D = `size` and about 2^`queries` queries; all three are part of what it remembers."""
    return FastestProduct(product_of_blas, lambda: [found for found in _others() if is_float32(found, size)])


def _others() -> list[Product]:
    """What there is beside BLAS's product."""
    others: list[Product] = []
    if multiprocessing.parent_process() is None:  # in a copy by fork OpenBLAS would start all its threads again
        others.append(product_of_numpy)
    if torch.backends.mkldnn.is_available():
        others.append(product_of_onednn)
    return others


class FastestProduct:
    """Multiplies by each product in turn, until all were timed, and from then on by the fastest of them.

    What is timed is what a scan asks for anyway, so that the choice costs little, and is made where it counts. Results
    differ by rounding alone.

    Args:
        usual: for what is too little to be worth timing, and one of those that are timed.
        others: gives the others; it is asked when there is something to time.

    Attributes:
        chosen: the fastest one, once that is known.
    """

    def __init__(self, usual: Product, others: Callable[[], list[Product]]) -> None:
        self._usual, self._others = usual, others
        self._took: dict[Product, float] = {}
        self._turns: Iterator[Product] | None = None
        self.chosen: Product | None = None

    def __call__(self, queries: Tensor, images: Tensor, memory: Tensor) -> Tensor:
        """Shapes: queries: (Q, D);  images: (n, D);  memory: (Q, n);  returns: (Q, n)."""
        work = queries.numel() * len(images)
        if work < _WORTH_TIMING:
            return self._usual(queries, images, memory)
        product = self.chosen or self._next()
        if product is None:
            product = self.chosen = min(self._took, key=self._took.__getitem__)
        if self.chosen is not None:
            return product(queries, images, memory)
        images.sum()  # what is in a file still is read before
        started = time.perf_counter()
        result = product(queries, images, memory)
        self._took[product] = min(self._took[product], (time.perf_counter() - started) / work)
        return result

    def _next(self) -> Product | None:
        """Whose turn it is; None when all are over."""
        if self._turns is None:
            kinds = [self._usual, *self._others()]
            self._took = {kind: float("inf") for kind in kinds}
            # Each begins a round once: parts of a scan come in turn, too, and not all have the same size.
            self._turns = iter(
                [kinds[(turn + first) % len(kinds)] for first in range(_ROUNDS) for turn in range(len(kinds))]
            )
        return next(self._turns, None)


def is_float32(product: Product, size: int) -> bool:
    """Whether it multiplies in float32: oneDNN may have been told to do so in bfloat16.

    All numbers but eight of a vector are zero, so that rounding them isn't lost in the error of a long sum.
    """
    generator = torch.Generator().manual_seed(0)
    queries, images = (torch.randn(64, size, generator=generator) for _ in range(2))
    queries[:, 8:] = 0
    bound = rounding_error(min(size, 8)) * queries[:, :8].abs().double() @ images[:, :8].abs().double().T
    found = product(queries, images, torch.empty(64, 64))
    return not bool(((found - queries.double() @ images.double().T).abs() > bound).any())
