"""Feature arrays that people already have -> feature store, streamed."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..progress import progress_bar
from ..storage.ranks import this_rank
from ..storage.signature import signature
from .best_regions import check_min_score, keep_best
from .blocks import ArraySource, Block
from .boxes import BOX_FORMATS, to_corners
from .columns import Columns
from .region_table import RegionTable
from .store import ARRAYS_DIGITS
from .store_writer import StoreSummary, StoreWriter

NORMALISATIONS = ("no", "l2")


def import_features(
    source: ArraySource,
    out: str | Path,
    normalise: str = "no",
    shard_size: int = 1024,
    strict: bool = False,
    made_by: str | None = None,
    columns: Columns | None = None,
    box_format: str | None = None,
    table: RegionTable | None = None,
    min_score: float | None = None,
    sizes: np.ndarray | None = None,
) -> StoreSummary:
    """Write a feature store.

    Args:
        normalise: "l2" scales each region's features to length 1; zero stays zero.
        strict: the first unreadable file is an error, and so is a region that has a label or a box but no features.
        made_by: what made the features, for the signature: a model takes features of other images that were made alike.
            None: their digest stands there, so that no other features count as made alike.
        columns: what the source's columns are, with the names of its labels; None for none.
        box_format: of the source's boxes; one of `BOX_FORMATS`. None: as the source says.
        table: boxes and labels of the source's regions, in the same order within each image; instead of `columns`.
        min_score: regions below it are left out. Where an image has more regions than the source says that one shall
            have, the best are kept, by their scores; of equals, the first.
        sizes: (I, 2) widths and heights of the pictures in whose pixels boxes are, 0 where unknown; None where the
            source or the table has them, or boxes are in 0..1.

    Raises:
        InputError: features that are NaN, infinite or too large for float16, files that disagree, values that their
            column can't have, another number of regions in the table, an output that exists or can't be written.
    """
    box_format = box_format or ("xyxy" if table is not None else source.box_format)
    _check_choices(normalise, box_format, made_by)
    columns = table.columns if table is not None else columns or Columns()
    if min_score is not None:
        check_min_score(min_score, columns)
    if table is not None:
        _check_table(table, source, box_format, sizes)
    has_boxes = table is None and "boxes" in columns.present
    chosen = {
        "made_by": made_by,
        "regions_table": None if table is None else table.digest,
        "box_format": box_format if has_boxes else None,
        "min_score": min_score,
        "box_sizes": None if sizes is None else hashlib.sha256(np.asarray(sizes, np.float64).tobytes()).hexdigest(),
    }
    plan = {**source.plan, "normalise": normalise}
    plan |= {name: choice for name, choice in chosen.items() if choice is not None}
    writer = StoreWriter(out, source.keys, source.regions, source.size, plan, shard_size, strict, columns)
    shards = list(writer.missing())
    done = writer.share - sum(shard.stop - shard.start for shard in shards)
    with progress_bar(writer.share, done, "images", shown=bool(shards) and this_rank().leads) as progress:
        for shard in shards:
            block = source.block(shard.start, shard.stop)
            if normalise == "l2":
                block = block._replace(features=_unit_length(block.features))
            if table is not None:
                block = _with_table(block, table, source.keys, shard.start, shard.stop)
            block = _with_corners(block, box_format, sizes, table, source.keys, shard.start)
            block, left_out = keep_best(block, source.regions, min_score, source.keys, shard.start)
            try:
                writer.write(shard, block.features, block.unreadable, block.columns, left_out)
            except InputError as error:
                if "boxes" not in error.choices:
                    raise
                raise _with_hint(error, block, table) from error
            progress.update(shard.stop - shard.start)
    made = {"arrays": plan["arrays"][:ARRAYS_DIGITS]} if made_by is None else {"made_by": made_by}
    named = columns.signed()
    if min_score is not None:
        named["min_score"] = f"{min_score:g}"
    if source.asked_regions is not None:  # a model that learned from 16 regions would take 4 of them
        named["regions"] = str(source.asked_regions)
    return writer.publish(signature("import", images=len(source.keys), normalise=normalise, **made, **named))


def _check_choices(normalise: str, box_format: str, made_by: str | None) -> None:
    for what, choice, value, known in (
        ("the normalisation", "normalise", normalise, NORMALISATIONS),
        ("the format of boxes", "box_format", box_format, BOX_FORMATS),
    ):
        if value not in known:
            raise InputError(f"{what} should be one of {', '.join(known)}, but is {value}.", choice)
    if made_by is not None and (not made_by.strip() or "\n" in made_by):
        raise InputError(f"what made the features should be one line of text, but is {made_by!r}.", "made_by")


def _check_table(table: RegionTable, source: ArraySource, box_format: str, sizes: np.ndarray | None) -> None:
    if source.columns:
        raise InputError(
            f"boxes and labels should come from {table.path}, or from {', '.join(source.columns)} beside the features, "
            "but both were given.",
            "regions_table",
            *source.columns,
        )
    if table.sizes is not None and ("box_sizes" in source.plan or sizes is not None):
        raise InputError(f"{table.path} has the pictures' widths and heights; leave out the others.", "box_sizes")
    if box_format != "xyxy":
        raise InputError(f"boxes of a table are x1, y1, x2, y2, but the format is {box_format}.", "box_format")


def _with_table(block: Block, table: RegionTable, keys: Any, start: int, stop: int) -> Block:
    """Give a block the table's columns, once each image has as many regions in both."""
    present = block.features.any(axis=2)  # (images, R)
    regions = present.shape[1]
    found = np.where(present.any(axis=1), regions - present[:, ::-1].argmax(axis=1), 0)  # up to the last one present
    wanted = table.counts[start:stop].copy()
    wanted[[row - start for row in block.unreadable]] = found[[row - start for row in block.unreadable]]
    if (found != wanted).any():
        place = int(np.argmax(found != wanted))
        raise InputError(
            f"features and table should have as many regions of each image, in the same order, but row {start + place} "
            f"({keys[start + place]}) has {found[place]} regions with features, and {wanted[place]} lines in "
            f"{table.path}. {int((found != wanted).sum())} such images among these {len(found)}.",
            "regions_table",
        )
    sizes = block.sizes if table.sizes is None else np.where(table.sizes[start:stop] > 0, table.sizes[start:stop], 1)
    return block._replace(columns=table.block(start, stop, regions), sizes=sizes)


def _with_corners(
    block: Block, box_format: str, sizes: np.ndarray | None, table: RegionTable | None, keys: Any, start: int
) -> Block:
    """Bring a block's boxes, if it has any, into the form of a store."""
    if sizes is not None:
        needed = block.features.any(axis=(1, 2))[:, None]  # (images, 1)
        block = block._replace(sizes=np.where(needed, sizes[start : start + len(needed)], 1))
    if "boxes" in block.columns:
        _check_sizes(block, keys, start)
        _check_pixels(block, table, keys, start)
        block.columns["boxes"] = to_corners(block.columns["boxes"], box_format, block.sizes)
    return block


def _with_hint(error: InputError, block: Block, table: RegionTable | None) -> InputError:
    """What a store refused of boxes, with the choices that they come from."""
    choices, hint = ["boxes", "box_format"] if table is None else ["regions_table"], ""
    if block.sizes is None and (block.columns["boxes"] > 1).any():
        choices.append("box_sizes")
        hint = " If boxes are in pixels, give the pictures' widths and heights."
    return InputError(f"{error}{hint}", *choices)


def _check_sizes(block: Block, keys: Any, start: int) -> None:
    if block.sizes is None:
        return
    bad = ~(np.isfinite(block.sizes) & (block.sizes > 0)).all(axis=1)
    if bad.any():
        place = int(np.argmax(bad))
        width, height = block.sizes[place]
        raise InputError(
            f"widths and heights should be above 0, but row {start + place} ({keys[start + place]}) has {width:g} and "
            f"{height:g}. {int(bad.sum())} such images among these {len(bad)}.",
            "box_sizes",
        )


def _check_pixels(block: Block, table: RegionTable | None, keys: Any, start: int) -> None:
    """Refuse boxes in 0..1 beside widths and heights: divided by these, all would lie in the picture's first pixel."""
    if block.sizes is None:
        return
    present = block.features.any(axis=2)[..., None]  # (images, R, 1)
    farthest = np.where(present, np.abs(block.columns["boxes"]), 0).max(axis=(1, 2))  # (images,)
    bad = (farthest > 0) & (farthest <= 1) & (block.sizes > 2).all(axis=1)  # NaN is neither, and refused as such
    if bad.any():
        place = int(np.argmax(bad))
        width, height = block.sizes[place]
        mend, *choices = (
            ("where the file has them itself, name the array of features, and each column.", "array", "boxes")
            if table is None
            else (f"where they are columns of {table.path}, take these out.", "regions_table")
        )
        raise InputError(
            f"boxes should be in pixels where widths and heights of pictures are known, but all boxes of row "
            f"{start + place} ({keys[start + place]}), {width:g} x {height:g} pixels, lie in 0..1. "
            f"{int(bad.sum())} such images among these {len(bad)}. If they are in 0..1 of the picture, leave its width "
            f"and height out: {mend}",
            *choices,
            "box_sizes",
        )


def _unit_length(features: np.ndarray) -> np.ndarray:
    features = features.astype(np.float64)  # squares of large numbers would overflow
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # infinity becomes NaN, and is refused as such
        return features / np.where(lengths == 0, 1, lengths)
