"""What every probe's command line shares: which model, which sentences, which images, and what is written."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, check_at_least_one
from .scoring import add_resampling, check_resampling

if TYPE_CHECKING:
    from ..analysis.intervals import Interval

RESULTS = "results.json"
PACKAGES = ("fairseq-fixed", "sacrebleu", "torch", "numpy")  # whose versions may change a number
_ORDERS = ("congruent", "shuffled", "blank")  # `data/image_order.py` says what they are; this file imports no torch
# Settings of fairseq's task whose flags here have the same name.
_SETTINGS = ("data", "image_features", "image_ids", "images_per_sentence", "image_seed", "image_features_unchecked")


def add_model(parser: argparse.ArgumentParser, twin: bool = False) -> None:
    """Add the flags for the model, its sentences and its images."""
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="CKPT", help="the trained model")
    if twin:
        parser.add_argument(
            "--twin-checkpoint", type=Path, metavar="CKPT", help="a model to compare with, on the same sentences"
        )
    parser.add_argument("--data", metavar="DIR", help="binarised text (default: what the model was trained on)")
    parser.add_argument("--split", default="test", metavar="NAME", help="sentences of this split (default: test)")
    parser.add_argument("--image-features", metavar="DIR", help="feature store (default: that of the training)")
    parser.add_argument("--image-ids", metavar="DIR", help="folder with DIR/SPLIT (default: that of the training)")
    parser.add_argument("--images-per-sentence", type=int, metavar="N", help="the best N (default: as in training)")
    parser.add_argument(
        "--image-order",
        nargs="+",
        choices=_ORDERS,
        default=["congruent"],
        help="each sentence's own images, those of another sentence, or none; the first of several is compared with "
        "each other (default: congruent)",
    )
    parser.add_argument("--image-seed", type=int, metavar="SEED", help="of shuffled (default: as in training)")
    parser.add_argument(
        "--image-features-unchecked",
        action="store_true",
        help="take features that were made otherwise than those of the training",
    )
    parser.add_argument("--user-dir", metavar="DIR", help="folder of an architecture from outside this package")


def add_running(parser: argparse.ArgumentParser, results: str = RESULTS) -> None:
    """Add the flags for how it is computed, and where it goes."""
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="sentences at a time (default: 64)")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    add_resampling(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=f"folder for {results}")


def check_running(args: argparse.Namespace) -> None:
    """Refuse numbers that make no sense, before anything is loaded.

    Raises:
        InputError: one of them.
    """
    check_at_least_one(batch_size=args.batch_size)
    check_resampling(args)
    if args.image_order and len(set(args.image_order)) < len(args.image_order):
        raise InputError(f"the orders of images should differ, but are {' '.join(args.image_order)}.", "image_order")


def add_compared(parser: argparse.ArgumentParser) -> None:
    """Add the flags for a model that is evaluated, and for what it is compared with; `compared` reads them."""
    add_model(parser, twin=True)
    order = parser._option_string_actions["--image-order"]
    parser.set_defaults(image_order=None)
    order.help = str(order.help).replace("(default: congruent)", "(default: as in each model's training)")


def compared(args: argparse.Namespace) -> dict[str, tuple[Path, str | None]]:
    """What is evaluated, and what it is compared with, if that was asked for: a checkpoint and the order of its images.

    Where none is given, the order is None, and another model's images are always as in its training.

    Raises:
        InputError: it is compared with two things.
    """
    orders = args.image_order or [None]
    asked = [(args.checkpoint, order) for order in orders]
    if args.twin_checkpoint:
        asked.append((args.twin_checkpoint, None))
    if len(asked) > 2:
        raise InputError(
            "a model is compared with one other thing: another model, or itself with other images.",
            "twin_checkpoint",
            "image_order",
        )
    return dict(zip(("hypothesis", "twin"), asked))


def changes_of(args: argparse.Namespace) -> dict[str, Any]:
    """Settings of the model's task that the flags change; what wasn't given stays as in training."""
    # 0 is a value, too.
    return {name: value for name in _SETTINGS if (value := getattr(args, name)) is not None and value is not False}


def write_results(
    out: Path,
    report: dict[str, Any],
    others: Mapping[str, Callable[[Path], object]] | None = None,
    instead_of: Sequence[str] = (),
) -> None:
    """Write results.json and what belongs to it, as `write_file_set`: where it is, all files are of one run.

    Raises:
        InputError: the folder can't be written.
    """
    from ..storage.artefact import json_text
    from ..storage.file_set import write_file_set

    files: dict[str, Callable[[Path], object]] = dict(others or {})
    files[RESULTS] = lambda path: path.write_text(json_text(report), encoding="utf-8")
    write_file_set(out, files, last=RESULTS, instead_of=instead_of)


def shown(interval: "Interval | tuple[float, float, float]", digits: int = 2, sign: bool = False) -> str:
    """A number with its 95 % interval.

    >>> from visual_grounding.analysis.intervals import Interval
    >>> shown(Interval(41.256, 40.0, 42.5)), shown(Interval(1.5, -0.25, 3.0), sign=True)
    ('41.26 [40.00, 42.50]', '+1.50 [-0.25, +3.00]')
    """
    spec = f"{'+' if sign else ''}.{digits}f"
    return f"{interval[0]:{spec}} [{interval[1]:{spec}}, {interval[2]:{spec}}]"
