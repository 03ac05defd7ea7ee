"""The one nearest image of each query, exactly as `exact_search` finds it, without writing all scores.

1. A scan multiplies queries with images. Of 16 images only the highest score is kept, as soon as it is there: on a CPU
   while the products are in the cache, on a GPU after few large products.
2. Whatever could hold the nearest image, by a bound of what the scan may be wrong by, is scored again in float64:
   mostly 16 images.

The scan may be in half precision, which has a larger bound, but is several times as fast where a device can multiply
it. A query with too much within the bound (many nearly equal images) is scanned again in float32; if there is too much
still (equal ones), every score is computed in float64. So the precision never changes what is found.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .half_precision import HALF, ROUNDOFF, SMALLEST, Precisions, comparable, fast_precision, largest_error, lengths
from .image_ids import NO_IMAGE
from .search import RESCORED, Embeddings, chunks_of, full_precision, refuse_broken, search_in_float64

_BLOCK = 16  # images of which only the highest score is kept
_GROUP = 32  # blocks of which only the highest is looked at first
_MOST = 32  # blocks that are scored again for a query: so many cost about as much as a scan in float32


@dataclass(frozen=True)
class _Sizes:
    """How much at a time.

    Attributes:
        images: in a chunk, whose maxima are kept until it is scored again.
        queries: likewise.
        product: images in a product.
        scores: in a product.
        kept: bytes of prepared images that stay in memory from one call to the next.
    """

    images: int
    queries: int
    product: int
    scores: int
    kept: int


_SIZES = {
    # A product of 1024 images and 512 queries a thread: 1 MB in bfloat16, as large as the cache of a core. From 256 KB
    # to 2 MB it makes no difference; without blocks the maximum takes longer than the product. `scores` is a thread's.
    "cpu": _Sizes(images=65536, queries=4096, product=1024, scores=1024 * 512, kept=2**28),
    # Few large products: 0.5 GB of scores in float16, and one wait for all of a chunk.
    "cuda": _Sizes(images=131072, queries=16384, product=131072, scores=2**28, kept=2**32),
}


@dataclass(frozen=True)
class _Chunk:
    """Some images of a collection, without absent ones.

    Shapes:
        images: (n, D) float32;  rows: (n,) in the collection;  rounded: (n, D) in the precision of a scan
        norm: () the largest;  loss: () the largest norm of what rounding took away
    """

    images: Tensor
    rows: Tensor
    rounded: Tensor
    norm: Tensor
    loss: Tensor


class NearestImage:
    """Finds the nearest image of each query in one collection, again and again.

    Args:
        embeddings: (I, D), may be memory-mapped; a zero row is an absent image. Copies in half precision, and on a GPU
            all of it, stay in memory up to a limit; beyond it, one chunk at a time is read.
        device: where to compute.
        precision: of the scan: bfloat16, float16 or float32 (default: `fast_precision`). It changes nothing but time.

    Attributes:
        keeps: whether the copies are below the limit. If not, a search of few queries takes longer than `exact_search`.
    """

    def __init__(
        self, embeddings: Embeddings, device: str | torch.device = "cpu", precision: torch.dtype | None = None
    ) -> None:
        self.embeddings = embeddings
        self.device = torch.device(device)
        self._sizes = _SIZES.get(self.device.type, _SIZES["cpu"])
        self._precisions = Precisions(precision or fast_precision(self.device))
        self.keeps = 6 * int(np.prod(embeddings.shape)) <= self._sizes.kept  # float32 and half precision
        self._kept: dict[torch.dtype, list[_Chunk]] = {}

    @torch.no_grad()
    def of(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The row with the highest inner product, rounded once to float32; ties go to the lower row.

        An absent image is never found; where there is no other, the id is −1 and the score 0.

        Shapes:
            queries: (Q, D)
            returns: scores (Q,) float32, ids (Q,) int64, on the CPU

        Raises:
            NonFiniteRow: an embedding in a file holds NaN or infinity.
        """
        queries = queries.to(self.device, torch.float32)
        scores = torch.zeros(len(queries), device=self.device)
        ids = torch.full((len(queries),), NO_IMAGE, device=self.device)
        if not len(queries) or not len(self.embeddings):
            return scores.cpu(), ids.cpu()
        with full_precision():
            empty = ~queries.any(dim=1)
            if bool(empty.any()):  # all scores are 0
                ids[empty] = self._first_present()
            again = (~empty).nonzero().squeeze(1)
            for precision in self._precisions.worth_it:
                left = []
                for part in again.split(self._sizes.queries) if len(again) else ():
                    scores[part], ids[part], undecided = self._scan(queries[part], precision)
                    left.append(part[undecided])
                    self._precisions.note(precision, len(part), len(left[-1]))
                again = torch.cat(left) if left else again
            for part in again.split(1024) if len(again) else ():
                found = search_in_float64(queries[part], self.embeddings, 1, None)
                scores[part], ids[part] = (each.squeeze(1).to(self.device) for each in found)
        return scores.cpu(), ids.cpu()

    def _scan(self, queries: Tensor, precision: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """The nearest images by one scan in a precision, but of queries for which that doesn't tell.

        Shapes:
            queries: (Q, D) float32
            returns: scores (Q,), ids (Q,), undecided (Q,) bool
        """
        best = torch.full((len(queries),), float("-inf"), device=self.device)
        ids = torch.full((len(queries),), NO_IMAGE, device=self.device)
        undecided = torch.zeros(len(queries), dtype=torch.bool, device=self.device)
        rounded = queries.to(precision)  # (Q, D)
        norm, loss = lengths(queries), lengths(queries - rounded.float())  # (Q,)
        for chunk in self._chunks(precision):
            maxima = _highest_of_blocks(chunk.rounded, rounded, self._sizes)  # (blocks, Q)
            error = largest_error(norm, loss, chunk.norm, chunk.loss, queries.shape[1], precision)
            query, block = _could_hold_nearest(maxima, best, error, precision, undecided)  # (P,)
            found, places = _score_exactly(queries, chunk.images, query, block)  # (P,)
            _keep_better(best, ids, query, found, chunk.rows[places])
        return best.masked_fill(ids == NO_IMAGE, 0.0), ids, undecided

    def _chunks(self, precision: torch.dtype) -> Iterator[_Chunk]:
        """The images that are there, from memory where they were kept.

        Raises:
            NonFiniteRow: an embedding in a file holds NaN or infinity.
        """
        if precision in self._kept:
            yield from self._kept[precision]
            return
        chunks = []
        for start, images in chunks_of(self.embeddings, self._sizes.images, self.device):
            chunk = self._prepare(start, images, precision)
            if len(chunk.rows):
                if self.keeps:
                    chunks.append(chunk)
                yield chunk
        if self.keeps:
            self._kept[precision] = chunks

    def _prepare(self, start: int, images: Tensor, precision: torch.dtype) -> _Chunk:
        """Shapes: images: (n, D)."""
        norms = lengths(images)  # (n,)
        if isinstance(self.embeddings, np.ndarray) and not bool(norms.sum().isfinite()):
            refuse_broken(self.embeddings)
        rows = torch.arange(start, start + len(images), device=self.device)
        present = images.any(dim=1)
        if not bool(present.all()):
            images, rows, norms = images[present], rows[present], norms[present]
        rounded = images.to(precision)
        none = norms.new_zeros(1)
        loss = lengths(images - rounded.float()) if precision in HALF else none
        return _Chunk(images, rows, rounded, torch.cat([norms, none]).max(), torch.cat([loss, none]).max())

    def _first_present(self) -> int:
        """The lowest row of an image that is there; −1 where none is."""
        return next((int(chunk.rows[0]) for chunk in self._chunks(torch.float32)), NO_IMAGE)


def nearest(queries: Tensor, embeddings: Embeddings, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
    """`exact_search` for k = 1, faster; who asks again and again keeps a `NearestImage`.

    Shapes:
        queries: (Q, D);  embeddings: (I, D)
        returns: scores (Q,) float32, ids (Q,) int64, on the CPU

    Raises:
        NonFiniteRow: an embedding in a file holds NaN or infinity.
    """
    return NearestImage(embeddings, device).of(queries)


def _highest_of_blocks(images: Tensor, queries: Tensor, sizes: _Sizes) -> Tensor:
    """The highest score, as `comparable`, of 16 neighbouring images each; filled up to whole groups with the lowest.

    Shapes:
        images: (n, D);  queries: (Q, D)
        returns: (blocks, Q)
    """
    blocks = -(-len(images) // _BLOCK)
    maxima = comparable(queries.new_empty(blocks + -blocks % _GROUP, len(queries)))
    lowest = float("-inf") if maxima.is_floating_point() else torch.iinfo(maxima.dtype).min
    maxima[blocks:] = lowest
    product = min(sizes.product, blocks * _BLOCK)
    threads = 1 if queries.is_cuda else torch.get_num_threads()
    width = min(len(queries), max(1, threads * sizes.scores // product))
    memory = queries.new_empty(product * width)
    for left in range(0, len(queries), width):
        part = queries[left : left + width].T.contiguous()  # (D, q)
        for start in range(0, len(images), product):
            some = images[start : start + product]
            first, count = start // _BLOCK, -(-len(some) // _BLOCK)
            scores = memory[: count * _BLOCK * part.shape[1]].view(count * _BLOCK, -1)  # (16 · count, q)
            torch.mm(some, part, out=scores[: len(some)])
            values = comparable(scores)
            values[len(some) :] = lowest
            out = maxima[first : first + count, left : left + width]
            torch.amax(values.unflatten(0, (count, _BLOCK)), dim=1, out=out)
    return maxima


def _could_hold_nearest(
    maxima: Tensor, best: Tensor, error: Tensor, precision: torch.dtype, undecided: Tensor
) -> tuple[Tensor, Tensor]:
    """Pairs of a query and a block in which its nearest image may be; none of queries that are undecided.

    The image with the highest score in the scan has at least `lowest` as its true one: so has the nearest image, and
    `threshold` in the scan, rounded as the scan's scores are.

    Shapes:
        maxima: (blocks, Q);  best: (Q,) true scores so far;  error: (Q,);  undecided: (Q,) bool, changed in place
        returns: query (P,), block (P,)
    """
    groups = maxima.unflatten(0, (-1, _GROUP))  # (G, 32, Q)
    of_group = groups.amax(dim=1)  # (G, Q)
    highest = of_group.amax(dim=0)  # (Q,)
    if precision in HALF:
        highest = highest.view(precision).float()
    lowest = highest - ROUNDOFF[precision] * highest.abs() - SMALLEST[precision] - error
    lowest = torch.maximum(lowest, best)
    threshold = (lowest - error).to(precision)
    undecided |= ~(threshold > (0.0 if precision in HALF else float("-inf")))  # see `comparable`; NaN, too
    threshold = comparable(threshold)
    near = of_group >= threshold  # (G, Q)
    undecided |= near.sum(dim=0) > _MOST
    group, query = (near & ~undecided).nonzero(as_tuple=True)  # (A,)
    pair, place = (groups[group, :, query] >= threshold[query].unsqueeze(1)).nonzero(as_tuple=True)  # (P,)
    query, block = query[pair], group[pair] * _GROUP + place
    count = torch.zeros_like(undecided, dtype=torch.int64).scatter_add_(0, query, torch.ones_like(query))  # (Q,)
    undecided |= count > _MOST
    wanted = ~undecided[query]
    return query[wanted], block[wanted]


def _score_exactly(queries: Tensor, images: Tensor, query: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
    """The best image of each block for a query, in float64, then rounded to float32; the first of equal ones.

    Shapes:
        queries: (Q, D);  images: (n, D);  query: (P,);  block: (P,)
        returns: scores (P,), places among the images (P,)
    """
    inside = torch.arange(_BLOCK, device=queries.device)
    scores, places = torch.empty(len(query), device=queries.device), torch.empty_like(block)
    at_a_time = RESCORED.get(queries.device.type, RESCORED["cpu"])
    batch = max(1, at_a_time // (_BLOCK * max(1, queries.shape[1])))
    for start in range(0, len(query), batch):
        part = slice(start, start + batch)
        rows = (block[part].unsqueeze(1) * _BLOCK + inside).clamp(max=len(images) - 1)  # (p, 16)
        exact = (images[rows].double() * queries[query[part]].double().unsqueeze(1)).sum(dim=2).float()  # (p, 16)
        scores[part], column = exact.max(dim=1)
        places[part] = rows.gather(1, column.unsqueeze(1)).squeeze(1)
    return scores, places


def _keep_better(best: Tensor, ids: Tensor, query: Tensor, scores: Tensor, rows: Tensor) -> None:
    """Take what beats the best so far, of equal ones the lowest row; what comes later has higher rows.

    Shapes:
        best: (Q,) and ids: (Q,), changed in place;  query: (P,);  scores: (P,);  rows: (P,)
    """
    before = best.clone()
    best.scatter_reduce_(0, query, scores, "amax")
    better = best > before  # (Q,)
    beyond = torch.iinfo(ids.dtype).max
    ids.masked_fill_(better, beyond)
    wins = scores == best[query]  # (P,)
    ids.scatter_reduce_(0, query, rows.masked_fill(~wins, beyond), "amin")
