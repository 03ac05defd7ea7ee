"""Sentences a second of every way to associate images with text, against a million candidates.

  python benchmarks/association.py [--images 1000000 --sentences 512] [--methods keyword scene object dense]

The collection is of random captions, 12 words each, whose words are as frequent as words are (Zipf); word vectors are
random; the noun collection has a noun for every 100 images. `dense` is a retriever of random weights, an SRU and 256
joint dimensions, and its flat index, whose making is no part of the numbers. A finder is opened once, which is shown
apart, and asked a table's shard of sentences at a time. Nothing is judged: how fast is fast enough depends on the
corpus.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from pairs import in_time, machine
from retrieval_world import write_retriever
from retrieval_world import write_store as write_features
from synthetic import WORDS, sentence_lengths, sentences, write_store

from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.finder import open_finder
from visual_grounding.retrieval.index import build_index
from visual_grounding.retrieval.retriever import Retriever

VECTOR_SIZE = 300
METHODS = ("keyword", "scene", "object", "dense")
JOINT_SIZE, FEATURE_SIZE = 256, 16


def write_collection(folder: Path, images: int) -> None:
    """A store of one number an image, captions, nouns, word vectors."""
    write_store(folder / "store", images, 1, np.arange(images))
    with open(folder / "captions.tsv", "w", encoding="utf-8") as file:
        for row, caption in enumerate(sentences(np.full(images, 12), seed=1)):
            file.write(f"photo{row:09d}.jpg\t{caption}\n")
    with open(folder / "nouns.tsv", "w", encoding="utf-8") as file:
        file.writelines(f"word{row // 100 % WORDS}\t\tphoto{row:09d}.jpg\n" for row in range(images))
    vectors = np.random.default_rng(2).normal(size=(WORDS, VECTOR_SIZE))
    with open(folder / "vectors.txt", "w", encoding="utf-8") as file:
        file.write(f"{WORDS} {VECTOR_SIZE}\n")
        for word, vector in enumerate(vectors):
            file.write(f"word{word} {' '.join(f'{value:.3f}' for value in vector)}\n")


def write_index(folder: Path, images: int) -> None:
    """A retriever and an index of random images."""
    write_retriever(folder / "retriever", FEATURE_SIZE, JOINT_SIZE, "sru")
    store = FeatureStore(write_features(folder / "features", images, FEATURE_SIZE))
    build_index(Retriever.load(folder / "retriever"), store, folder / "index")


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--count", type=int, default=16, help="images of a sentence")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    args = parser.parse_args()
    print(machine())
    lines = list(sentences(sentence_lengths(args.sentences), seed=3))
    with tempfile.TemporaryDirectory() as name:
        write_collection(Path(name), args.images)
        if "dense" in args.methods:
            write_index(Path(name), args.images)
        store = f"--image-features {name}/store"
        flags = {
            "keyword": f"--captions {name}/captions.tsv {store}",
            "scene": f"--captions {name}/captions.tsv --word-vectors {name}/vectors.txt {store}",
            "dense": f"--retriever {name}/retriever --index {name}/index --device cpu",
            "object": f"--nouns {name}/nouns.tsv --word-vectors {name}/vectors.txt --tagger none {store}",
        }
        for method in in_time(args.methods):
            start = time.perf_counter()
            finder = open_finder(f"{method} {flags[method]} -n {args.count}")
            opened = time.perf_counter() - start
            finder.find(lines[:8])
            start = time.perf_counter()
            found = finder.find(lines)
            rate = len(lines) / (time.perf_counter() - start)
            some = (found.ids >= 0).any(axis=1).mean()
            measured = f"{rate:.1f} sentences/s, opened in {opened:.1f} s"
            print(f"{method}: {measured}; {some:.1%} of the sentences have images", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
