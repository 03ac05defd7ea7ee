"""The flags of every verb that reads images: --images, --image-column, --key-column."""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..images.sources import ImageSource


def add_image_source(parser: argparse.ArgumentParser, what: str = "") -> None:
    """Add the flags. `what` says which images are meant."""
    parser.add_argument(
        "--images",
        required=True,
        metavar="SOURCE",
        help=f"{what}a folder (with its sub-folders; key = relative path), an uncompressed tar or a zip (key = member "
        "name), a .txt list (one path a line, relative to the list's folder; key = the line), webdataset shards "
        "('shards/train-{0000..0099}.tar', 'shards/*.tar', or a folder of nothing else; one image a sample, key = its "
        "name), or parquet with image bytes (a file, a glob, or a folder of nothing else)",
    )
    add_image_columns(parser)


def add_image_columns(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what is what in parquet."""
    parser.add_argument(
        "--image-column", metavar="NAME", help="of parquet: the column of images (default: the only one that fits)"
    )
    parser.add_argument(
        "--key-column",
        metavar="NAME",
        help="of parquet: the column of keys (default: the paths in the image column if unique, else FILE:ROW)",
    )


def open_image_source(args: argparse.Namespace) -> "ImageSource":
    """Open what the flags name, and say what should be known about its keys.

    Raises:
        InputError: as `open_images`.
    """
    from ..images.sources import open_images

    images = open_images(args.images, args.image_column, args.key_column)
    note = getattr(images, "note", "")  # only parquet has one
    if note:
        print(f"warning: {args.images}: {note}", file=sys.stderr)
    return images
