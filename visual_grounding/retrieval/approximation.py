"""What an approximate search misses, measured against an exact one on a sample of sentences."""

import numpy as np
import torch
from torch import Tensor

from .image_ids import NO_IMAGE
from .index import Index
from .search import rerank

SAMPLED = 256


def sample_of(sentences: int) -> np.ndarray:
    """Numbers of a seeded sample of sentences, ascending.

    Shapes:
        returns: (at most 256,)
    """
    return np.sort(np.random.default_rng(0).permutation(sentences)[:SAMPLED])


def recall_of_ids(
    index: Index, queries: Tensor, ids: np.ndarray, excluded: np.ndarray | None, device: str = "cpu"
) -> float:
    """Share of the N nearest images that a search of an approximate index found.

    An image as near as the N-th nearest counts as one of them: which of several equal ones is found is no loss. A
    query of zeros is a sentence that gets no image, and isn't counted.

    Shapes:
        queries: (Q, D);  ids: (Q, N);  excluded: (Q,)

    Raises:
        InputError: as `Index.search`.
    """
    exclude = None if excluded is None else torch.from_numpy(excluded)
    best, nearest = index.search_exactly(queries, ids.shape[1], device, exclude)  # (Q, N)
    nearest[~queries.any(dim=1)] = NO_IMAGE
    last = best.masked_fill(nearest == NO_IMAGE, float("inf")).amin(dim=1, keepdim=True)
    scores, found = rerank(queries, index.embeddings, torch.from_numpy(ids).long(), ids.shape[1])
    right = (found != NO_IMAGE) & (scores >= last)
    return float(right.sum() / max(1, int((nearest != NO_IMAGE).sum())))
