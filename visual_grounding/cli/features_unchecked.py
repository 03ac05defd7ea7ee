"""The flag that takes features of another making, for every verb that refuses them."""

import argparse
from typing import TYPE_CHECKING

from ..errors import warn

if TYPE_CHECKING:
    from ..retrieval.retriever import Retriever


def add_features_unchecked(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--image-features-unchecked",
        action="store_true",
        help="take --image-features that fit the retriever by size, though they were made otherwise than those that it "
        "was trained on",
    )


def warn_of_unknown_making(retriever: "Retriever", unchecked: bool) -> None:
    """Say where features can't be checked."""
    from ..storage.ranks import this_rank

    if retriever.why_unchecked and not unchecked and this_rank().leads:
        warn(retriever.why_unchecked)
