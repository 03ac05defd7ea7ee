"""Show photos with their regions drawn, boxes, labels and scores: DIR/report.html and DIR/report.png.

  visual-grounding report regions --image-features features/objects --images photos/ --min-score 0.3 --out regions
  visual-grounding report regions --image-features features/objects --images photos/ --key beach.jpg --out beach

Regions stand in the order of the store, numbered from 1; the first is drawn on top.
"""

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, warn
from .image_source import add_image_source, check_pictures, check_shown, open_image_source

if TYPE_CHECKING:
    from ..features.store import FeatureStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--image-features", type=Path, required=True, metavar="DIR", help="a feature store with boxes")
    add_image_source(parser, "the pictures: ")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--key", action="append", default=[], help="show this image; repeatable (default: the first --first of them)"
    )
    which.add_argument("--first", type=int, default=12, metavar="N", help="show the first N images (default: 12)")
    parser.add_argument("--min-score", type=float, metavar="S", help="leave out regions with a lower score")
    parser.add_argument("--title", default="Regions", help="heading of the page")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for report.html and report.png")


def run(args: argparse.Namespace) -> None:
    """Draw them.

    Raises:
        InputError: a store without boxes, or without scores where they are asked for; images that it doesn't have, or
            pictures that can't be shown; an output that can't be written.
    """
    from ..analysis.drawn_regions import SIDE, check_drawable, draw_regions, regions_of_images
    from ..analysis.overlay import letterbox
    from ..analysis.report import ReportImage, ReportRow, ReportSection, load_picture, write_report
    from ..features.store import FeatureStore

    store = FeatureStore(args.image_features)
    check_drawable(store, args.min_score)
    if args.first < 1:
        raise InputError(f"--first should be 1 or more, but is {args.first}.")
    rows = _rows(store, args)
    check_shown(len(rows), "images", "key" if args.key else "first")
    images = open_image_source(args)
    wanted = set(rows)
    places = {key: place for place, key in enumerate(images.keys) if key in wanted}
    shown, total, without = [], 0, 0
    for key, regions in zip(rows, regions_of_images(store, list(rows.values()), args.min_score)):
        total, without = total + len(regions), without + (not regions)
        picture = load_picture(images, key, places, SIDE)
        if picture.image is not None:
            picture = ReportImage(letterbox(draw_regions(picture.image, regions)), key)
        lines = [(str(place), region.text or "region", None) for place, region in enumerate(regions, 1)]
        shown.append(ReportRow(key, [picture], [*lines] or [("", "no region", None)]))
    check_pictures((row.images[0] for row in shown), images, args)
    least = "" if args.min_score is None else f" of score {args.min_score:g} or more"
    heading = f"{len(shown)} of {len(store)} images, {total / len(shown):.1f} regions{least} each"
    write_report(args.out, args.title, [ReportSection(heading, shown, store.signature)], side=SIDE)
    lost = sum(row.images[0].image is None for row in shown)
    named = f"; of {lost} only the regions' names, as their pictures can't be shown" if lost else ""
    print(f"{args.out / 'report.html'} and report.png show {heading}{named}.")
    if without:
        print(f"{without} of them have none.")


def _rows(store: "FeatureStore", args: argparse.Namespace) -> dict[str, int]:
    """Key -> row of the images to be shown, each once, in the order of the flags or of the store."""
    if not args.key:
        first = {key: row for row, key in enumerate(islice(store.keys(), args.first))}
        if not first:
            raise InputError(f"{store.folder} should have an image to be shown, but has none.")
        return first
    rows = store.rows_of(args.key)
    unknown = [key for key in dict.fromkeys(args.key) if key not in rows]
    if unknown:
        example = next(iter(store.keys()), "")
        more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        if not rows:
            raise InputError(f"{store.folder} has no image {unknown[0]}{more}. A key there is {example}.")
        warn(f"{store.folder} has no image {unknown[0]}{more}")
    return {key: rows[key] for key in dict.fromkeys(args.key) if key in rows}
