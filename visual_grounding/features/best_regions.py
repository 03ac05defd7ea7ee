"""The regions of an image that are worth keeping: those of the highest scores."""

from collections.abc import Sequence

import numpy as np

from ..errors import InputError
from .blocks import Block
from .columns import COLUMNS, Columns


def keep_best(
    block: Block, regions: int, min_score: float | None, keys: Sequence[str], start: int
) -> tuple[Block, dict[str, int]]:
    """At most `regions` regions of each image, the best, and none below a score. Their order stays.

    Args:
        keys: of all images; the block's begin at `start`.

    Shapes:
        block: features (images, R', F)
        returns: features (images, `regions`, F); and how many regions were left out: weak ones, and others beyond R

    Raises:
        InputError: an image has more regions than that, and nothing says which are the best.
    """
    present = block.features.any(axis=2)  # (images, R')
    if present.shape[1] == regions and min_score is None:
        return block, {}
    scores = block.columns.get("scores")
    if scores is None:
        most = np.where(present.any(axis=1), present.shape[1] - present[:, ::-1].argmax(axis=1), 0)  # (images,)
        if (most > regions).any():
            place = int(np.argmax(most > regions))
            raise InputError(
                f"images should have {regions} regions at most, as was said, but row {start + place} "
                f"({keys[start + place]}) has {most[place]}, and no scores say which are the best.",
                "regions",
                "scores",
            )
        columns = {name: values[:, :regions] for name, values in block.columns.items()}
        return block._replace(features=block.features[:, :regions], columns=columns), {}
    weak = present & (scores < (-np.inf if min_score is None else min_score))
    kept = present & ~weak
    rank = np.where(np.isnan(scores), -np.inf, -scores.astype(np.float64))  # NaN stays, to be refused
    order = np.argsort(np.where(kept, rank, np.inf), axis=1, kind="stable")[:, :regions]
    best = np.zeros_like(kept)
    np.put_along_axis(best, order, True, axis=1)
    best &= kept
    places = np.argsort(~best, axis=1, kind="stable")[:, :regions]  # the best in their order, then what is left out
    # What columns say of regions that were absent anyway stays, to be counted by whoever writes the store.
    gone = np.take_along_axis(present & ~best, places, axis=1)  # (images, regions)

    def picked(values: np.ndarray, absent: float) -> np.ndarray:
        axes = (1,) * (values.ndim - 2)
        found = np.take_along_axis(values, places.reshape(*places.shape, *axes), axis=1)
        found[gone] = absent
        return found

    features = picked(block.features, 0)
    columns = {name: picked(values, COLUMNS[name].absent) for name, values in block.columns.items()}
    left_out = {"weak": int(weak.sum()), "surplus": int((kept & ~best).sum())}
    return block._replace(features=features, columns=columns), left_out


def check_min_score(min_score: float, columns: Columns) -> None:
    """Refuse a lowest score where there are no scores.

    Raises:
        InputError: there are none, or it is no number.
    """
    if "scores" not in columns.present:
        has = ", ".join(columns.present) or "features alone"
        raise InputError(
            f"regions below {min_score:g} can be left out where their scores are known, but there are {has}.",
            "min_score",
            "scores",
        )
    if not np.isfinite(min_score):
        raise InputError(f"the lowest score should be a number, but is {min_score}.", "min_score")
