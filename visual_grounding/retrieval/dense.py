"""Dense retrieval: the images nearest to each sentence in a retriever's space (VA §2.2; the paper takes 8)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from ..storage.artefact import check_whole
from ..storage.shards import ShardedArtefact
from ..storage.signature import signature
from ..text.lines import sha256_of_lines
from .image_ids import IMAGE_IDS, NO_IMAGE, ImageIds
from .index import Index, check_at_least_one
from .retriever import Retriever
from .search import exact_search


def rows_of_keys(index: Index, keys: list[str]) -> np.ndarray:
    """Row of each key in the index's collection, −1 for a key that isn't there.

    Shapes:
        returns: (S,) int64
    """
    wanted = set(keys)
    rows = {key: row for row, key in enumerate(index.keys()) if key in wanted}
    return np.array([rows.get(key, NO_IMAGE) for key in keys], dtype=np.int64)


def retrieve_dense(
    retriever: Retriever,
    index: Index,
    sentences: list[str],
    out: Path,
    images_per_sentence: int = 8,
    exclude_keys: list[str] | None = None,
    batch_size: int = 256,
    shard_size: int = 8192,
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

    Returns:
        counts: `empty` and `truncated` sentences, `short` ones with fewer than N images, `unknown_excluded` ones whose
        key isn't in the collection.

    Raises:
        InputError: retriever, index, sentences and keys don't belong together, or `out` holds something else.
    """
    index.check_retriever(retriever)
    check_at_least_one(images_per_sentence=images_per_sentence, batch_size=batch_size, shard_size=shard_size)
    excluded = None if exclude_keys is None else _rows_to_exclude(index, exclude_keys, len(sentences))
    text_sha256 = sha256_of_lines(sentences)
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
        artefact.write(shard, *_search_shard(retriever, index, lines, rows, images_per_sentence, batch_size))
    notes = artefact.notes(empty=int, truncated=int, short=int)
    counts = {name: sum(note[name] for note in notes) for name in ("empty", "truncated", "short")}
    if excluded is not None and exclude_keys is not None:
        counts["unknown_excluded"] = sum(bool(key) and int(row) == NO_IMAGE for key, row in zip(exclude_keys, excluded))
    artefact.publish(
        {
            "sentences": len(sentences),
            "images_per_sentence": images_per_sentence,
            "keys_sha256": index.keys_sha256,
            "text_sha256": text_sha256,
            "counts": counts,
            "signature": signature(
                "retrieve",
                method="dense",
                n=images_per_sentence,
                retriever=retriever.sha256[:8],
                keys=index.keys_sha256[:8],
                exclude="no" if exclude_keys is None else "paired",
            ),
        }
    )
    return counts


def _rows_to_exclude(index: Index, keys: list[str], sentences: int) -> np.ndarray:
    """`rows_of_keys`, if the keys can be meant for these sentences and this collection."""
    if len(keys) != sentences:
        raise InputError(
            f"--exclude-paired should have one image key for each of the {sentences} sentences, but has "
            f"{len(keys)} lines."
        )
    rows = rows_of_keys(index, keys)
    if any(keys) and (rows == NO_IMAGE).all():
        raise InputError(
            f"--exclude-paired should hold keys of the collection, but it has none of them, such as "
            f"{next(key for key in keys if key)!r}; the collection's are like {next(iter(index.keys()))!r}."
        )
    return rows


def _search_shard(
    retriever: Retriever, index: Index, lines: list[str], excluded: np.ndarray | None, count: int, batch_size: int
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
    scores, ids = (
        found.numpy() for found in exact_search(queries, index.embeddings, count, retriever.device, exclude=exclude)
    )
    empty |= ~queries.any(dim=1).numpy()  # nothing but unprintable characters
    ids[empty], scores[empty] = NO_IMAGE, 0
    short = int((ids[~empty] == NO_IMAGE).any(axis=1).sum())
    return {"ids": ids, "scores": scores}, {"empty": int(empty.sum()), "truncated": truncated, "short": short}
