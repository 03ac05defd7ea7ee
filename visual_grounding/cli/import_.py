"""Turn feature arrays that you already have into a feature store.

--arrays is one .npy, .pt or .pth file for the collection, (images, size) or (images, regions, size), with --keys; or a
folder with one .npy, .npz, .pt or .pth per image, (size,) or (regions, size), whose name without that ending is the
image key: 123.jpg.npy belongs to 123.jpg. Nothing in a file is executed. All numbers are checked on the way.

  visual-grounding import --arrays resnet.npy --keys images.txt --out features/f30k
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--arrays", required=True, metavar="PATH", help="the file or folder, see above")
    parser.add_argument(
        "--keys",
        metavar="FILE",
        help="one image key a line, in row order; for a folder: which images, in which order (default: all)",
    )
    parser.add_argument("--array", metavar="NAME", help="which array, where a .npz or .pt holds several by name")
    parser.add_argument(
        "--regions", type=int, metavar="N", help="for a folder where images have fewer or more regions: the most"
    )
    parser.add_argument(
        "--channels-first",
        action="store_true",
        help="arrays are maps (images, size, height, width); each place is a region",
    )
    parser.add_argument(
        "--normalise",
        choices=("no", "l2"),
        default="no",
        help="l2: scale each region to length 1 (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-size", type=int, default=1024, help="images between two save points (default: %(default)s)"
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first missing or broken file of an image")
    parser.add_argument("--out", required=True, metavar="DIR", help="the feature store to make")


def run(args: argparse.Namespace) -> None:
    """Import, and say what came out."""
    from ..features.importers import import_features, open_arrays

    source = open_arrays(args.arrays, args.keys, args.array, args.channels_first, args.regions)
    print(import_features(source, args.out, args.normalise, args.shard_size, args.strict).describe(args.out))
