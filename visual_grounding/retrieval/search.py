"""Exact search: the k images with the highest inner product, on any device, without holding the collection in memory.

A full sort isn't needed: of a block of 32 images at most k can be among the best k, and a block that holds one of them
is among the k blocks with the highest maxima. So the maxima of blocks are searched first, then the k best blocks.
Ties go to the lower row at every step, so the result is that of a stable sort over the whole collection.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from .image_ids import NO_IMAGE

_BLOCK = 32


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest entries of each row, best first, equal ones by column; k may not exceed the number of columns.

    >>> top_k(torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]]), 3)[1].tolist()
    [[1, 3, 2]]

    Shapes:
        scores: (Q, I) without NaN
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
    above = scores > threshold
    equal = scores == threshold
    room = k - above.sum(dim=1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=1) <= room))
    return chosen.nonzero()[:, 1].view(len(scores), k)


def _best_of_chunk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`top_k`, but for many columns it looks only into the k best blocks.

    Shapes:
        scores: (Q, I)
        returns: values (Q, k), columns (Q, k)
    """
    queries, images = scores.shape
    blocks = images // _BLOCK
    if blocks <= 2 * k:
        return top_k(scores, k)
    head = scores[:, : blocks * _BLOCK].view(queries, blocks, _BLOCK)
    best_blocks = top_k(head.amax(dim=2), k)[1].sort(dim=1).values  # (Q, k) ascending, so that columns stay in order
    inside = torch.arange(_BLOCK, device=scores.device)
    columns = (best_blocks.unsqueeze(2) * _BLOCK + inside).flatten(1)  # (Q, k * 32)
    rest = torch.arange(blocks * _BLOCK, images, device=scores.device).expand(queries, -1)
    columns = torch.cat([columns, rest], dim=1)
    values, order = top_k(scores.gather(1, columns), k)
    return values, columns.gather(1, order)


@torch.no_grad()
def exact_search(
    queries: Tensor,
    embeddings: np.ndarray | Tensor,
    k: int,
    device: str | torch.device = "cpu",
    chunk: int = 8192,
    exclude: Tensor | None = None,
    query_chunk: int = 1024,
) -> tuple[Tensor, Tensor]:
    """The k rows of a collection with the highest inner product, in float32; ties go to the lower row.

    A row that is all zero is absent and never returned. Where fewer than k rows are left, the id is −1 and the score 0.

    Args:
        queries: (Q, D).
        embeddings: (I, D), may be memory-mapped: one chunk at a time is read.
        k: results per query.
        device: where to compute.
        chunk: images at a time.
        exclude: (Q,) a row that must not be returned, −1 for none.
        query_chunk: queries at a time.

    Shapes:
        queries: (Q, D);  embeddings: (I, D);  exclude: (Q,)
        returns: scores (Q, k) float32, ids (Q, k) int64, on the CPU
    """
    queries = queries.to(device, torch.float32)
    exclude = None if exclude is None else exclude.to(device)
    scores = torch.full((len(queries), k), float("-inf"), device=device)
    ids = torch.full((len(queries), k), NO_IMAGE, device=device)
    memory = torch.empty(min(query_chunk, len(queries)) * min(chunk, len(embeddings)), device=device)
    for start, images in _chunks(embeddings, chunk, device):
        absent = torch.linalg.vector_norm(images, dim=1) == 0
        for first in range(0, len(queries), query_chunk):
            rows = slice(first, first + query_chunk)
            shape = len(queries[rows]), len(images)
            similarity = memory[: shape[0] * shape[1]].view(shape)  # (query chunk, chunk), always the same memory
            torch.mm(queries[rows], images.T, out=similarity)
            if absent.any():
                similarity[:, absent] = float("-inf")
            if exclude is not None:
                _exclude(similarity, exclude[rows] - start)
            values, columns = _best_of_chunk(similarity, min(k, similarity.shape[1]))
            # Earlier chunks hold lower rows and stand first, so a stable sort keeps ties in order.
            merged, order = torch.cat([scores[rows], values], dim=1).sort(dim=1, descending=True, stable=True)
            scores[rows] = merged[:, :k]
            ids[rows] = torch.cat([ids[rows], columns + start], dim=1).gather(1, order[:, :k])
    nothing = scores == float("-inf")
    return scores.masked_fill(nothing, 0.0).cpu(), ids.masked_fill(nothing, NO_IMAGE).cpu()


def _chunks(embeddings: np.ndarray | Tensor, chunk: int, device: str | torch.device) -> Iterator[tuple[int, Tensor]]:
    """First row and images (chunk, D) of each part of a collection, in float32; each is valid until the next."""
    buffer = None
    for start in range(0, len(embeddings), chunk):
        images = embeddings[start : start + chunk]
        if isinstance(images, np.ndarray):
            if buffer is None:
                buffer = np.empty(images.shape, dtype=np.float32)
            np.copyto(buffer[: len(images)], images)  # memory-mapped arrays can't be written to, and torch insists
            images = torch.from_numpy(buffer[: len(images)])
        yield start, images.to(device, torch.float32)


def _exclude(similarity: Tensor, columns: Tensor) -> None:
    """Rule one column of each row out, where it is in this chunk.

    Shapes:
        similarity: (Q, I), changed in place;  columns: (Q,)
    """
    inside = ((columns >= 0) & (columns < similarity.shape[1])).nonzero().squeeze(1)
    similarity[inside, columns[inside]] = float("-inf")
