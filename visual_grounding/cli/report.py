"""Show sentences, the images found for them, and translations, side by side: DIR/report.html and DIR/report.png.

    visual-grounding report --text test.en --image-ids ids/test --image-features features/photos --images photos/ \
        --output reference=test.de --output translation=test.hyp.de --out report

`report runs` puts several seeds into one table, `report heatmap` shows where in its image a text is.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, warn
from .image_source import add_image_source, check_images, check_pictures, check_shown, open_image_source

if TYPE_CHECKING:
    from PIL import Image


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `report`."""
    parser.add_argument("--text", required=True, metavar="FILE", help="sentences, one a line")
    parser.add_argument("--image-ids", required=True, metavar="DIR", help="their image ids, from `retrieve`")
    parser.add_argument(
        "--image-features", required=True, metavar="DIR", help="the feature store that the ids refer to"
    )
    add_image_source(parser, "the pictures, what the store was extracted from: ")
    parser.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="translations or references to show; repeatable",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rows", metavar="I,J,…", help="which sentences, counted from 0; by default --sample of them")
    which.add_argument("--sample", type=int, default=12, metavar="N", help="show N sentences drawn at random (12)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample")
    parser.add_argument("--images-per-sentence", type=int, default=8, metavar="N", help="show at most N images (8)")
    parser.add_argument("--draw-regions", action="store_true", help="draw the regions of the feature store")
    parser.add_argument("--min-score", type=float, metavar="S", help="leave out regions with a lower score")
    parser.add_argument("--title", default="Sentences and their images", help="heading of the page")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for report.html and report.png")


def run(args: argparse.Namespace) -> None:
    """Write the report.

    Raises:
        InputError: choices, texts, ids and pictures that don't belong together.
    """
    import numpy as np

    from ..analysis.drawn_regions import SIDE, check_drawable, draw_regions, regions_of_images
    from ..analysis.hypotheses import check_sources, read_hypotheses
    from ..analysis.overlay import letterbox
    from ..analysis.report import THUMBNAIL, ReportRow, ReportSection, images_of_sentences, write_report
    from ..features.store import FeatureStore
    from ..retrieval.image_ids import ImageIds
    from ..storage.lines import read_lines

    text = read_lines(args.text)
    ids, store, images = ImageIds(args.image_ids), FeatureStore(args.image_features), open_image_source(args)
    ids.check_against(store)
    ids.check_lines(len(text), args.text)
    if doubt := ids.doubt(text, args.text):
        warn(doubt)
    outputs = []
    for named in args.output:
        name, equals, path = named.partition("=")
        if not equals:
            raise InputError(f"--output should be NAME=FILE, but is {named!r}.")
        lines = read_hypotheses(path)
        if len(lines) != len(text):
            raise InputError(f"{args.text} has {len(text)} sentences, but {path} has {len(lines)}.")
        for warning in check_sources(path, args.text, text):
            warn(warning)
        outputs.append((name, lines))
    for name, value in (("--sample", args.sample), ("--images-per-sentence", args.images_per_sentence)):
        if value < 1:
            raise InputError(f"{name} should be 1 or more, but is {value}.")
    if args.rows:
        rows = parse_rows(args.rows, len(text))
    else:
        rng = np.random.default_rng(args.seed)
        rows = sorted(rng.choice(len(text), size=min(args.sample, len(text)), replace=False).tolist())
    check_shown(len(rows), "sentences", "rows" if args.rows else "sample")
    if args.min_score is not None and not args.draw_regions:
        raise InputError(f"--min-score {args.min_score:g} is for regions that are drawn: give --draw-regions, too.")
    if args.draw_regions:
        check_drawable(store, args.min_score)

    def draw(row: int, picture: "Image.Image") -> "Image.Image":
        return letterbox(draw_regions(picture, regions_of_images(store, [row], args.min_score)[0]))

    side = SIDE if args.draw_regions else THUMBNAIL
    across = min(args.images_per_sentence, ids.ids.shape[1])
    check_images(len(rows) * across, "images_per_sentence", "rows" if args.rows else "sample")
    drawing = draw if args.draw_regions else None
    pictures = images_of_sentences(ids, rows, store, images, across, drawing, side)
    check_pictures((picture for found in pictures for picture in found), images, args)
    shown = [
        ReportRow(text[row], found, [(name, lines[row], None) for name, lines in outputs])
        for row, found in zip(rows, pictures)
    ]
    section = ReportSection(f"{len(rows)} of {len(text)} sentences", shown, ids.signature)
    write_report(Path(args.out), args.title, [section], side=side)
    print(f"{Path(args.out) / 'report.html'} and report.png show {len(rows)} sentences.")


def parse_rows(rows: str, lines: int) -> list[int]:
    """Row numbers from `1,5,9`.

    >>> parse_rows("1, 5", 6)
    [1, 5]

    Raises:
        InputError: not numbers, or outside the text.
    """
    try:
        numbers = [int(row) for row in rows.split(",")]
    except ValueError as error:
        raise InputError(f"--rows should be numbers separated by commas, but is {rows!r}.") from error
    outside = [number for number in numbers if not 0 <= number < lines]
    if outside:
        raise InputError(f"--rows should lie in 0..{lines - 1}, the lines of the text, but has {outside[0]}.")
    return numbers
