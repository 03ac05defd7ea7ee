"""Turn images into a feature store with a pretrained network.

The store is a folder: keys.txt has the image key of each row, features.npy is (images, regions, size) float16. A file
that is missing or no picture is listed in unreadable.tsv and has a zero row, which counts as no image. An interrupted
run continues when the same command is given again. Several processes, one a card, share the work when torchrun
--no-python starts them.

  visual-grounding extract --images flickr30k/ --backbone resnet50 --out features/f30k
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument(
        "--images",
        required=True,
        metavar="SOURCE",
        help="a folder (with its sub-folders; key = relative path), an uncompressed tar (key = member name), "
        "or a .txt list (one path a line, relative to the list's folder; key = the line)",
    )
    parser.add_argument(
        "--backbone", required=True, metavar="NAME", help="resnet50, resnext101_32x8d, efficientnet_b0, …"
    )
    parser.add_argument(
        "--weights",
        metavar="NAME|FILE|none",
        help="weights that torchvision has by name (default: its best), a state_dict file, or none: random numbers",
    )
    parser.add_argument("--seed", type=int, default=1, help="of random weights (default: %(default)s)")
    parser.add_argument(
        "--pool",
        choices=("mean", "max", "grid"),
        default="mean",
        help="one region, or a grid of them (default: %(default)s)",
    )
    parser.add_argument(
        "--grid", type=int, metavar="N", help="N x N regions with --pool grid (default: the network's own map)"
    )
    parser.add_argument(
        "--image-size", type=int, metavar="PIXELS", help="side of the square the network sees (default: its own)"
    )
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    parser.add_argument("--batch-size", type=int, default=64, help="images at once (default: %(default)s)")
    parser.add_argument(
        "--shard-size", type=int, default=1024, help="images between two save points (default: %(default)s)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="threads that read and decode (default: one per core)")
    parser.add_argument("--strict", action="store_true", help="stop at the first unreadable image")
    parser.add_argument("--out", required=True, metavar="DIR", help="the feature store to make")


def run(args: argparse.Namespace) -> None:
    """Extract, and say what came out."""
    from ..features.backbones import load_backbone
    from ..features.extraction import Pooling, extract
    from ..features.images import open_images

    images = open_images(args.images)
    summary = extract(
        images,
        load_backbone(args.backbone, args.weights, args.image_size, args.seed),
        args.out,
        pooling=Pooling(args.pool, args.grid),
        device=args.device,
        batch_size=args.batch_size,
        shard_size=args.shard_size,
        workers=args.workers,
        strict=args.strict,
    )
    print(summary.describe(args.out))
