"""A small untrained retriever and a collection for it."""

from pathlib import Path

import numpy as np
import torch
from conftest import write_store

from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.retrieval.dense import DenseFinder
from visual_grounding.retrieval.finder import write_image_ids
from visual_grounding.retrieval.index import Index
from visual_grounding.retrieval.joint_embedding import save_joint_embedding
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.text.words import Vocabulary, WordTokenizer

WORDS = [f"w{number}" for number in range(40)]


def make_retriever(
    folder: Path, seed: int = 0, encoder: str = "sru", pooling: str = "linear", image_features: str | None = "test"
) -> Retriever:
    """A retriever of random weights for images of 6 numbers, which says that it learned from a store of `conftest`."""
    torch.manual_seed(seed)
    sizes = {"vocabulary_size": 44, "text_embed_size": 5, "sru_layers": 1}
    embedding = JointEmbedding(JointEmbeddingConfig(encoder, pooling, image_feature_size=6, joint_size=8, **sizes))
    save_joint_embedding(folder, embedding, WordTokenizer(Vocabulary(WORDS)), f"seed{seed}", None, image_features)
    return Retriever.load(folder)


def make_store(folder: Path) -> Path:
    """20 images of 6 numbers; row 4 is absent."""
    features = np.random.default_rng(0).normal(size=(20, 1, 6))
    features[4] = 0
    return write_store(folder, features)


def make_sentences() -> list[str]:
    """31 sentences of 1 to 8 words; sentence 3 is empty."""
    rng = np.random.default_rng(1)
    lines = [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(31)]
    lines[3] = ""
    return lines


def retrieve_dense(
    retriever: Retriever,
    index: Index,
    sentences: list[str],
    out: Path,
    images_per_sentence: int = 8,
    exclude_keys: list[str] | None = None,
    shard_size: int | None = None,
    **options: int,
) -> dict[str, int]:
    """A table of image ids, by dense retrieval."""
    finder = DenseFinder(retriever, index, images_per_sentence, **options)
    return write_image_ids(finder, sentences, out, exclude_keys, shard_size)
