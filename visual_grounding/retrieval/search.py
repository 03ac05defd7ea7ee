"""Exact search: the k images with the highest inner product, on any device, without holding the collection in memory.

What *exact* means is the same for every device and library: an image's score is its inner product with the query,
rounded once to float32; the highest come first, equal ones by row.

1. A scan finds k + 4 candidates of each query (`scan` here, or faiss). It compares the maximum of 16 images with the
   last candidate so far, so that it looks at few of the scores. Ties and rounding don't matter to it, so it takes the
   matrix product that is fastest where it runs (products.py); many queries of a large collection, on a CPU that
   multiplies bfloat16 at twice the speed or more, are scanned in that, for twice the candidates (half_precision.py).
2. The candidates are scored again in float64 and sorted. Whatever isn't a candidate has at most the last candidate's
   score plus what the scan may be wrong by. A query whose k-th score isn't above that (many nearly equal images, say)
   is scanned again in float32; if that doesn't tell either (many equal ones), it is searched in float64.

For k = 1 there is a faster way to the same: nearest.py.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from .half_precision import HALF, ROUNDOFF, Precisions, comparable, error_of_scan, fast_precision, lengths
from .image_ids import NO_IMAGE
from .products import STEP, Product, in_steps, product_for

Embeddings = np.ndarray | Tensor


class NonFiniteRow(ValueError):
    """An embedding that holds NaN or infinity: it would be found for every query, or hide its neighbours.

    Attributes:
        row: the first such row.
    """

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row} of the embeddings holds NaN or infinity")
        self.row = row


MARGIN = 4  # candidates beyond k: so many equal images at the k-th place cost nothing
_ROUNDED_MARGIN = 8  # more of them in half precision, beside twice as many
_BLOCK = 16  # images of which only the maximum is looked at first
# Blocks side by side, their images in turn: torch's maximum then takes a third of the time, on AMD and Intel alike.
_LANES = 64
# Numbers of candidates in float64 at a time: on a CPU they stay in the cache; a GPU wants few large steps.
RESCORED = {"cpu": 2**18, "cuda": 2**25}
_CHUNK = {"cpu": 4096, "cuda": 131072}  # images at a time; a GPU wants few large products


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest entries of each row, best first, equal ones by column; k may not exceed the number of columns.

    >>> top_k(torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]]), 3)[1].tolist()
    [[1, 3, 2]]

    Shapes:
        scores: (Q, I)
        returns: values (Q, k), columns (Q, k)
    """
    more = min(k + 1, scores.shape[1])
    values, columns = scores.topk(more, dim=1)
    if more > k:
        # topk chooses freely among entries equal to the k-th: where one was left out, choose again by column.
        tied = (values[:, k - 1] == values[:, k]).nonzero().squeeze(1)
        values, columns = values[:, :k], columns[:, :k].clone()
        if len(tied):
            columns[tied] = _lowest_columns(scores[tied], values[tied, k - 1 :], k)
    columns = columns.sort(dim=1).values
    values, order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def _lowest_columns(scores: Tensor, threshold: Tensor, k: int) -> Tensor:
    """Columns above the k-th value, and of those equal to it the lowest, k in all; ascending.

    Shapes:
        scores: (Q, I);  threshold: (Q, 1)
        returns: (Q, k)
    """
    above = ~(scores <= threshold)  # NaN, too, as for topk: what overflowed, or a row that is refused afterwards
    equal = scores == threshold
    room = k - above.sum(dim=1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=1) <= room))
    return chosen.nonzero()[:, 1].view(len(scores), k)


def _best_of_chunk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`top_k`, but for many columns it looks only into the k blocks with the highest maxima.

    Shapes:
        scores: (Q, I)
        returns: values (Q, k), columns (Q, k)
    """
    queries, images = scores.shape
    blocks = images // _BLOCK
    if blocks <= 2 * k:
        return top_k(scores, k)
    head = scores[:, : blocks * _BLOCK].unflatten(1, (blocks, _BLOCK))
    best_blocks = top_k(head.amax(dim=2), k)[1].sort(dim=1).values  # (Q, k) ascending, so that columns stay in order
    inside = torch.arange(_BLOCK, device=scores.device)
    columns = (best_blocks.unsqueeze(2) * _BLOCK + inside).flatten(1)  # (Q, k * 16)
    rest = torch.arange(blocks * _BLOCK, images, device=scores.device).expand(queries, -1)
    columns = torch.cat([columns, rest], dim=1)
    values, order = top_k(scores.gather(1, columns), k)
    return values, columns.gather(1, order)


def _where(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """`chosen.nonzero(as_tuple=True)`, as numpy finds it on the CPU: where little is chosen, in a fraction of the time.

    Shapes:
        chosen: (Q, n) bool
        returns: (E,) rows, (E,) columns
    """
    rows, columns = np.divmod(np.flatnonzero(chosen.numpy()), chosen.shape[1])
    return torch.from_numpy(rows), torch.from_numpy(columns)


class _Best:
    """The best candidates of some queries among the images that were offered so far.

    What beats a query's last candidate is set aside, and joined with its candidates when there is enough of it: over
    images in random order that becomes rare soon.

    Shapes:
        scores: (Q, C) float32, −inf where there is none;  rows: (Q, C) int64, −1 where there is none
    """

    def __init__(self, queries: int, count: int, device: torch.device) -> None:
        self.scores = torch.full((queries, count), float("-inf"), device=device)
        self.rows = torch.full((queries, count), NO_IMAGE, device=device)
        self._aside: list[tuple[Tensor, Tensor, Tensor]] = []  # (E,) queries, rows, scores
        self._waiting = 0

    def offer(self, similarity: Tensor, start: int) -> None:
        """Take what is good enough from the images `start`, `start + 1`, …

        Shapes:
            similarity: (Q, n)
        """
        images = similarity.shape[1]
        lanes = min(_LANES, images // _BLOCK)
        groups = images // (_BLOCK * lanes) if lanes else 0
        # On a GPU counting what beats the last candidate costs more (it must wait) than taking the best of a chunk.
        if groups == 0 or similarity.device.type != "cpu" or bool((self.rows[:, -1] == NO_IMAGE).any()):
            self._join_chunk(similarity, start)
            return
        last = comparable(self.scores[:, -1:].to(similarity.dtype))  # (Q, 1)
        values = comparable(similarity)
        whole = groups * _BLOCK * lanes
        maxima = values[:, :whole].unflatten(1, (groups, _BLOCK, lanes)).amax(dim=2).flatten(1)  # (Q, blocks)
        query, block = _where(maxima > last)  # (P,)
        if len(query) > maxima.numel() // 8:  # images that become better and better
            self._join_chunk(similarity, start)
            return
        first = block // lanes * (_BLOCK * lanes) + block % lanes  # (P,) column
        self._set_aside(query, first.unsqueeze(1) + lanes * torch.arange(_BLOCK), similarity, last, start)
        if images > whole:
            query, column = _where(values[:, whole:] > last)
            self._set_aside(query, column.unsqueeze(1) + whole, similarity, last, start)
        if self._waiting > self.scores.numel() // 4:
            self.join()

    def _set_aside(self, query: Tensor, columns: Tensor, similarity: Tensor, last: Tensor, start: int) -> None:
        """Shapes: query: (P,);  columns: (P, any);  similarity: (Q, n);  last: (Q, 1) `comparable`."""
        scores = similarity.view(-1).take((query * similarity.shape[1]).unsqueeze(1) + columns)
        pair, place = _where(comparable(scores) > last[query])  # (E,)
        self._aside.append((query[pair], columns[pair, place] + start, scores[pair, place].float()))
        self._waiting += len(pair)

    def _join_chunk(self, similarity: Tensor, start: int) -> None:
        scores, columns = _best_of_chunk(similarity.float(), min(self.scores.shape[1], similarity.shape[1]))
        self._join(scores, columns + start)

    def _join(self, scores: Tensor, rows: Tensor) -> None:
        """Shapes: scores and rows: (Q, any)."""
        self.scores, order = torch.cat([self.scores, scores], dim=1).topk(self.scores.shape[1], dim=1)
        self.rows = torch.cat([self.rows, rows], dim=1).gather(1, order)

    def join(self) -> None:
        """Join what was set aside."""
        if not self._waiting:
            return
        query, rows, scores = (torch.cat(parts) for parts in zip(*self._aside))
        self._aside, self._waiting = [], 0
        query, order = query.sort()
        counts = query.bincount(minlength=len(self.scores))  # (Q,)
        place = torch.arange(len(query)) - (counts.cumsum(0) - counts)[query]  # among the query's own
        width = int(counts.max())
        padded = torch.full((len(self.scores), width), float("-inf"))
        padded_rows = torch.full((len(self.scores), width), NO_IMAGE)
        padded[query, place] = scores[order]
        padded_rows[query, place] = rows[order]
        self._join(padded, padded_rows)


def scan(
    queries: Tensor,
    embeddings: Embeddings,
    count: int,
    chunk: int | None = None,
    query_chunk: int = 1024,
    product: Product | None = None,
    precision: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Rows with the highest inner products, best first; ties fall as they may. Absent images take part.

    Args:
        queries: on the device that computes.
        embeddings: may be memory-mapped: one chunk at a time is read.
        count: C, candidates per query.
        chunk: images at a time; memory is `query_chunk` x `chunk` numbers, however large the collection is.
        query_chunk: queries at a time.
        product: of queries and images (default: the fastest one; all give the same candidates but for rounding).
        precision: in which they are multiplied, and scores written. In half precision a query's are right only if the
            last one is above 0.

    Shapes:
        queries: (Q, D) float32;  embeddings: (I, D)
        returns: scores (Q, C) float32, −inf where there is none; rows (Q, C) int64, −1 where there is none

    Raises:
        NonFiniteRow: an embedding in a file holds NaN or infinity.
    """
    chunk = chunk or _CHUNK.get(queries.device.type, _CHUNK["cpu"])
    queries = queries.to(precision)
    parts = queries.split(query_chunk)
    best = [_Best(len(part), count, queries.device) for part in parts]
    if precision in HALF:
        parts = tuple(in_steps(part) for part in parts)
    product = product or product_for(queries)
    memory = queries.new_empty(len(parts[0]) * min(chunk, len(embeddings)))
    check = torch.zeros((), device=queries.device)
    for start, images in chunks_of(embeddings, chunk, queries.device):
        images = images.to(precision)
        for part, part_best in zip(parts, best):
            shape = len(part), len(images)
            similarity = product(part, images, memory[: shape[0] * shape[1]].view(shape))  # always the same memory
            part_best.offer(similarity[: len(part_best.scores)], start)
        check += similarity[0].float().sum()  # one query tells: its product with NaN or infinity isn't finite
    if isinstance(embeddings, np.ndarray) and not bool(check.isfinite()):
        refuse_broken(embeddings)
    for part_best in best:
        part_best.join()
    return torch.cat([part.scores for part in best]), torch.cat([part.rows for part in best])


@torch.no_grad()
def exact_search(
    queries: Tensor,
    embeddings: Embeddings,
    k: int,
    device: str | torch.device = "cpu",
    chunk: int | None = None,
    exclude: Tensor | None = None,
    query_chunk: int = 1024,
    largest_norm: float | None = None,
    product: Product | None = None,
    precisions: Precisions | None = None,
) -> tuple[Tensor, Tensor]:
    """The k rows of a collection with the highest inner product, rounded once to float32; ties go to the lower row.

    A row that is all zero is absent and never returned. Where fewer than k rows are left, the id is −1 and the score 0.

    Args:
        queries: (Q, D).
        embeddings: (I, D), may be memory-mapped: one chunk at a time is read.
        k: results per query.
        device: where to compute.
        chunk: images at a time (default: what suits the device).
        exclude: (Q,) a row that must not be returned, −1 for none.
        query_chunk: queries at a time.
        largest_norm: an upper bound of the rows' norms; found by reading them where it isn't given.
        product: of the scan, which is then in float32 (default: the fastest one). It changes nothing but time.
        precisions: of scans (default: `scan_precisions`). They change nothing but time; who searches a collection
            again and again keeps them.

    Shapes:
        queries: (Q, D);  embeddings: (I, D);  exclude: (Q,)
        returns: scores (Q, k) float32, ids (Q, k) int64, on the CPU

    Raises:
        NonFiniteRow: an embedding in a file holds NaN or infinity.
    """
    queries = queries.to(device, torch.float32)
    scores, ids = torch.zeros(len(queries), k), torch.full((len(queries), k), NO_IMAGE)
    if not len(queries) or not len(embeddings):
        return scores, ids
    precisions = precisions or scan_precisions(queries.device)
    some = k + MARGIN + (exclude is not None)
    if largest_norm is None and len(embeddings) > some:
        largest_norm = _largest_norm(embeddings)
    empty = ~queries.any(dim=1).cpu()  # all their scores are 0, which no scan can tell
    again = (~empty).nonzero().squeeze(1)
    with full_precision():
        for precision in precisions.worth_it:
            rounds = precision in HALF
            count = 2 * some + _ROUNDED_MARGIN if rounds else some
            if not len(again) or (rounds and (product or not is_worth_rounding(queries, embeddings, count))):
                continue
            part = queries if len(again) == len(queries) else queries[again.to(queries.device)]
            excluded = None if exclude is None else exclude[again.to(exclude.device)]
            found = scan(part, embeddings, count, chunk, query_chunk, product, precision)
            scores[again], ids[again], open_still = _rerank_what_is_told(
                part, embeddings, *found, k, excluded, largest_norm, precision
            )
            precisions.note(precision, len(again), int(open_still.sum()))
            again = again[open_still]
        _search_again(scores, ids, torch.cat([again, empty.nonzero().squeeze(1)]), queries, embeddings, k, exclude)
    return scores, ids


def is_worth_rounding(queries: Tensor, embeddings: Embeddings, count: int) -> bool:
    """Whether a scan in half precision for so many candidates can take less time: what is rounded, and scored again.

    Measured with bfloat16 on an AMD EPYC of 2022 (Zen 4), 1 thread.

    Shapes:
        queries: (Q, D);  embeddings: (I, D)
    """
    images, size = embeddings.shape
    return len(queries) >= STEP and images >= 1024 * count and images * size >= 2**17 * count


def scan_precisions(device: str | torch.device) -> Precisions:
    """What `exact_search` scans in: on a CPU what is fastest there; on a GPU, where none was measured, float32."""
    device = torch.device(device)
    return Precisions(fast_precision(device) if device.type == "cpu" else torch.float32)


@torch.no_grad()
def rerank_exactly(
    queries: Tensor,
    embeddings: Embeddings,
    candidate_scores: Tensor,
    candidates: Tensor,
    k: int,
    exclude: Tensor | None = None,
    largest_norm: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The k best of all images, given candidates that hold the C highest float32 products.

    Shapes:
        queries: (Q, D) float32;  embeddings: (I, D);  exclude: (Q,)
        candidate_scores: (Q, C), best first;  candidates: (Q, C) rows, −1 where there is none
        returns: scores (Q, k) float32, ids (Q, k) int64, on the CPU

    Raises:
        NonFiniteRow: a candidate's embedding in a file holds NaN or infinity.
    """
    scores, ids, open_still = _rerank_what_is_told(
        queries, embeddings, candidate_scores, candidates, k, exclude, largest_norm
    )
    _search_again(scores, ids, open_still.nonzero().squeeze(1), queries, embeddings, k, exclude)
    return scores, ids


def _rerank_what_is_told(
    queries: Tensor,
    embeddings: Embeddings,
    candidate_scores: Tensor,
    candidates: Tensor,
    k: int,
    exclude: Tensor | None,
    largest_norm: float | None,
    precision: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """The k best of the candidates, and for which queries another image could be among the k best.

    Shapes:
        queries: (Q, D) float32;  embeddings: (I, D);  exclude: (Q,)
        candidate_scores: (Q, C) of a scan in a precision, best first;  candidates: (Q, C) rows, −1 where there is none
        returns: scores (Q, k) float32, ids (Q, k) int64, open still (Q,) bool, on the CPU

    Raises:
        NonFiniteRow: a candidate's embedding in a file holds NaN or infinity.
    """
    scores, ids = rerank(queries, embeddings, candidates, k, exclude)
    if candidates.shape[1] >= len(embeddings) and precision not in HALF:
        return scores, ids, torch.zeros(len(queries), dtype=torch.bool)  # every image is a candidate
    norm = _largest_norm(embeddings) if largest_norm is None else largest_norm
    last = candidate_scores[:, -1].cpu().double()
    bound = last * (1 + ROUNDOFF[precision]) + error_of_scan(queries, norm, precision).cpu()
    kth = scores[:, -1].double().masked_fill(ids[:, -1] == NO_IMAGE, float("-inf"))
    told = kth > bound  # never where one isn't a number
    if precision in HALF:
        told &= last > 0  # see `comparable`
    return scores, ids, ~told


def _search_again(
    scores: Tensor,
    ids: Tensor,
    again: Tensor,
    queries: Tensor,
    embeddings: Embeddings,
    k: int,
    exclude: Tensor | None,
) -> None:
    """Search some queries in float64, and write what is found.

    Shapes:
        scores: (Q, k), changed;  ids: (Q, k), changed;  again: (A,) on the CPU
        queries: (Q, D) float32;  embeddings: (I, D);  exclude: (Q,)

    Raises:
        NonFiniteRow: an embedding in a file holds NaN or infinity.
    """
    for rows in again.split(1024) if len(again) else ():  # an empty tensor splits into one empty part
        chosen = None if exclude is None else exclude[rows.to(exclude.device)]
        scores[rows], ids[rows] = search_in_float64(queries[rows.to(queries.device)], embeddings, k, chosen)


@torch.no_grad()
def rerank(
    queries: Tensor, embeddings: Embeddings, candidates: Tensor, k: int, exclude: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k best of the candidates, by exact score, ties by row; absent and excluded ones are left out.

    Shapes:
        queries: (Q, D) float32;  embeddings: (I, D);  candidates: (Q, C) rows, −1 where there is none;  exclude: (Q,)
        returns: scores (Q, k) float32, ids (Q, k) int64, on the CPU; 0 and −1 where nothing is left

    Raises:
        NonFiniteRow: a candidate's embedding in a file holds NaN or infinity.
    """
    candidates = candidates.sort(dim=1).values  # so that a stable sort by score leaves ties in order
    scores = torch.full(candidates.shape, float("-inf"), device=queries.device)
    at_a_time = RESCORED.get(queries.device.type, RESCORED["cpu"])
    batch = max(1, at_a_time // max(1, candidates.shape[1] * queries.shape[1]))
    for first in range(0, len(queries), batch):
        part = slice(first, first + batch)
        rows = candidates[part].clamp(min=0)  # (b, C)
        vectors = _rows(embeddings, rows).to(queries.device)  # (b, C, D)
        product = (vectors.double() @ queries[part].double().unsqueeze(2)).squeeze(2)  # (b, C)
        # NaN and infinity stay in the product, which is D times smaller than what it was made of.
        if isinstance(embeddings, np.ndarray) and not bool(product.isfinite().all()):
            _refuse_broken_rows(vectors, rows)
        exact = product.float()
        zero = exact == 0
        if zero.any():
            zero[zero.clone()] = ~vectors[zero].any(dim=1)  # 0 because the image is absent
        scores[part] = exact.masked_fill(zero, float("-inf"))
    ruled_out = candidates == NO_IMAGE
    if exclude is not None:
        ruled_out |= candidates == exclude.to(candidates.device).unsqueeze(1)
    scores = scores.masked_fill(ruled_out.to(scores.device), float("-inf"))
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    return _finish(scores[:, :k], candidates.to(scores.device).gather(1, order)[:, :k], k)


def search_in_float64(queries: Tensor, embeddings: Embeddings, k: int, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
    """`exact_search` without candidates: every score in float64, then rounded.

    Shapes:
        queries: (Q, D) float32;  embeddings: (I, D);  exclude: (Q,)
        returns: scores (Q, k) float32, ids (Q, k) int64, on the CPU

    Raises:
        NonFiniteRow: an embedding in a file holds NaN or infinity.
    """
    device = queries.device
    scores = torch.full((len(queries), k), float("-inf"), device=device)
    ids = torch.full((len(queries), k), NO_IMAGE, device=device)
    for start, images in chunks_of(embeddings, _CHUNK["cpu"], device):
        similarity = (queries.double() @ images.double().T).float()  # (Q, chunk)
        if isinstance(embeddings, np.ndarray) and not bool(similarity[0].sum().isfinite()):
            refuse_broken(embeddings)
        similarity[:, ~images.any(dim=1)] = float("-inf")
        if exclude is not None:
            _exclude(similarity, exclude.to(device) - start)
        values, columns = _best_of_chunk(similarity, min(k, len(images)))
        # Earlier chunks hold lower rows and stand first, so a stable sort keeps ties in order.
        merged, order = torch.cat([scores, values], dim=1).sort(dim=1, descending=True, stable=True)
        scores = merged[:, :k]
        ids = torch.cat([ids, columns + start], dim=1).gather(1, order[:, :k])
    return _finish(scores, ids, k)


def _finish(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """On the CPU, k columns wide, −1 and 0 where nothing was found."""
    missing = k - scores.shape[1]
    scores = torch.nn.functional.pad(scores, (0, missing), value=float("-inf"))
    ids = torch.nn.functional.pad(ids, (0, missing), value=NO_IMAGE)
    nothing = scores == float("-inf")
    return scores.masked_fill(nothing, 0.0).cpu(), ids.masked_fill(nothing, NO_IMAGE).cpu()


def _exclude(similarity: Tensor, columns: Tensor) -> None:
    """Rule one column of each row out, where it is in this chunk.

    Shapes:
        similarity: (Q, I), changed in place;  columns: (Q,)
    """
    inside = ((columns >= 0) & (columns < similarity.shape[1])).nonzero().squeeze(1)
    similarity[inside, columns[inside]] = float("-inf")


def chunks_of(embeddings: Embeddings, chunk: int, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """First row and images (chunk, D) of each part of a collection, in float32."""
    for start in range(0, len(embeddings), chunk):
        images = embeddings[start : start + chunk]
        if isinstance(images, np.ndarray):
            with warnings.catch_warnings():  # torch warns of arrays that can't be written to; nothing here writes
                warnings.filterwarnings("ignore", message=".*not writable")
                images = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
        yield start, images.to(device, torch.float32)


def _rows(embeddings: Embeddings, rows: Tensor) -> Tensor:
    """Some rows of a collection, in float32.

    Shapes:
        rows: (Q, C)
        returns: (Q, C, D)
    """
    if isinstance(embeddings, np.ndarray):
        return torch.from_numpy(embeddings[rows.cpu().numpy()].astype(np.float32, copy=False))
    return embeddings[rows.to(embeddings.device)].float()


def _refuse_broken_rows(vectors: Tensor, rows: Tensor) -> None:
    """Name the first of these rows that holds NaN or infinity, if there is one; else it is the query that does.

    Shapes:
        vectors: (Q, C, D);  rows: (Q, C)
    """
    broken = rows[~vectors.isfinite().all(dim=-1).to(rows.device)]
    if len(broken):
        raise NonFiniteRow(int(broken.min()))


def refuse_broken(embeddings: Embeddings) -> None:
    """Name the first row that holds NaN or infinity, if there is one; sums may be infinite where no number is."""
    for start, images in chunks_of(embeddings, _CHUNK["cpu"], torch.device("cpu")):
        broken = (~images.isfinite().all(dim=1)).nonzero()
        if len(broken):
            raise NonFiniteRow(start + int(broken[0]))


def _largest_norm(embeddings: Embeddings) -> float:
    """The highest norm of a row."""
    device = torch.device("cpu") if isinstance(embeddings, np.ndarray) else embeddings.device
    chunks = chunks_of(embeddings, _CHUNK["cpu"], device)
    return float(torch.stack([lengths(images).max() for _, images in chunks]).max())


@contextmanager
def full_precision() -> Iterator[None]:
    """Products as the bounds suppose them, whatever was chosen for training, TF32 say: sums in float32."""
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    cuda = torch.backends.cuda.matmul
    reduced = {f"allow_{kind}_reduced_precision_reduction" for kind in ("fp16", "bf16")}
    chosen = {name: getattr(cuda, name) for name in reduced}
    try:
        for name in chosen:
            setattr(cuda, name, False)
        yield
    finally:
        torch.set_float32_matmul_precision(previous)
        for name, value in chosen.items():
            setattr(cuda, name, value)
