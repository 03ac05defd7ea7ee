"""Turn images into a feature store with a pretrained network.

The store is a folder: keys.txt has the image key of each row, features.npy is (images, regions, size) float16. A file
that is missing or no picture is listed in unreadable.tsv and has a zero row, which counts as no image. An interrupted
run continues when the same command is given again. Several processes, one a card, share the work when torchrun
--no-python starts them.

  visual-grounding extract --images flickr30k/ --backbone resnet50 --out features/f30k --dry-run
  visual-grounding extract --images flickr30k/ --backbone resnet50 --out features/f30k
  visual-grounding extract --images 'shards/train-{0000..0099}.tar' --backbone resnet50 --out features/web
  visual-grounding extract --images 'data/*.parquet' --key-column id --backbone resnet50 --out features/hub
"""

import argparse

from .image_source import add_image_source, open_image_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_image_source(parser)
    parser.add_argument(
        "--backbone",
        required=True,
        metavar="NAME",
        help="torchvision's resnet50, resnext101_32x8d, efficientnet_b0 …; timm:NAME, such as "
        "timm:tf_efficientnet_b1.ns_jft_in1k; clip:NAME or clip:FOLDER, the image tower of a CLIP or SigLIP, such as "
        "clip:openai/clip-vit-base-patch32; scattering, which needs no weights; package.module:Name, one of your own",
    )
    parser.add_argument(
        "--weights",
        metavar="NAME|FILE|FOLDER|none",
        help="weights that the library has by this name or tag (default: its own choice), a state_dict file, a folder "
        "from the hub (timm:, clip:), or none: random numbers",
    )
    parser.add_argument("--seed", type=int, default=1, help="of random weights (default: %(default)s)")
    parser.add_argument(
        "--pool",
        choices=("mean", "max", "grid", "own"),
        default="mean",
        help="one region, a grid of them, or the embedding that the network itself pools (timm:, clip:; what "
        "`export --dual-encoder` compares with text) (default: %(default)s)",
    )
    parser.add_argument(
        "--grid", type=int, metavar="N", help="N x N regions with --pool grid (default: the network's own map)"
    )
    parser.add_argument(
        "--image-size", type=int, metavar="PIXELS", help="side of the square the network sees (default: its own)"
    )
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    parser.add_argument(
        "--precision",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="what the network computes in; float16 needs cuda (default: %(default)s)",
    )
    parser.add_argument("--batch-size", type=int, default=64, help="images at once (default: %(default)s)")
    parser.add_argument(
        "--shard-size", type=int, default=1024, help="images between two save points (default: %(default)s)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="threads that read and decode (default: one per core)")
    parser.add_argument("--strict", action="store_true", help="stop at the first unreadable image")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, measure one batch, say what a run would take in time and disk, and write nothing "
        "(weights that have to be downloaded are); exit status 2 where the disk doesn't suffice",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the feature store to make")


def run(args: argparse.Namespace) -> None:
    """Extract, and say what came out."""
    from ..features.computation import choose_computation
    from ..features.dry_run import dry_run
    from ..features.extraction import extract
    from ..features.extractors import load_extractor
    from ..features.map_extractor import Pooling
    from ..storage.ranks import this_rank

    images = open_image_source(args)
    computation = choose_computation(args.device, args.precision)
    pooling = Pooling(args.pool, args.grid)
    extractor = load_extractor(args.backbone, args.weights, args.image_size, args.seed, pooling, computation)
    choices = {"batch_size": args.batch_size, "shard_size": args.shard_size, "workers": args.workers}
    if args.dry_run and not this_rank().leads:
        return  # one rank speaks for all
    if args.dry_run:
        found = dry_run(images, extractor, args.out, **choices)
        print(found.describe())
        found.check_disk()
    else:
        print(extract(images, extractor, args.out, strict=args.strict, **choices).describe(args.out))
