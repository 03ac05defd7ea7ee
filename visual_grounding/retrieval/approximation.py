"""What an approximate search misses, measured against an exact one."""

import numpy as np
import torch

from .image_ids import NO_IMAGE
from .index import Index
from .retriever import Retriever
from .search import rerank

RECALL_SENTENCES = 256


def recall_of_table(
    retriever: Retriever, index: Index, sentences: list[str], ids: np.ndarray, excluded: np.ndarray | None
) -> float:
    """Share of the N nearest images that a table of an approximate index has, over a seeded sample of sentences.

    An image as near as the N-th nearest counts as one of them: which of several equal ones is found is no loss.

    Shapes:
        ids: (S, N);  excluded: (S,)
    """
    chosen = np.sort(np.random.default_rng(0).permutation(len(sentences))[:RECALL_SENTENCES])
    queries = retriever.encode_text([sentences[number] for number in chosen])
    exclude = None if excluded is None else torch.from_numpy(excluded[chosen])
    best, nearest = index.search_exactly(queries, ids.shape[1], retriever.device, exclude)  # (sample, N)
    nearest[~queries.any(dim=1)] = NO_IMAGE
    last = best.masked_fill(nearest == NO_IMAGE, float("inf")).amin(dim=1, keepdim=True)
    scores, found = rerank(queries, index.embeddings, torch.from_numpy(ids[chosen]).long(), ids.shape[1])
    right = (found != NO_IMAGE) & (scores >= last)
    return float(right.sum() / max(1, int((nearest != NO_IMAGE).sum())))
