"""Feature store -> embeddings of all its images in a retriever's space; continues where it was interrupted.

  visual-grounding index --retriever retriever --image-features features/f30k --out index
  visual-grounding index --retriever retriever --image-features features/large --kind pq --out index-large

Kinds: exact, by torch, on the CPU or a GPU; flat, the same by faiss; ivf, by faiss, looks into the nearest of many
lists of images; pq, likewise, with short codes instead of vectors in memory. ivf and pq may miss images: `retrieve`
says how many. All score what they found exactly. faiss: pip install 'visual_grounding[cpu]', or [gpu].
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--retriever", type=Path, required=True, metavar="DIR", help="made by `export`")
    parser.add_argument("--image-features", type=Path, required=True, metavar="DIR", help="feature store")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="index to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default: cuda where there is one)")
    parser.add_argument("--batch-size", type=int, default=256, help="images at a time (default: %(default)s)")
    parser.add_argument(
        "--shard-size", type=int, default=8192, help="images between two save points (default: %(default)s)"
    )
    parser.add_argument(
        "--kind",
        choices=("exact", "flat", "ivf", "pq"),
        default="exact",
        help="who searches, and how (default: %(default)s)",
    )
    parser.add_argument(
        "--lists", type=int, metavar="N", help="ivf, pq: lists of images (default: 4 times the root of their number)"
    )
    parser.add_argument(
        "--code-bytes", type=int, metavar="N", help="pq: bytes of an image's code (default: one for 8 numbers)"
    )
    parser.add_argument(
        "--faiss-shard-size", type=int, metavar="N", help="images in one file of faiss (default: what 256 MiB hold)"
    )


def run(args: argparse.Namespace) -> None:
    """Build the index."""
    from ..devices import choose_device
    from ..features.store import FeatureStore
    from ..retrieval.index import Index, build_index
    from ..retrieval.retriever import Retriever

    retriever = Retriever.load(args.retriever, str(choose_device(args.device)))
    build_index(
        retriever,
        FeatureStore(args.image_features),
        args.out,
        args.batch_size,
        args.shard_size,
        args.kind,
        args.lists,
        args.code_bytes,
        args.faiss_shard_size,
    )
    index = Index(args.out)
    print(f"{args.out}: {len(index)} images\n{index.signature}")
    if index.absent:
        print(f"{index.absent} of {len(index)} images have no features; they are never retrieved.")
