"""Turn images into a feature store with a pretrained network: of whole images, of grid cells, or of detected regions.

The store is a folder: keys.txt has the image key of each row, features.npy is (images, regions, size) float16. A file
that is missing or no picture is listed in unreadable.tsv and has a zero row, which counts as no image. An interrupted
run continues when the same command is given again. Several processes, one a card, share the work when torchrun
--no-python starts them.

  visual-grounding extract --images flickr30k/ --backbone resnet50 --out features/f30k --dry-run
  visual-grounding extract --images flickr30k/ --backbone resnet50 --out features/f30k
  visual-grounding extract --images 'shards/train-{0000..0099}.tar' --backbone resnet50 --out features/web
  visual-grounding extract --images 'data/*.parquet' --key-column id --backbone resnet50 --out features/hub
  visual-grounding extract --images flickr30k/ --detector fasterrcnn_resnet50_fpn_v2 --regions 36 --out features/objects
  visual-grounding extract --images flickr30k/ --detector onnx:detector.onnx --label-names coco.txt \\
      --feature-maps map_fpn,map_pan --out features/objects
  visual-grounding extract --images flickr30k/ --backbone resnet50 --region-source grid --grid 4 --out features/cells
  visual-grounding extract --images flickr30k/ --backbone resnet50 --pool grid --boxes --out features/places
"""

import argparse
from typing import Any

from .image_source import add_image_source, open_image_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_image_source(parser)
    _add_network(parser)
    _add_detection(parser)
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    parser.add_argument(
        "--precision",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="what the network computes in; float16 needs cuda (default: %(default)s)",
    )
    parser.add_argument("--batch-size", type=int, help="images at once (default: 64, with --detector 8)")
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


def _add_network(parser: argparse.ArgumentParser) -> None:
    """What computes features, and of which parts of a picture."""
    network = parser.add_mutually_exclusive_group(required=True)
    network.add_argument(
        "--backbone",
        metavar="NAME",
        help="torchvision's resnet50, resnext101_32x8d, efficientnet_b0 …; timm:NAME, such as "
        "timm:tf_efficientnet_b1.ns_jft_in1k; clip:NAME or clip:FOLDER, the image tower of a CLIP or SigLIP, such as "
        "clip:openai/clip-vit-base-patch32; scattering, which needs no weights; package.module:Name, one of your own",
    )
    network.add_argument(
        "--detector",
        metavar="NAME",
        help="instead of a backbone: torchvision's fasterrcnn_resnet50_fpn_v2, maskrcnn_resnet50_fpn, "
        "retinanet_resnet50_fpn, fcos_resnet50_fpn, ssd300_vgg16 …, or onnx:FILE, any detector in an ONNX file; the "
        "store gets the regions that it finds, with boxes, labels and scores",
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
        "--boxes",
        action="store_true",
        help="with --pool: a column beside the features, where in the whole picture each region lies; what models that "
        "read regions as a stream need",
    )
    parser.add_argument(
        "--region-source",
        choices=("map", "grid"),
        default="map",
        help="with --backbone: regions are parts of its map (--pool), or the cells of a --grid, each of which it sees "
        "as a picture of its own and classifies: boxes, labels and scores without a detector (default: %(default)s)",
    )
    parser.add_argument(
        "--grid",
        type=int,
        metavar="N",
        help="N x N regions with --pool grid (default: the network's own map) or --region-source grid",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        metavar="PIXELS",
        help="side of the square the network sees; of torchvision's detectors, the short side (default: its own)",
    )
    parser.add_argument(
        "--label-names",
        metavar="FILE",
        help="what labels stand for, one a line; the first is number 0; or JSON of {number: name} (default: what the "
        "library says of its weights)",
    )


def _add_detection(parser: argparse.ArgumentParser) -> None:
    """Which of the regions that a detector finds, and what their features are."""
    regions = parser.add_argument_group("regions, with --detector")
    regions.add_argument("--regions", type=int, metavar="N", help="keep the N most confident (default: 36)")
    regions.add_argument("--min-score", type=float, metavar="P", help="of those at least so confident (default: 0.05)")
    regions.add_argument(
        "--nms-iou",
        type=float,
        metavar="IOU",
        help="leave out a box that overlaps a more confident one of its class by more, as intersection by union "
        "(default: as the network does by itself)",
    )
    regions.add_argument("--nms-across-classes", action="store_true", help="… or one of any class")
    regions.add_argument(
        "--feature-maps",
        metavar="NAMES",
        help="onnx: the outputs that features are pooled from, such as map_fpn,map_pan; their features are joined",
    )
    regions.add_argument(
        "--feature-pca",
        metavar="FILE",
        help="project region features: a .safetensors with mean, components and block_std (one number a map)",
    )
    regions.add_argument("--feature-size", type=int, metavar="N", help="keep the first N components (default: all)")
    regions.add_argument("--attribute-names", metavar="FILE", help="onnx: as --label-names, of the output attributes")


def run(args: argparse.Namespace) -> None:
    """Extract, and say what came out.

    Raises:
        InputError: choices that don't go together, or as what they choose.
    """
    from ..features.dry_run import dry_run
    from ..features.extraction import extract
    from ..storage.ranks import this_rank

    refuse_strangers(args)
    images = open_image_source(args)
    extractor = extractor_of(args)
    usual = 64 if args.detector is None else 8  # detectors see larger pictures, and keep maps of several sizes
    batch_size = usual if args.batch_size is None else args.batch_size
    choices = {"batch_size": batch_size, "shard_size": args.shard_size, "workers": args.workers}
    if args.dry_run and not this_rank().leads:
        return  # one rank speaks for all
    if args.dry_run:
        found = dry_run(images, extractor, args.out, **choices)
        print(found.describe())
        found.check_disk()
    else:
        summary = extract(images, extractor, args.out, strict=args.strict, **choices)
        print(summary.describe(args.out))
        if args.detector is not None and summary.zero + summary.unreadable == summary.images:
            asked = "that the detector gives" if args.min_score is None else f"of {args.min_score:g}"
            print(f"No region of any image has a score {asked} or more: see --min-score.")


_DEFAULTS = ("map", "mean")
_OF_DETECTORS = (
    "regions",
    "min_score",
    "nms_iou",
    "nms_across_classes",
    "feature_maps",
    "feature_pca",
    "feature_size",
    "attribute_names",
)


def refuse_strangers(args: argparse.Namespace) -> None:
    """Refuse flags of another kind of extraction, which would be left unread.

    Raises:
        InputError: the first of them.
    """
    from ..errors import InputError

    whole = args.region_source == "map"
    others = {name: "a detector" for name in _OF_DETECTORS}
    if args.detector is not None:
        others = {name: "a backbone" for name in ("grid", "pool", "region_source", "boxes")}
    elif whole:
        others["label_names"] = "a detector or the cells of a grid"
    else:
        others |= {name: "regions that are parts of a map" for name in ("pool", "boxes")}
    for name, owner in others.items():
        value = getattr(args, name)
        if value is not None and value is not False and value not in _DEFAULTS:  # 0 equals False
            choice = name.replace("_", " ")
            raise InputError(f"{choice} goes with {owner}; here it would mean nothing. Leave it out.", name)
    if args.feature_size is not None and args.feature_pca is None:
        raise InputError("a number of components needs the file that has them.", "feature_size", "feature_pca")


def extractor_of(args: argparse.Namespace) -> Any:
    """The extractor that the flags choose.

    Raises:
        InputError: as `load_extractor`, `load_detector` and `GridClassifier`.
    """
    from ..features.backbones import load_backbone
    from ..features.computation import choose_computation
    from ..features.detectors import Selection, load_detector, read_projection
    from ..features.extractors import load_extractor
    from ..features.grid_classifier import GridClassifier
    from ..features.map_extractor import Pooling
    from ..features.names import read_names

    computation = choose_computation(args.device, args.precision)
    names = None if args.label_names is None else read_names(args.label_names)
    network = (args.weights, args.image_size, args.seed)
    if args.detector is None:
        if args.region_source == "grid":
            return GridClassifier(load_backbone(args.backbone, *network), args.grid, names, computation)
        return load_extractor(args.backbone, *network, Pooling(args.pool, args.grid), computation, args.boxes)
    chosen = {name: getattr(args, name) for name in Selection._fields}
    return load_detector(
        args.detector,
        computation,
        Selection(**{name: value for name, value in chosen.items() if value is not None}),
        *network,
        label_names=names,
        attribute_names=None if args.attribute_names is None else read_names(args.attribute_names),
        feature_maps=[] if args.feature_maps is None else args.feature_maps.split(","),
        projection=None if args.feature_pca is None else read_projection(args.feature_pca, args.feature_size),
    )
