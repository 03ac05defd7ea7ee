"""The matrix product of a scan, in float32: whichever is faster where it runs."""

import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

# queries (Q, D), images (n, D), memory for the result (Q, n), which may be left unused -> (Q, n); all float32
Product = Callable[[Tensor, Tensor, Tensor], Tensor]
_UNIT_ROUNDOFF = 2.0**-24
_WORTH_TIMING = 2**32  # multiplications of a scan (0.1 s or more) from which on products are timed, which takes 20 ms


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
    """By oneDNN, which torch brings, too: on an AMD EPYC twice as fast as MKL.

    Shapes:
        queries: (Q, D);  images: (n, D), on the CPU;  memory: (Q, n), not used
        returns: (Q, n)
    """
    return torch.nn.functional.linear(queries.to_mkldnn(), images.to_mkldnn()).to_dense()


def product_for(queries: Tensor, images: int) -> Product:
    """The product for a scan: BLAS's, but on a CPU, where there is enough to do, the faster one.

    Shapes:
        queries: (Q, D), of that many images
    """
    if queries.device.type == "cpu" and queries.numel() * images >= _WORTH_TIMING:
        return fastest_product(queries.shape[1])
    return product_of_blas


def fastest_product(size: int) -> Product:
    """The product that is faster on this CPU with as many threads; both are timed once in a process.

    Args:
        size: D.
    """
    if not torch.backends.mkldnn.is_available():
        return product_of_blas
    return _timed(min(size, 2048), torch.get_num_threads())


@cache
def _timed(size: int, threads: int) -> Product:
    """Which product takes less time with vectors of a size; `threads` are part of what is remembered."""
    generator = torch.Generator().manual_seed(0)
    queries, images = (torch.randn(count, size, generator=generator) for count in (256, 1024))
    memory = torch.empty(len(queries), len(images))
    # oneDNN may have been told to multiply in bfloat16: `rerank_exactly` couldn't trust that.
    bound = rounding_error(size) * torch.outer(queries.norm(dim=1).double(), images.norm(dim=1).double())
    if ((product_of_onednn(queries, images, memory) - queries.double() @ images.double().T).abs() > bound).any():
        return product_of_blas
    took = {product_of_blas: float("inf"), product_of_onednn: float("inf")}
    for _ in range(5):
        for product in took:
            started = time.perf_counter()
            product(queries, images, memory)
            took[product] = min(took[product], time.perf_counter() - started)
    return min(took, key=took.__getitem__)
