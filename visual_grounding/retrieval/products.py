"""The matrix product of a scan, in float32: whichever is fastest where it runs."""

import time
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

# queries (Q, D), images (n, D), memory for the result (Q, n), which may be left unused -> (Q, n); all float32
Product = Callable[[Tensor, Tensor, Tensor], Tensor]
_UNIT_ROUNDOFF = 2.0**-24
_WORTH_TIMING = 2**26  # multiplications of a product, 1 ms or so: in less they say little
_ROUNDS = 3  # products of each kind that are timed


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
    return torch.nn.functional.linear(queries.to_mkldnn(), images.to_mkldnn()).to_dense()


def product_of_numpy(queries: Tensor, images: Tensor, memory: Tensor) -> Tensor:
    """As numpy multiplies, mostly by OpenBLAS, with torch's threads: a tenth faster on an AMD EPYC of 2022 (Zen 4).

    Shapes:
        queries: (Q, D);  images: (n, D), on the CPU;  memory: (Q, n), written
        returns: (Q, n)
    """
    with _blas_threads().limit(limits=torch.get_num_threads()):
        np.matmul(queries.detach().numpy(), images.detach().numpy().T, out=memory.numpy())
    return memory


@cache
def _blas_threads() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def product_for(queries: Tensor) -> Product:
    """The product for a scan: BLAS's, but on a CPU the one that turns out to be fastest there.

    Shapes:
        queries: (Q, D)
    """
    if queries.device.type != "cpu":
        return product_of_blas
    return fastest_product(queries.shape[1], torch.get_num_threads())


@cache
def fastest_product(size: int, threads: int) -> "FastestProduct":
    """The one of this process for vectors of a size; `threads` are part of what it remembers."""
    others = [product_of_numpy]
    if torch.backends.mkldnn.is_available():
        others.append(product_of_onednn)
    return FastestProduct([product_of_blas, *(product for product in others if _is_float32(product, size))])


class FastestProduct:
    """Multiplies by each product in turn, until all were timed, and from then on by the fastest of them.

    What is timed is what a scan asks for anyway, so that the choice costs little, and is made where it counts. Results
    differ by rounding alone.

    Attributes:
        chosen: the fastest one, once that is known. What isn't worth timing is the first's until then.
    """

    def __init__(self, products: Iterable[Product]) -> None:
        self._took = {product: float("inf") for product in products}
        self._turns = iter([product for _ in range(_ROUNDS) for product in self._took])
        self._first = next(iter(self._took))
        self.chosen: Product | None = None

    def __call__(self, queries: Tensor, images: Tensor, memory: Tensor) -> Tensor:
        """Shapes: queries: (Q, D);  images: (n, D);  memory: (Q, n);  returns: (Q, n)."""
        if self.chosen is not None:
            return self.chosen(queries, images, memory)
        work = queries.numel() * len(images)
        if work < _WORTH_TIMING:
            return self._first(queries, images, memory)
        product = next(self._turns, None)
        if product is None:
            self.chosen = min(self._took, key=self._took.__getitem__)
            return self.chosen(queries, images, memory)
        started = time.perf_counter()
        result = product(queries, images, memory)
        self._took[product] = min(self._took[product], (time.perf_counter() - started) / work)
        return result


def _is_float32(product: Product, size: int) -> bool:
    """Whether it keeps the bound of `rounding_error`: oneDNN may have been told to multiply in bfloat16."""
    generator = torch.Generator().manual_seed(0)
    queries, images = (torch.randn(count, size, generator=generator) for count in (64, 64))
    bound = rounding_error(size) * torch.outer(queries.norm(dim=1).double(), images.norm(dim=1).double())
    found = product(queries, images, torch.empty(64, 64))
    return not bool(((found - queries.double() @ images.double().T).abs() > bound).any())
