"""How well sentences, or their tokens, find their images and images their sentences: ranks, recall, median rank.

A rank is exact: the number of candidates that score higher, plus the equal ones in a lower row, plus 1. It is the place
at which `exact_search` returns the candidate. A vector of zeros is an absent image or an empty sentence: as a candidate
it is behind all others, and as a query it finds nothing.
"""

import numpy as np
import torch
from torch import Tensor

RECALL_AT = (1, 5, 10)
DIRECTIONS = ("text_to_image", "image_to_text")
TOKEN_DIRECTION = "token_to_image"


def recall_at_k(ranks: np.ndarray, k: int) -> float:
    """Fraction of queries whose answer is among the first k.

    >>> recall_at_k(np.array([1, 3, 7, 2]), k=2)
    0.5

    Shapes:
        ranks: (Q,)
    """
    return float(np.mean(ranks <= k)) if len(ranks) else 0.0


def median_rank(ranks: np.ndarray) -> float:
    """The rank that half of the queries reach; 1 is best.

    >>> median_rank(np.array([1, 3, 7, 2]))
    2.5

    Shapes:
        ranks: (Q,)
    """
    return float(np.median(ranks)) if len(ranks) else 0.0


def ranks_of_answers(similarity: Tensor, answers: Tensor) -> Tensor:
    """Rank of each query's answer, counted from 1; behind all others where its score is NaN.

    >>> similarity = torch.tensor([[0.9, 0.1, 0.5], [0.4, 0.4, 0.4]])
    >>> ranks_of_answers(similarity, torch.tensor([2, 1])).tolist()  # 0.9 is before 0.5; the tie goes to the lower row
    [2, 2]

    Shapes:
        similarity: (Q, I);  answers: (Q,) the column of each answer
        returns: (Q,)
    """
    score = similarity.gather(1, answers.unsqueeze(1))  # (Q, 1)
    columns = torch.arange(similarity.shape[1], device=similarity.device)
    after = (similarity < score) | ((similarity == score) & (columns >= answers.unsqueeze(1)))
    return (~after).sum(dim=1) + 1


def retrieval_ranks(
    text: Tensor, images: Tensor, image_of_text: Tensor, chunk: int = 1024
) -> tuple[np.ndarray, np.ndarray]:
    """Ranks in both directions over a whole collection. An image's rank is that of its best caption.

    Shapes:
        text: (S, D);  images: (I, D);  image_of_text: (S,) the row in `images` that each sentence describes
        returns: text to image (S,), image to text (I',), I' the images that have a sentence
    """
    text_ranks = ranks_among(text, images, image_of_text, chunk)
    described = image_of_text.unique()
    image_ranks = []
    for start in range(0, len(described), chunk):
        rows = described[start : start + chunk]
        similarity = _similarity(images[rows], text)  # (chunk, S)
        own = image_of_text.unsqueeze(0) == rows.unsqueeze(1)
        best = similarity.masked_fill(~own, float("-inf")).amax(dim=1, keepdim=True)
        first_best = (own & (similarity == best)).int().argmax(dim=1)  # argmax gives the first: the lower row
        image_ranks.append(ranks_of_answers(similarity, first_best))
    nothing = torch.zeros(0, dtype=torch.long, device=text.device)
    return text_ranks.cpu().numpy(), torch.cat([nothing, *image_ranks]).cpu().numpy()


def ranks_among(queries: Tensor, candidates: Tensor, answers: Tensor, chunk: int = 1024) -> Tensor:
    """Rank of each query's answer among all candidates; `chunk` queries are compared at a time.

    Shapes:
        queries: (Q, D);  candidates: (I, D);  answers: (Q,) rows of `candidates`
        returns: (Q,)
    """
    ranks = [
        ranks_of_answers(_similarity(queries[start : start + chunk], candidates), answers[start : start + chunk])
        for start in range(0, len(queries), chunk)
    ]
    return torch.cat([torch.zeros(0, dtype=torch.long, device=queries.device), *ranks])


def _similarity(queries: Tensor, candidates: Tensor) -> Tensor:
    """Inner products; −∞ for a candidate that is absent, NaN for a query that is.

    Shapes:
        queries: (Q, D);  candidates: (I, D)
        returns: (Q, I)
    """
    similarity = (queries @ candidates.T).masked_fill(~candidates.any(dim=1), float("-inf"))
    return similarity.masked_fill(~queries.any(dim=1, keepdim=True), float("nan"))


def recall_summary(text: Tensor, images: Tensor, image_of_text: Tensor) -> dict[str, float]:
    """R@1, R@5, R@10 and median rank in both directions, and the sum of the six recalls. Fractions, not percent.

    Shapes:
        text: (S, D);  images: (I, D);  image_of_text: (S,)
    """
    summary = {"recall_sum": 0.0}
    for direction, ranks in zip(DIRECTIONS, retrieval_ranks(text, images, image_of_text)):
        summary |= _summary_of(direction, ranks)
        for k in RECALL_AT:
            summary["recall_sum"] += summary[f"{direction}_r{k}"]
    return summary


def token_recall_summary(tokens: Tensor, images: Tensor, image_of_text: Tensor) -> dict[str, float]:
    """R@1, R@5, R@10 and median rank of the images that tokens find by themselves: their sentence's own is right.

    Every token is a query. Deviation: the paper's code counts those who are better than a token's own image from 1 on,
    so that its R@1 is R@2; this is exact.

    Shapes:
        tokens: (S, T, D), 0 where there is no token;  images: (I, D);  image_of_text: (S,)
    """
    real = tokens.any(dim=2)  # (S, T)
    answers = image_of_text.unsqueeze(1).expand(real.shape)[real]  # (Q,)
    return _summary_of(TOKEN_DIRECTION, ranks_among(tokens[real], images, answers).cpu().numpy())


def _summary_of(direction: str, ranks: np.ndarray) -> dict[str, float]:
    recalls = {f"{direction}_r{k}": recall_at_k(ranks, k) for k in RECALL_AT}
    return {**recalls, f"{direction}_median_rank": median_rank(ranks)}
