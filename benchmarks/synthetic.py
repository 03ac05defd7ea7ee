"""Stores, ids and sentences of realistic sizes, made of random numbers; holes in their files cost no disk."""

import hashlib
from pathlib import Path

import numpy as np

from visual_grounding.features.store import FEATURE_STORE
from visual_grounding.retrieval.image_ids import IMAGE_IDS
from visual_grounding.storage.artefact import FORMAT_VERSION, write_json


def write_store(folder: Path, images: int, size: int, filled: np.ndarray, seed: int = 0) -> str:
    """A feature store of one region an image, in which only the rows `filled` hold numbers; returns its keys' digest.

    The other rows are a hole in the file: they read as zeros, absent, and take no space.
    """
    folder.mkdir(parents=True)
    digest = hashlib.sha256()
    with open(folder / "keys.txt", "wb") as file:
        for start in range(0, images, 100_000):
            block = b"".join(b"photo%09d.jpg\n" % row for row in range(start, min(start + 100_000, images)))
            digest.update(block)
            file.write(block)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float16, (images, 1, size))
    rng = np.random.default_rng(seed)
    for rows in np.array_split(np.sort(filled), max(1, len(filled) // 1000)):
        features[rows, 0] = rng.standard_normal((len(rows), size), dtype=np.float32)
    features.flush()
    meta = {"format": FEATURE_STORE, "version": FORMAT_VERSION, "images": images, "regions": 1, "size": size}
    write_json(folder / "meta.json", {**meta, "keys_sha256": digest.hexdigest(), "signature": "random"})
    return digest.hexdigest()


def write_ids(folder: Path, ids: np.ndarray, keys_sha256: str) -> None:
    """A table of image ids (S, N)."""
    folder.mkdir(parents=True)
    np.save(folder / "ids.npy", ids.astype(np.int32))
    np.save(folder / "scores.npy", np.zeros(ids.shape, np.float16))
    meta = {"format": IMAGE_IDS, "version": FORMAT_VERSION, "sentences": len(ids), "images_per_sentence": ids.shape[1]}
    write_json(folder / "meta.json", {**meta, "keys_sha256": keys_sha256, "signature": "random"})


def sentence_lengths(count: int, seed: int = 0) -> np.ndarray:
    """Lengths as of Multi30k's sentences in 10,000 pieces: about 15, seldom more than 30.

    Shapes:
        returns: (count,)
    """
    return np.random.default_rng(seed).lognormal(np.log(14), 0.35, count).round().clip(4, 60).astype(np.int64)
