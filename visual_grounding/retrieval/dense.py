"""Dense retrieval: the images nearest to each sentence in a retriever's space (VA §2.2; the paper takes 8)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..storage.artefact import check_whole, open_array
from ..storage.ranks import this_rank
from .ids_writer import ImageIdsWriter
from .image_ids import NO_IMAGE
from .index import Index, check_at_least_one
from .retriever import Retriever
from .search import rerank

RECALL_SENTENCES = 256


def retrieve_dense(
    retriever: Retriever,
    index: Index,
    sentences: list[str],
    out: Path,
    images_per_sentence: int = 8,
    exclude_keys: list[str] | None = None,
    batch_size: int = 256,
    shard_size: int = 8192,
    probes: int | None = None,
) -> dict[str, int]:
    """Write the image ids of every sentence, best first, with cosines as scores; continues where it was interrupted.

    Args:
        retriever: the one that made the index.
        index: the images.
        sentences: one row each; an empty one gets no image.
        out: the table to make.
        images_per_sentence: N; a row is filled up with −1 where the collection has fewer images.
        exclude_keys: for each sentence the image that must not be found, e.g. its own.
        batch_size: sentences encoded at a time.
        shard_size: sentences between two save points.
        probes: lists of an approximate index that are searched for each sentence (default: `FaissSettings.probes`).

    Returns:
        counts: `empty` and `truncated` sentences, `short` ones with fewer than N images, `unknown_excluded` ones whose
        key isn't in the collection.

    Raises:
        InputError: retriever, index, sentences and keys don't belong together, or `out` holds something else.
    """
    index.check_retriever(retriever)
    check_at_least_one(images_per_sentence=images_per_sentence, batch_size=batch_size, shard_size=shard_size)
    probes = index.probes(probes) or None
    plan: dict[str, Any] = {
        "retriever_sha256": retriever.sha256,
        "index": index.signature,
        "batch_size": batch_size,
        "device": torch.device(retriever.device).type,
        **({} if probes is None else {"probes": probes}),
    }
    writer = ImageIdsWriter(out, "dense", plan, index, sentences, images_per_sentence, exclude_keys, shard_size)
    before = writer.finished_counts()
    if before is not None:
        return before
    for shard, lines, rows in writer.missing():
        check_whole(index.folder / "embeddings.npy", index.embeddings.nbytes)
        found = _search_shard(retriever, index, lines, rows, images_per_sentence, batch_size, probes)
        writer.artefact.write(shard, *found)
    counts = writer.counts(("empty", "truncated", "short"))
    recall: dict[str, Any] = {}
    if index.approximate and this_rank().leads:
        ids = open_array(writer.artefact.files / "ids.npy", (len(sentences), images_per_sentence), "int32")
        recall = {"recall": recall_of_table(retriever, index, sentences, ids, writer.excluded)}
    approximate = {} if probes is None else {"kind": index.kind, "probes": probes}
    rounded = {name: f"{value:.4f}" for name, value in recall.items()}
    writer.publish(counts, recall, retriever=retriever.sha256[:8], **approximate, **rounded)
    return counts


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


def _search_shard(
    retriever: Retriever,
    index: Index,
    lines: list[str],
    excluded: np.ndarray | None,
    count: int,
    batch_size: int,
    probes: int | None,
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Ids and scores of some sentences, and what there is to say about them.

    Shapes:
        excluded: (S,)
        returns: {"ids": (S, N), "scores": (S, N)}, counts
    """
    empty = np.array([not line.strip() for line in lines], dtype=bool)
    tokens, truncated = retriever.tokenize(lines)
    queries = retriever.encode_tokens(tokens, batch_size)
    exclude = None if excluded is None else torch.from_numpy(excluded)
    scores, ids = (found.numpy() for found in index.search(queries, count, retriever.device, exclude, probes))
    empty |= ~queries.any(dim=1).numpy()  # nothing but unprintable characters
    ids[empty], scores[empty] = NO_IMAGE, 0
    short = int((ids[~empty] == NO_IMAGE).any(axis=1).sum())
    return {"ids": ids, "scores": scores}, {"empty": int(empty.sum()), "truncated": truncated, "short": short}
