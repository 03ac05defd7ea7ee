"""Show sentences with the image of each of their pieces under it: DIR/report.html and a PNG each, DIR/line-7.png.

  visual-grounding report vokens --vokens vokens/train --images photos/ --lines 0 3 7 --out report

A piece without a voken has an empty place; scores stand below where `vokenize --scores` kept them.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, check_at_least_one
from .image_source import add_image_source, check_pictures, check_shown, open_image_source

if TYPE_CHECKING:
    from ..vokenization.vokens import Vokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--vokens", type=Path, required=True, metavar="DIR", help="from `vokenize` or `revokenize`")
    add_image_source(parser, "the pictures, what the candidates come from: ")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--lines", type=int, nargs="+", metavar="N", help="lines of the text, from 0 (default: --first of them)"
    )
    which.add_argument(
        "--first",
        type=int,
        default=6,
        metavar="N",
        help="show the first N lines that have pieces (default: %(default)s)",
    )
    parser.add_argument("--title", default="Vokens", help="heading of the page")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for report.html and the PNGs")


def run(args: argparse.Namespace) -> None:
    """Draw them.

    Raises:
        InputError: vokens that are broken, lines that aren't there, pictures that can't be shown, or an output that
            can't be written.
    """
    from ..analysis.drawn_vokens import lines_with_vokens, write_voken_report
    from ..shares import share
    from ..vokenization.vokens import Vokens

    check_at_least_one(first=args.first)
    vokens = Vokens(args.vokens)
    numbers = _lines(vokens, args)
    check_shown(len(numbers), "lines", "lines" if args.lines else "first")
    images = open_image_source(args)
    lines = lines_with_vokens(vokens, numbers, images)
    pieces = [piece for line in lines for piece in line.pieces]
    check_pictures((piece.image for piece in pieces if piece.image is not None), images, args)
    names = write_voken_report(args.out, args.title, lines, vokens.signature)
    print(f"{args.out / 'report.html'} and {', '.join(names)} show {len(pieces)} pieces of {len(lines)} lines.")
    without = sum(piece.image is None for piece in pieces)
    if without:
        print(f"{share(without, len(pieces), 'pieces')} have no voken.")


def _lines(vokens: "Vokens", args: argparse.Namespace) -> list[int]:
    """Numbers of the lines to be shown, each once, in the order of the flag or of the text."""
    from itertools import islice

    if args.lines:
        outside = [number for number in args.lines if not 0 <= number < vokens.lines]
        if outside:
            raise InputError(
                f"--lines should lie in 0..{vokens.lines - 1}, the lines of {vokens.folder}, but has {outside[0]}."
            )
        return list(dict.fromkeys(args.lines))
    full = (number for number in range(vokens.lines) if vokens.offsets[number] < vokens.offsets[number + 1])
    found = list(islice(full, args.first))
    if not found:
        raise InputError(f"{vokens.folder} should have a line with pieces, to be shown, but has none.")
    return found
