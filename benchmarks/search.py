"""Exact top-8 search against faiss flat (CPU) and the bare matrix product (GPU).

  python benchmarks/search.py [--images 100000 --size 512 --queries 1000] [--device cpu]

Goals: on the CPU, in the precision and with the product that are chosen there (the others stand beside them), not
slower than faiss flat, within the machine's own noise; on a GPU at most 1.3 times as long as the matrix product of all
queries with all images.
Exits with 1 where the goal is missed. OMP_NUM_THREADS sets the threads.
"""

import argparse
import sys

import torch
from pairs import alternate, exit_status, machine, noise_of, verdict

from visual_grounding.retrieval.faiss_index import import_faiss
from visual_grounding.retrieval.half_precision import Precisions
from visual_grounding.retrieval.products import product_for, product_of_blas, product_of_numpy, product_of_onednn
from visual_grounding.retrieval.search import exact_search, scan_precisions

CPU_GOAL, GPU_GOAL = 1.0, 1.3


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000, help="I (default: %(default)s)")
    parser.add_argument("--size", type=int, default=512, help="D (default: %(default)s)")
    parser.add_argument("--queries", type=int, default=1000, help="Q (default: %(default)s)")
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=here, help="cpu or cuda (default: %(default)s)")
    args = parser.parse_args()
    print(machine())
    print(f"top 8 of {args.images} images of {args.size} numbers for {args.queries} sentences on {args.device}")
    generator = torch.Generator().manual_seed(0)
    images = torch.nn.functional.normalize(torch.randn(args.images, args.size, generator=generator), dim=1)
    queries = torch.nn.functional.normalize(torch.randn(args.queries, args.size, generator=generator), dim=1)
    return _on_cpu(queries, images) if args.device == "cpu" else _on_gpu(queries, images, args.device)


def _on_cpu(queries: torch.Tensor, images: torch.Tensor) -> int:
    faiss = import_faiss("this benchmark")
    faiss.omp_set_num_threads(torch.get_num_threads())
    embeddings = images.numpy()
    flat = faiss.IndexFlatIP(images.shape[1])
    flat.add(embeddings)
    found = exact_search(queries, embeddings, 8, largest_norm=1.0)[1].numpy()
    theirs = flat.search(queries.numpy(), 8)[1]
    print(f"the same images in {(found == theirs).mean():.4%} of places (faiss orders by rounded scores)")
    float32 = Precisions(torch.float32)
    fastest = product_for(queries)
    for _ in range(10):  # products that it times, where they are large enough for that
        exact_search(queries, embeddings, 8, largest_norm=1.0, precisions=float32)
    product = getattr(fastest, "chosen", None) or product_of_blas
    ways = {"float32, " + product.__name__: {"precisions": float32}}
    chosen = scan_precisions("cpu")
    exact_search(queries, embeddings, 8, largest_norm=1.0, precisions=chosen)
    fast = next(iter(chosen.asked))
    if fast != torch.float32:
        ways = {str(fast).partition(".")[2]: {}, **ways}
    for other in (product_of_blas, product_of_numpy, product_of_onednn):
        if other != product:
            ways["float32, " + other.__name__] = {"product": other}
    ratios = []
    for number, (way, options) in enumerate(ways.items()):
        compared = alternate(
            lambda options=options: exact_search(queries, embeddings, 8, largest_norm=1.0, **options),
            lambda: flat.search(queries.numpy(), 8),
        )
        ratios.append(compared.median)
        print(f"time by faiss flat's, scan in {way}{'' if number else ', which is chosen here'}: {compared}")
    noise = noise_of(lambda: flat.search(queries.numpy(), 8))
    return exit_status([verdict("search by faiss flat", ratios[0], CPU_GOAL, noise)])


def _on_gpu(queries: torch.Tensor, images: torch.Tensor, device: str) -> int:
    queries, images = queries.to(device), images.to(device)
    compared = alternate(lambda: exact_search(queries, images, 8, device, largest_norm=1.0), lambda: queries @ images.T)
    print(f"time by the matrix product's: {compared}")
    return exit_status([verdict("search by the matrix product", compared.median, GPU_GOAL)])


if __name__ == "__main__":
    sys.exit(main())
