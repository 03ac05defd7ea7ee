"""Paired images: each sentence gets the one image that its corpus has for it."""

from pathlib import Path

import numpy as np

from ..errors import InputError
from ..features.store import FeatureStore
from ..storage.shards import ShardedArtefact
from ..storage.signature import signature
from ..text.lines import sha256_of_lines
from .image_ids import IMAGE_IDS, NO_IMAGE, ImageIds


def retrieve_paired(
    store: FeatureStore, keys: list[str], out: Path, sentences: list[str] | None = None, strict: bool = False
) -> dict[str, int]:
    """Write a table with N = 1: the row of each sentence's key, score 1; −1 for an empty or unknown key, score 0.

    Args:
        store: the images.
        keys: one image key a sentence; empty = none.
        out: the table to make.
        sentences: the text, to check that it has as many lines.
        strict: an unknown key is an error.

    Returns:
        counts: `empty` and `unknown` keys.

    Raises:
        InputError: text and keys differ in length, an unknown key with `strict`, or `out` holds something else.
    """
    if sentences is not None and len(sentences) != len(keys):
        raise InputError(
            f"--keys should have one image key for each of the {len(sentences)} sentences of --text, but has "
            f"{len(keys)} lines."
        )
    rows = store.rows_of(key for key in keys if key)
    unknown = [(line, key) for line, key in enumerate(keys, 1) if key and key not in rows]
    if unknown and strict:
        line, key = unknown[0]
        raise InputError(
            f"every key should be in feature store {store.folder}, but {len(unknown)} of {len(keys)} aren't, the first "
            f"{key!r} in line {line}. Leave --strict away to give these sentences no image."
        )
    plan = {
        "method": "paired",
        "image_keys_sha256": sha256_of_lines(keys),
        "keys_sha256": store.keys_sha256,
        "text_sha256": None if sentences is None else sha256_of_lines(sentences),
    }
    arrays: dict[str, tuple[tuple[int, ...], str]] = {"ids": ((1,), "int32"), "scores": ((1,), "float16")}
    artefact = ShardedArtefact(out, IMAGE_IDS, plan, len(keys), max(len(keys), 1), arrays)
    if artefact.finished:
        return ImageIds(out).counts
    ids = np.array([rows.get(key, NO_IMAGE) for key in keys], dtype=np.int32).reshape(-1, 1)  # (S, 1)
    for shard in artefact.missing():
        artefact.write(shard, {"ids": ids, "scores": (ids != NO_IMAGE).astype(np.float16)})
    counts = {"empty": keys.count(""), "unknown": len(unknown)}
    artefact.publish(
        {
            "sentences": len(keys),
            "images_per_sentence": 1,
            "keys_sha256": store.keys_sha256,
            "text_sha256": plan["text_sha256"],
            "counts": counts,
            "signature": signature("retrieve", method="paired", n=1, keys=store.keys_sha256[:8]),
        }
    )
    return counts
