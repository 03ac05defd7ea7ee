"""Stores, ids and sentences of realistic sizes, made of random numbers; holes in their files cost no disk."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from visual_grounding.features.columns import Columns
from visual_grounding.features.store import FEATURE_STORE
from visual_grounding.retrieval.image_ids import IMAGE_IDS
from visual_grounding.storage.artefact import FORMAT_VERSION, write_json

WORDS = 20_000  # that random sentences are made of


def sentences(lengths: np.ndarray, seed: int) -> Iterator[str]:
    """Random sentences of these lengths, whose words are as frequent as words are (Zipf)."""
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(10, WORDS + 10)
    words = rng.choice(WORDS, int(lengths.sum()), p=chances / chances.sum())
    for part in np.split(words, np.cumsum(lengths)[:-1]):
        yield " ".join(f"word{word}" for word in part)


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


def write_dictionaries(folder: Path, pieces: int) -> None:
    """fairseq's dictionaries of both languages, with the same pieces."""
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("".join(f"piece{piece} 1\n" for piece in range(pieces)))


def sentence_lengths(count: int, seed: int = 0) -> np.ndarray:
    """Lengths as of Multi30k's sentences in 10,000 pieces: about 15, seldom more than 30.

    Shapes:
        returns: (count,)
    """
    return np.random.default_rng(seed).lognormal(np.log(14), 0.35, count).round().clip(4, 60).astype(np.int64)


def write_regions(folder: Path, images: int, regions: int, size: int, labels: int, seed: int = 0) -> str:
    """A feature store of several regions an image, with boxes and labels; returns its keys' digest."""
    folder.mkdir(parents=True)
    (folder / "keys.txt").write_text("".join(f"photo{row:09d}.jpg\n" for row in range(images)))
    rng, shape = np.random.default_rng(seed), (images, regions)
    corners = rng.uniform(0, 0.5, (*shape, 2))
    columns = {
        "features": rng.standard_normal((*shape, size), dtype=np.float32).astype(np.float16),
        "boxes": np.concatenate([corners, corners + 0.5], axis=-1).astype(np.float32),
        "labels": rng.integers(0, labels, shape).astype(np.int32),
    }
    for name, values in columns.items():
        np.save(folder / f"{name}.npy", values)
    described = Columns(("boxes", "labels"), label_names=[f"label {number}" for number in range(labels)])
    for name, lines in described.files().items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    digest = hashlib.sha256((folder / "keys.txt").read_bytes()).hexdigest()
    meta = {"format": FEATURE_STORE, "version": FORMAT_VERSION, "images": images, "regions": regions, "size": size}
    write_json(folder / "meta.json", {**meta, "keys_sha256": digest, "signature": "random", **described.described()})
    return digest
