"""What every verb that reports scores shares: flags of its resampling, what decided its numbers, its tables."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, check_at_least_one

_MOST_SAMPLES = 1_000_000


def add_resampling(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the draws of sentences."""
    parser.add_argument("--bootstrap-samples", type=int, default=1000, metavar="K", help="resamplings (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of the resampling (default: 1)")


def check_resampling(args: argparse.Namespace) -> None:
    """Refuse numbers that make no sense, before anything is read.

    Raises:
        InputError: one of them.
    """
    check_at_least_one(bootstrap_samples=args.bootstrap_samples)
    if args.bootstrap_samples > _MOST_SAMPLES:
        raise InputError(
            f"bootstrap samples should be at most {_MOST_SAMPLES}, but are {args.bootstrap_samples}: an interval takes "
            "1000 or so.",
            "bootstrap_samples",
        )


def meta_of(args: argparse.Namespace, files: Iterable[str | Path | None], packages: Sequence[str]) -> dict[str, Any]:
    """What decides the numbers: arguments, contents of files, versions of this package and of others."""
    from importlib.metadata import version

    from .._version import __version__
    from ..storage.artefact import sha256_of_file

    return {
        "arguments": {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()},
        "sha256": {str(path): sha256_of_file(path) for path in files if path},
        "versions": {"visual_grounding": __version__, **{name: version(name) for name in packages}},
    }


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, the first to the left, the others to the right; the first row their heads."""
    from tabulate import tabulate

    sides = ("left", *["right"] * (len(rows[0]) - 1))
    return tabulate(list(rows), tablefmt="plain", colalign=sides, disable_numparse=True).split("\n")


def small_p(value: float) -> str:
    """A p-value that many resamplings, or a formula, make as small as they like; files have all of its digits.

    >>> small_p(0.03125), small_p(1e-9)
    ('0.0312', '<0.0001')
    """
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"
