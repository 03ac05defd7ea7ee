"""Collections and a retriever to measure with: random numbers, written as quickly as the disk takes them."""

import argparse
from pathlib import Path

import numpy as np
import torch

from visual_grounding.features.store import FEATURE_STORE
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.retrieval.joint_embedding import save_joint_embedding
from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.shards import ShardedArtefact
from visual_grounding.text.words import Vocabulary, WordTokenizer

WORDS = [f"w{number}" for number in range(1000)]
SHARD = 65536


def write_store(folder: Path, images: int, size: int) -> Path:
    """A feature store of random images with keys of a usual length."""
    artefact = ShardedArtefact(folder, FEATURE_STORE, {}, images, SHARD, {"features": ((1, size), "float16")})
    for shard in artefact.missing():
        rng = np.random.default_rng(shard.number)
        features = rng.standard_normal((shard.stop - shard.start, 1, size), dtype=np.float32)
        artefact.write(shard, {"features": features})
    artefact.add_lines("keys.txt", (f"photos/{row:012d}.jpg" for row in range(images)))
    digest = sha256_of_file(artefact.files / "keys.txt")
    artefact.publish({"images": images, "regions": 1, "size": size, "keys_sha256": digest, "signature": "random"})
    return folder


def write_retriever(folder: Path, image_size: int, joint_size: int, encoder: str) -> Path:
    """A retriever of random weights."""
    torch.manual_seed(0)
    config = JointEmbeddingConfig(
        encoder,
        "linear",
        image_feature_size=image_size,
        joint_size=joint_size,
        vocabulary_size=len(WORDS) + 4,
        text_embed_size=min(joint_size, 620),
    )
    save_joint_embedding(folder, JointEmbedding(config), WordTokenizer(Vocabulary(WORDS)), "random")
    return folder


def write_text(path: Path, sentences: int, words: int = 12) -> Path:
    """Sentences of random words."""
    rng = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(sentences):
            file.write(" ".join(rng.choice(WORDS, words)) + "\n")
    return path


def write_captions(path: Path, images: int) -> Path:
    """One caption of random words for each image."""
    rng = np.random.default_rng(1)
    with open(path, "w", encoding="utf-8") as file:
        for row in range(images):
            file.write(f"photos/{row:012d}.jpg\t{' '.join(rng.choice(WORDS, 8))}\n")
    return path


def positive(text: str) -> int:
    """For argparse: a whole number above 0."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"should be at least 1, but is {text}")
    return int(text)
