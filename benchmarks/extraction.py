"""`extract`, which reads, decodes and writes, against the bare forward pass of its network.

  python benchmarks/extraction.py                         # on a CUDA device where there is one
  python benchmarks/extraction.py --device cpu

The bare forward pass runs over batches that lie decoded in memory; `extract` starts from JPEG files of the size of
Flickr30k's (500 x 375). Goal: at least 0.95 (CPU) or 0.9 (CUDA) of its rate, so at most 1.053 or 1.111 of its time.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from pairs import alternate, exit_status, machine, verdict
from PIL import Image

from visual_grounding.features.backbones import load_backbone
from visual_grounding.features.computation import Computation
from visual_grounding.features.extraction import extract
from visual_grounding.features.map_extractor import MEAN, MapExtractor
from visual_grounding.images.sources import open_images


def write_photos(folder: Path, count: int) -> None:
    """JPEG files that are as hard to decode as photos: noise of every coarseness."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        photo = sum(
            np.asarray(Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).resize((500, 375)), float)
            for side in (2, 4, 8, 16, 32, 64, 128)
        )
        Image.fromarray((photo / 7).astype(np.uint8)).save(folder / f"{number:05d}.jpg", quality=90)


def main() -> int:
    """Measure, and say whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--photos", type=int, help="in each half of a pair (default: 128 on a CPU, 8192 on CUDA)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, help="threads that decode (default: as `extract`)")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    device = torch.device(args.device)
    count = args.photos or (8192 if device.type == "cuda" else 128)
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(folder / "photos", min(count, 256))
        keys = sorted(path.name for path in (folder / "photos").iterdir())
        # A list may hold more images than there are files: links beside them.
        for number in range(len(keys), count):
            (folder / "photos" / f"{number:05d}.jpg").symlink_to(folder / "photos" / keys[number % len(keys)])
        images = open_images(folder / "photos")
        backbone = load_backbone(args.backbone, "none")
        side = backbone.preprocessing.crop
        ready = torch.randint(0, 256, (args.batch_size, side, side, 3), dtype=torch.uint8)
        backbone.network.to(device)

        @torch.inference_mode()
        def forward() -> None:
            for start in range(0, count, args.batch_size):
                pixels = ready[: min(args.batch_size, count - start)].to(device)
                MEAN.regions(backbone.network(backbone.preprocessing.normalise(pixels)))

        def whole() -> None:
            shutil.rmtree(folder / "store", ignore_errors=True)
            extractor = MapExtractor(backbone, MEAN, Computation(device))
            extract(images, extractor, folder / "store", args.batch_size, workers=args.workers)

        found = alternate(whole, forward, args.pairs)
    print(f"extract against the forward pass of {args.backbone}, {count} photos on {device.type}: {found}")
    goal = 0.9 if device.type == "cuda" else 0.95
    return exit_status([verdict("time of extract / of the bare forward pass", found.median, 1 / goal)])


if __name__ == "__main__":
    sys.exit(main())
