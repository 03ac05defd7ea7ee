"""The flag that takes features of another making, for every verb that refuses them; its error names it."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..retrieval.retriever import Retriever

FLAG = "--image-features-unchecked"


def add_features_unchecked(parser: argparse._ActionsContainer) -> None:
    """Add the flag."""
    parser.add_argument(
        FLAG,
        action="store_true",
        help="take --image-features that fit the retriever by size, though they were made otherwise than those that it "
        "was trained on",
    )


@contextmanager
def flag_named() -> Iterator[None]:
    """Let an error about features of another making say how to take them all the same.

    Raises:
        InputError: that error, with the flag.
    """
    from ..features.making import OtherFeaturesError

    try:
        yield
    except OtherFeaturesError as error:
        raise InputError(f"{error} To take them as they are: {FLAG}") from error


def warn_of_unknown_making(retriever: "Retriever", unchecked: bool) -> None:
    """Say where features can't be checked."""
    from ..storage.ranks import this_rank

    if retriever.why_unchecked and not unchecked and this_rank().leads:
        print(f"warning: {retriever.why_unchecked}", file=sys.stderr)
