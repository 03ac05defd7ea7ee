"""Turn features that you already have into a feature store.

--arrays is, as features were published or as you saved them,
  one .npy, .pt or .pth for the collection, (images, size) or (images, regions, size), with --keys;
  a folder with a .npy, .npz, .pt, .pth or pickle (.pkl, .pgz, .pbz2) per image, (size,) or (regions, size), whose name
    without that ending is the image key: 123.jpg.npy belongs to 123.jpg;
  a .tsv of bottom-up attention, six columns or LXMERT's ten; --fields names others;
  .h5 or .hdf5, tables of all images or a group or array for each; --keys may be the pickle of ids and rows beside it;
  an .lmdb, a pickled dict for each image.
The last two need: pip install 'visual_grounding[imports]'. Nothing in a file is executed, in a pickle neither. All
numbers are checked on the way.

Regions may have boxes, labels, attributes and scores: beside one array for the collection, each is a file of its own;
elsewhere each is the name of an array of the same image. Names in use are known: detection_features, detection_boxes …
of VTLM's detector; features, boxes, image_w, image_h, objects_id, objects_conf, attrs_id of bottom-up attention; labels
and attributes are taken where --label-names, --attribute-names say what the numbers stand for. Or a table has them, in
the order of the features. Boxes become x0 y0 x1 y1 in 0..1; those in pixels need the pictures' widths and heights. A
region whose features are all zero is absent.

  visual-grounding import --arrays resnet.npy --keys images.txt --made-by "ResNet-152 pool5" --out features/f30k
  visual-grounding import --arrays rcnn.npy --keys images.txt --boxes boxes.npy --labels labels.npy \\
      --label-names objects.txt --out features/rcnn
  visual-grounding import --arrays bottom_up/ --array x --regions 100 --boxes bbox --box-sizes image_w,image_h \\
      --out features/bottom_up
  visual-grounding import --arrays vtlm/ --label-names vtlm_object_vocab.json --regions 36 --out features/vtlm
  visual-grounding import --arrays train_obj36.tsv --label-names objects_vocab.txt --key-format "{id}.jpg" \\
      --min-score 0.2 --out features/lxmert
  visual-grounding import --arrays train36.hdf5 --keys train36_imgid2idx.pkl --key-format "{id}.jpg" --out features/bua
  visual-grounding import --arrays rois.npy --keys images.txt --regions-table boxes.tsv --out features/rois

--stores joins feature stores that were made alike, of training and of validation photos say, into one:

  visual-grounding import --stores features/train features/valid --out features/all
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, printable, warn

if TYPE_CHECKING:
    from ..features.region_table import RegionTable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    _add_features(parser)
    _add_columns(parser)
    parser.add_argument(
        "--shard-size", type=int, default=1024, help="images between two save points (default: %(default)s)"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="stop at the first missing or broken file of an image, or region with a label or a box but no features",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the feature store to make")


def _add_features(parser: argparse.ArgumentParser) -> None:
    """Where the features are, whose they are, and which of them are taken."""
    parser.add_argument("--arrays", metavar="PATH", help="the file or folder of features, see above")
    parser.add_argument("--stores", nargs="+", metavar="DIR", help="instead: feature stores that become one")
    parser.add_argument(
        "--keys",
        metavar="FILE",
        help="one image key a line, in row order, or a pickle of {id: row}; where images are found by their keys: "
        "which of them, in which order (default: all)",
    )
    parser.add_argument(
        "--key-format",
        default="{id}",
        metavar="TEXT",
        help="what an id in the file is as an image key, such as {id}.jpg or COCO_train2014_{id:012d}.jpg "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--array",
        metavar="NAME",
        help="which array is the features, where there are several by name; columns then are only those named here "
        "(default: by the names in use)",
    )
    parser.add_argument("--fields", metavar="NAME,NAME,…", help="of a .tsv: its columns, where it has no header")
    parser.add_argument(
        "--regions",
        type=int,
        metavar="N",
        help="the most regions that an image shall have; where it has more, the best by their scores (default: all, "
        "where every image has as many or the file says how many)",
    )
    parser.add_argument(
        "--min-score", type=float, metavar="S", help="leave out regions with a lower score; they become absent"
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
        "--made-by",
        metavar="TEXT",
        help="what made the features, such as the network and its weights: models accept features of other images that "
        "say the same (default: a digest of the arrays, so that no others do)",
    )


def _add_columns(parser: argparse.ArgumentParser) -> None:
    """What is known of regions beside their features."""
    columns = parser.add_argument_group("columns of regions; a FILE.npy, or for a folder the NAME of an array")
    columns.add_argument("--boxes", metavar="FILE|NAME", help="(images, regions, 4)")
    columns.add_argument(
        "--box-format",
        choices=("xyxy", "xywh", "yxyx"),
        help="two corners, x first; the first corner, width and height; two corners, y first (default: xyxy; yxyx for "
        "detection_boxes, as TensorFlow's detectors write them)",
    )
    columns.add_argument(
        "--box-sizes",
        metavar="FILE|NAMES",
        help="boxes are in pixels of pictures of these widths and heights: a .npy of (images, 2); a .tsv with the "
        "columns image, width, height, or Visual Genome's image_data.json; elsewhere WIDTH,HEIGHT: names of two arrays "
        "(default: what the file says, else boxes are in 0..1)",
    )
    columns.add_argument("--labels", metavar="FILE|NAME", help="(images, regions) whole numbers, -1 for none")
    columns.add_argument("--attributes", metavar="FILE|NAME", help="likewise")
    columns.add_argument("--scores", metavar="FILE|NAME", help="(images, regions)")
    columns.add_argument(
        "--label-names",
        metavar="FILE",
        help="what labels stand for, one a line; the first is number 0; or JSON of {number: name}",
    )
    columns.add_argument("--attribute-names", metavar="FILE", help="likewise, of attributes")
    columns.add_argument(
        "--regions-table",
        metavar="TSV|JSON|DIR",
        help="instead of the others: a table whose header names image (or key), x1, y1, x2, y2 and maybe label (or "
        "phrase), attribute, score, width and height; one region a line, of each image in the order of its features; "
        "names of labels are those that occur, sorted, unless --label-names lists them. Or Visual Genome's "
        "objects.json, or the folder of Flickr30k Entities with Annotations/ and Sentences/, labelled by types",
    )
    columns.add_argument(
        "--unknown-labels",
        choices=("refuse", "none"),
        default="refuse",
        help="a label of the table that --label-names doesn't list: refuse it, or count it and have none "
        "(default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Import, and say what came out.

    Raises:
        InputError: as `open_arrays`, `RegionTable` and `import_features`; or there are no features.
    """
    from ..features.array_sources import open_arrays
    from ..features.blocks import SIZES
    from ..features.columns import COLUMNS, NAMES, Columns
    from ..features.importers import import_features
    from ..features.imports.annotations import read_sizes
    from ..features.imports.image_keys import KeyFormat
    from ..features.names import read_names
    from ..features.region_table import RegionTable

    if args.stores is not None:
        _join(args)
        return
    if args.arrays is None:
        raise InputError(
            "features are needed: a table of regions says where they are, not what they look like. Give an array "
            "(images, regions, size), the regions of each image in the order of the table's lines; features of given "
            "boxes can't be made here yet."
            if args.regions_table
            else "features are needed, in a file or a folder.",
            "arrays",
        )
    names = {
        listed: None if getattr(args, listed) is None else read_names(getattr(args, listed))
        for listed in ("label_names", "attribute_names")
    }
    asked = {name: getattr(args, name) for name in (*COLUMNS, SIZES)}
    beside = {name: where for name, where in asked.items() if where is not None}
    sizes_file = beside.pop(SIZES) if (args.box_sizes or "").endswith((".tsv", ".json")) else None
    source = open_arrays(
        args.arrays,
        args.keys,
        args.array,
        args.channels_first,
        args.regions,
        beside,
        [column for column, listed in NAMES.items() if names[listed] is not None],
        args.fields.split(",") if args.fields else None,
        args.key_format,
        bool(args.regions_table),
    )
    if source.found:
        print(printable(f"{args.arrays}: {source.found}"))
    for note in source.notes:
        warn(f"{args.arrays}: {note} See --label-names, --attribute-names.")
    _refuse_unread(args, source.columns, sizes_file)
    columns, table, key_format = None, None, KeyFormat(args.key_format)
    sizes = None if sizes_file is None else read_sizes(Path(sizes_file), source.keys, key_format)
    if args.regions_table:
        unknown_as_none = args.unknown_labels == "none"
        table = RegionTable(
            args.regions_table, source.keys, **names, key_format=key_format, unknown_as_none=unknown_as_none
        )
        for warning in _doubts(table, names):
            warn(warning)
    else:
        columns = Columns(source.columns, **{listed: lines or () for listed, lines in names.items()})
    summary = import_features(
        source,
        args.out,
        args.normalise,
        args.shard_size,
        args.strict,
        args.made_by,
        columns,
        args.box_format,
        table,
        args.min_score,
        sizes,
    )
    print(summary.describe(args.out))


def _refuse_unread(args: argparse.Namespace, columns: Sequence[str], sizes_file: str | None) -> None:
    """Refuse what would change nothing.

    Raises:
        InputError: there is such a flag.
    """
    from ..features.blocks import SIZES
    from ..features.imports.image_keys import AS_IT_IS, is_key_list

    if "boxes" not in columns and not args.regions_table:
        if args.box_sizes:
            raise InputError("widths and heights of pictures are for boxes, but there are no boxes.", SIZES, "boxes")
        if args.box_format:
            raise InputError("the format is one of boxes, but there are no boxes.", "box_format", "boxes")
    if args.unknown_labels == "none" and not args.regions_table:
        raise InputError("unknown labels are those of a table of regions, but there is none.", "unknown_labels")
    if args.key_format != AS_IT_IS and is_key_list(args.arrays, args.keys) and not (args.regions_table or sizes_file):
        raise InputError(f"keys are made of ids, but the lines of {args.keys} are keys already.", "key_format", "keys")


def _join(args: argparse.Namespace) -> None:
    """Several stores into one."""
    from ..features.joining import join_stores
    from ..features.store import FeatureStore
    from ..flags import FlagParser

    defaults = FlagParser()
    add_arguments(defaults)
    taken = ("stores", "out", "shard_size", "quiet")
    others = [name for name, value in vars(args).items() if name not in taken and value != defaults.get_default(name)]
    if others:
        raise InputError("Stores are joined as they are, so nothing else is chosen.", *others)
    print(join_stores([FeatureStore(folder) for folder in args.stores], args.out, args.shard_size).describe(args.out))


def _doubts(table: "RegionTable", names: Mapping[str, Sequence[str] | None]) -> Iterator[str]:
    """Warnings: labels that another table numbers otherwise, labels that have no name, images that the store lacks."""
    from ..features.columns import NAMES
    from ..shares import warn_of

    of_its_own = [name for name in NAMES if name in table.columns.present and names[NAMES[name]] is None]
    if of_its_own:
        flags = " and ".join(f"--{NAMES[name].replace('_', '-')}" for name in of_its_own)
        yield (
            f"the {' and '.join(of_its_own)} of {table.path} are numbered by their own names, sorted; another table, "
            f"as of another split, numbers them by its own. Give each the same {flags}."
        )
    yield from warn_of(
        table.unknown, table.lines, "have a label that isn't among the names; they have none.", "regions"
    )
    yield from warn_of(
        table.left_out, table.images, f"of {table.path} are none of the store's and were left out.", "images"
    )
