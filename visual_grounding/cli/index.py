"""Feature store -> embeddings of all its images in a retriever's space; continues where it was interrupted.

  visual-grounding index --retriever retriever --image-features features/f30k --out index
  visual-grounding index --retriever retriever --image-features features/large --kind pq --out index-large
  visual-grounding index --retriever retriever --images flickr30k/ --out index

Kinds: exact, by torch, on the CPU or a GPU; flat, the same by faiss; ivf, by faiss, which searches the nearest of many
lists of images (`retrieve --nprobe`); pq, likewise, with short codes instead of vectors in memory. ivf and pq may miss
images: `retrieve` says how many. All score what they found exactly. faiss: pip install 'visual_grounding[cpu]', or
[gpu].

Features are those of the network, and its choices, that the retriever was trained on, of any photos; others that only
fit by size are refused, or taken with --image-features-unchecked.

--images is for a retriever that was trained with its image network (--image-folder): it needs no features. Keys are
those that `extract` gives the same images, so a feature store of them fits the image ids.
"""

import argparse
from pathlib import Path

from .features_unchecked import add_features_unchecked, warn_of_unknown_making
from .image_source import add_image_columns, named_sources, open_image_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--retriever", type=Path, required=True, metavar="DIR", help="made by `export`")
    images = parser.add_mutually_exclusive_group(required=True)
    images.add_argument("--image-features", type=Path, metavar="DIR", help="feature store")
    images.add_argument(
        "--images",
        action="append",
        metavar="SOURCE",
        help="the images themselves, as for `extract`; repeatable: sources add up",
    )
    add_image_columns(parser)
    add_features_unchecked(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="index to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default: cuda where there is one)")
    parser.add_argument("--batch-size", type=int, help="images at a time (default: 256, with --images 32)")
    parser.add_argument(
        "--shard-size", type=int, default=8192, help="images between two save points (default: %(default)s)"
    )
    parser.add_argument(
        "--kind",
        choices=("exact", "flat", "ivf", "pq"),
        default="exact",
        help="what searches, and how (default: %(default)s)",
    )
    parser.add_argument(
        "--lists", type=int, metavar="N", help="ivf, pq: lists of images (default: 4 times the root of their number)"
    )
    parser.add_argument(
        "--code-bytes", type=int, metavar="N", help="pq: bytes of an image's code (default: one for 8 numbers)"
    )
    parser.add_argument(
        "--faiss-file-size",
        "--faiss-shard-size",
        type=int,
        metavar="N",
        help="images in one file of faiss (default: what 256 MiB hold)",
    )


def run(args: argparse.Namespace) -> None:
    """Build the index.

    Raises:
        InputError: the retriever takes no pixels, or as `build_index`.
    """
    from ..devices import choose_device, cores
    from ..errors import InputError
    from ..features.pixels import PixelSource
    from ..features.store import FeatureStore
    from ..retrieval.index import Index, build_index
    from ..retrieval.retriever import Retriever

    retriever = Retriever.load(args.retriever, str(choose_device(args.device)))
    store: FeatureStore | PixelSource
    if args.images is None:
        if args.image_column or args.key_column:
            raise InputError("columns are those of pictures in parquet, but a feature store is given.", "images")
        store = FeatureStore(args.image_features)
        warn_of_unknown_making(retriever, args.image_features_unchecked)
    elif retriever.preprocessing is None:
        raise InputError(
            f"--images needs a retriever that was trained with its image network, but {args.retriever} was trained on "
            "features: give --image-features DIR."
        )
    else:
        store = PixelSource(open_image_source(args), retriever.preprocessing, named_sources(args), cores())
    batch_size = (256 if args.images is None else 32) if args.batch_size is None else args.batch_size
    build_index(
        retriever,
        store,
        args.out,
        batch_size,
        args.shard_size,
        args.kind,
        args.lists,
        args.code_bytes,
        args.faiss_file_size,
        args.image_features_unchecked,
    )
    index = Index(args.out)
    print(f"{args.out}: {len(index)} images\n{index.signature}")
    if index.absent:
        why = "have no features" if args.images is None else "can't be read"
        print(f"{index.absent} of {len(index)} images {why}; they are never retrieved.")
