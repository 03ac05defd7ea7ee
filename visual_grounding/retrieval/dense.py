"""Dense retrieval: the images nearest to each sentence in a retriever's space (VA §2.2; the paper takes 8)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..storage.artefact import check_whole, open_array
from ..storage.ranks import this_rank
from ..storage.shards import ShardedArtefact
from ..storage.signature import signature
from ..text.lines import sha256_of_lines
from .exclusion import rows_to_exclude
from .image_ids import IMAGE_IDS, NO_IMAGE, ImageIds
from .index import Index, check_at_least_one
from .retriever import Retriever
from .search import settle

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
        probes: lists of an approximate index that are searched for each sentence (default: `FaissPlan.probes`).

    Returns:
        counts: `empty` and `truncated` sentences, `short` ones with fewer than N images, `unknown_excluded` ones whose
        key isn't in the collection.

    Raises:
        InputError: retriever, index, sentences and keys don't belong together, or `out` holds something else.
    """
    index.check_retriever(retriever)
    check_at_least_one(images_per_sentence=images_per_sentence, batch_size=batch_size, shard_size=shard_size)
    excluded = None if exclude_keys is None else rows_to_exclude(index, exclude_keys, len(sentences))
    text_sha256 = sha256_of_lines(sentences)
    probes = index.probes(probes) or None
    plan: dict[str, Any] = {
        "method": "dense",
        "retriever_sha256": retriever.sha256,
        "keys_sha256": index.keys_sha256,
        "index": index.signature,
        "text_sha256": text_sha256,
        "exclude_sha256": None if exclude_keys is None else sha256_of_lines(exclude_keys),
        "n": images_per_sentence,
        "batch_size": batch_size,
        "device": torch.device(retriever.device).type,
        **({} if probes is None else {"probes": probes}),
    }
    arrays: dict[str, tuple[tuple[int, ...], str]] = {
        "ids": ((images_per_sentence,), "int32"),
        "scores": ((images_per_sentence,), "float16"),
    }
    artefact = ShardedArtefact(out, IMAGE_IDS, plan, len(sentences), shard_size, arrays)
    if artefact.finished:
        return ImageIds(out).counts
    for shard in artefact.missing():
        check_whole(index.folder / "embeddings.npy", index.embeddings.nbytes)
        lines = sentences[shard.start : shard.stop]
        rows = None if excluded is None else excluded[shard.start : shard.stop]
        artefact.write(shard, *_search_shard(retriever, index, lines, rows, images_per_sentence, batch_size, probes))
    notes = artefact.notes(empty=int, truncated=int, short=int)
    counts = {name: sum(note[name] for note in notes) for name in ("empty", "truncated", "short")}
    if excluded is not None and exclude_keys is not None:
        counts["unknown_excluded"] = sum(bool(key) and int(row) == NO_IMAGE for key, row in zip(exclude_keys, excluded))
    recall: dict[str, Any] = {}
    if index.approximate and this_rank().leads:
        ids = open_array(artefact.files / "ids.npy", (len(sentences), images_per_sentence), "int32")
        recall = {"recall": recall_of_table(retriever, index, sentences, ids, excluded)}
    artefact.publish(
        {
            "sentences": len(sentences),
            "images_per_sentence": images_per_sentence,
            "keys_sha256": index.keys_sha256,
            "text_sha256": text_sha256,
            "counts": counts,
            **recall,
            "signature": signature(
                "retrieve",
                method="dense",
                n=images_per_sentence,
                retriever=retriever.sha256[:8],
                keys=index.keys_sha256[:8],
                exclude="no" if exclude_keys is None else "paired",
                **({} if probes is None else {"kind": index.kind, "probes": probes}),
                **{name: f"{value:.4f}" for name, value in recall.items()},
            ),
        }
    )
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
    scores, found = settle(queries, index.embeddings, torch.from_numpy(ids[chosen]).long(), ids.shape[1])
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
