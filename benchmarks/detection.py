"""`extract --detector`, which reads, decodes, detects, pools and writes, against the bare forward pass of its detector.

  python benchmarks/detection.py                         # on a CUDA device where there is one
  python benchmarks/detection.py --device cpu

The bare forward pass finds as many boxes in as many pictures, which lie decoded in memory; `extract` starts from JPEG
files of the size of Flickr30k's (500 x 375), and pools features besides. Goal: at least 0.9 of its rate, so at most
1.111 of its time.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from extraction import write_photos
from pairs import alternate, exit_status, machine, verdict

from visual_grounding.features.computation import Computation
from visual_grounding.features.detectors import Selection, load_detector
from visual_grounding.features.extraction import extract
from visual_grounding.images.sources import open_images, read_image


def main() -> int:
    """Measure, and say whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--detector", help="default: MobileNetV3's Faster R-CNN on a CPU, ResNet-50's on CUDA")
    parser.add_argument("--photos", type=int, help="in each half of a pair (default: 32 on a CPU, 96 on CUDA)")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, help="threads that decode (default: as `extract`)")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    name = args.detector or ("fasterrcnn_resnet50_fpn_v2" if on_gpu else "fasterrcnn_mobilenet_v3_large_320_fpn")
    count = args.photos or (96 if on_gpu else 32)
    print(machine())
    # Of two classes random weights give each about a half, so that every picture has its 36 regions, as with trained
    # ones; of 91 none would reach the least score, or, without one, suppression would have 90,000 boxes to compare.
    names = ["nothing", "something"]
    extractor: Any = load_detector(name, Computation(device), Selection(), "none", label_names=names)
    model = extractor.network.model
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        write_photos(folder / "photos", count)
        images = open_images(folder / "photos")
        ready = [torch.from_numpy(np.array(read_image(images, row))).permute(2, 0, 1) for row in range(args.batch_size)]

        @torch.inference_mode()
        def forward() -> None:
            for start in range(0, count, args.batch_size):
                batch = ready[: min(args.batch_size, count - start)]
                model([picture.to(device).float() / 255 for picture in batch])

        def whole() -> None:
            shutil.rmtree(folder / "store", ignore_errors=True)
            extract(images, extractor, folder / "store", args.batch_size, workers=args.workers)

        found = alternate(whole, forward, args.pairs)
    print(f"extract against the forward pass of {name}, {count} photos on {device.type}: {found}")
    return exit_status([verdict("time of extract / of the bare forward pass", found.median, 1 / 0.9)])


if __name__ == "__main__":
    sys.exit(main())
