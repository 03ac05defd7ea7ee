"""The flags of every verb that reads images: --images, --image-column, --key-column."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import InputError, warn

MOST_IMAGES = 2000
MOST_SHOWN = 200  # rows of a page: its picture of them takes half a gigabyte

if TYPE_CHECKING:
    from ..analysis.report import ReportImage
    from ..images.sources import ImageSource


def add_image_source(parser: argparse.ArgumentParser, what: str = "", required: bool = True) -> None:
    """Add the flags. `what` says which images are meant."""
    parser.add_argument(
        "--images",
        action="append",
        required=required,
        metavar="SOURCE",
        help=f"{what}a folder (with its sub-folders; key = relative path), an uncompressed tar or a zip (key = member "
        "name), a .txt list (one path a line, relative to the list's folder; key = the line), webdataset tars "
        "('train-{0000..0099}.tar', 'tars/*.tar', or a folder of nothing else; one image a sample, key = its "
        "name), or parquet with image bytes (a file, a glob, or a folder of nothing else); repeatable: sources add up",
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
        warn(f"{named_sources(args)}: {note} See --key-column.")
    return images


def named_sources(args: argparse.Namespace) -> str:
    """What the flags name, for a message."""
    return " and ".join(args.images)


def check_shown(count: int, what: str, *choices: str) -> None:
    """Refuse a page that nobody would read, and whose pictures would fill the memory.

    Args:
        count: how many `what` are to be shown.
        choices: arguments that say so.

    Raises:
        InputError: they are too many.
    """
    if count > MOST_SHOWN:
        raise InputError(
            f"a page shows at most {MOST_SHOWN} {what}, but {count} were asked for: make several.", *choices
        )


def check_images(count: int, *choices: str) -> None:
    """Refuse a page of too many pictures, however few rows it has.

    Args:
        choices: arguments that say how many there are.

    Raises:
        InputError: they are too many.
    """
    if count > MOST_IMAGES:
        raise InputError(f"a page shows at most {MOST_IMAGES} images, but {count} were asked for.", *choices)


def check_pictures(
    shown: "Iterable[ReportImage]", images: "ImageSource", args: argparse.Namespace, only_shown: bool = True
) -> None:
    """Say how many pictures can't be shown, before a page is written.

    Args:
        only_shown: the page is all that comes out.

    Raises:
        InputError: none can be shown, and nothing else comes out.
    """
    from ..analysis.report import NOT_THERE

    pictures = {picture.key: picture for picture in shown}
    absent = [key for key, picture in pictures.items() if picture.why == NOT_THERE]
    broken = [f"{key} ({picture.why})" for key, picture in pictures.items() if picture.why not in ("", NOT_THERE)]
    where = named_sources(args)
    reasons = []
    if absent:
        reasons.append(f"{len(absent)} aren't in {where}, such as {absent[0]} (keys there look like {images.keys[0]})")
    if broken:
        reasons.append(f"{len(broken)} are unreadable, such as {broken[0]}")
    if not reasons:
        return
    lost = f"{len(absent) + len(broken)} of {len(pictures)} pictures can't be shown: {'; '.join(reasons)}."
    if only_shown and len(absent) + len(broken) == len(pictures):
        raise InputError(f"{lost} Give what the store was extracted from as --images; several add up.")
    warn(lost)
