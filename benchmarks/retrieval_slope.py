"""How long index and retrieve would take for a million sentences over a million images, from measured slopes.

  python benchmarks/retrieval_slope.py [--images 20000 --sentences 4096 --size 2048 --joint-size 512] [--device cuda]

index is linear in the images I. retrieve is linear in the sentences S (encoding them) and in their product S·I (the
exact search). Each slope is the least-squares one over three sizes, of what the library's own functions take. No goal:
it prints the estimate.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from pairs import in_time, machine, seconds_of
from retrieval_world import positive, write_retriever, write_store, write_text

from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.dense import DenseFinder
from visual_grounding.retrieval.finder import write_image_ids
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.storage.lines import read_lines

MILLION = 1_000_000


def fit(terms: list[list[float]], seconds: list[float]) -> np.ndarray:
    """Least-squares factors, none below 0, of the terms of each measurement.

    Shapes:
        terms: (measurements, factors)
        returns: (factors,)
    """
    return np.linalg.lstsq(np.array(terms), np.array(seconds), rcond=None)[0].clip(min=0)


def main() -> int:
    """Measure and extrapolate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=positive, default=20_000, help="most images (default: %(default)s)")
    parser.add_argument("--sentences", type=positive, default=4096, help="most sentences (default: %(default)s)")
    parser.add_argument("--size", type=positive, default=2048, help="F (default: %(default)s)")
    parser.add_argument("--joint-size", type=positive, default=512, help="D (default: %(default)s)")
    parser.add_argument("--text-encoder", default="sru", choices=("bag", "sru"), help="(default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    args = parser.parse_args()
    print(machine())
    index_terms, index_seconds = [], []
    retrieve_terms, retrieve_seconds = [], []
    with tempfile.TemporaryDirectory(prefix="retrieval-slope-") as name:
        folder = Path(name)
        write_retriever(folder / "retriever", args.size, args.joint_size, args.text_encoder)
        retriever = Retriever.load(folder / "retriever", args.device)
        sentences = read_lines(write_text(folder / "text", args.sentences))
        for share in in_time((4, 2, 1)):  # from few images to all
            images = max(1, args.images // share)
            store = FeatureStore(write_store(folder / f"store-{share}", images, args.size))
            out = folder / f"index-{share}"
            index_seconds.append(seconds_of(lambda store=store, out=out: build_index(retriever, store, out)))
            index_terms.append([1.0, images])
            print(f"index: {images} images, {index_seconds[-1]:.2f} s", flush=True)
            index = Index(out)
            for part in (2, 1):
                count = max(1, args.sentences // part)
                ids = folder / f"ids-{share}-{part}"
                finder = DenseFinder(retriever, index)
                seconds = seconds_of(
                    lambda finder=finder, ids=ids, count=count: write_image_ids(finder, sentences[:count], ids)
                )
                retrieve_seconds.append(seconds)
                retrieve_terms.append([1.0, count, count * images])
                print(f"retrieve: {count} sentences, {images} images, {seconds:.2f} s", flush=True)
    if len(index_seconds) < 2:
        raise SystemExit("a slope takes two sizes: give it more time, or fewer --images")
    start, per_image = fit(index_terms, index_seconds)
    indexing = start + per_image * MILLION
    start, per_sentence, per_product = fit(retrieve_terms, retrieve_seconds)
    encoding, searching = start + per_sentence * MILLION, per_product * MILLION**2
    print(f"index: {1e6 * per_image:.1f} µs an image; retrieve: {1e6 * per_sentence:.1f} µs a sentence, and "
          f"{1e9 * per_product:.2f} ns a sentence and image")  # fmt: skip
    print(
        f"estimate for 1M images and 1M sentences: index {indexing / 60:.0f} min, retrieve "
        f"{(encoding + searching) / 60:.0f} min ({searching / 60:.0f} of them search)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
