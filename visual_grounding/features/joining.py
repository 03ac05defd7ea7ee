"""Several feature stores, of photos that came one after the other, as one."""

import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..progress import progress_bar
from ..storage.ranks import this_rank
from ..storage.signature import made_alike
from .columns import COLUMNS, NAMES, Columns
from .store import FeatureStore
from .store_writer import UNREADABLE, StoreSummary, StoreWriter, read_unreadable


def join_stores(stores: Sequence[FeatureStore], out: str | Path, shard_size: int = 1024) -> StoreSummary:
    """Write the images of all stores, in the order given, as one store of the same making.

    Models and retrievers that learned from one of them take it. Where images have fewer regions than those of another
    store, absent ones stand behind them.

    Raises:
        InputError: features were made otherwise, columns differ, an image is in two of them, or an output that exists,
            one of the stores say, or can't be written.
    """
    for store in stores[1:]:
        _check_alike(stores[0], store)
    if any(os.path.realpath(store.folder) == os.path.realpath(out) for store in stores):
        raise InputError(f"{out} is one of the stores that are joined. Choose another folder for all of them.", "out")
    keys, starts = _all_keys(stores)
    regions, columns = max(store.num_regions for store in stores), _columns(stores[0])
    unreadable = {row: reason for store, start in zip(stores, starts) for row, reason in _unreadable(store, start)}
    plans = [dict(store.plan) for store in stores]
    same = {name: value for name, value in plans[0].items() if all(plan.get(name) == value for plan in plans)}
    plan = {**same, "joined": [store.digest for store in stores]}
    writer = StoreWriter(out, keys, regions, stores[0].feature_size, plan, shard_size, columns=columns)
    shards = list(writer.missing())
    done = writer.share - sum(shard.stop - shard.start for shard in shards)
    with progress_bar(writer.share, done, "images", shown=bool(shards) and this_rank().leads) as progress:
        for shard in shards:
            arrays = _block(stores, starts, shard.start, shard.stop, regions)
            here = {row: reason for row, reason in unreadable.items() if shard.start <= row < shard.stop}
            writer.write(shard, arrays.pop("features"), here, arrays)
            progress.update(shard.stop - shard.start)
    return writer.publish(_signature(stores[0], len(keys)))


def _check_alike(first: FeatureStore, other: FeatureStore) -> None:
    if first.feature_size != other.feature_size:
        raise InputError(
            f"stores should have features of one size, but {first.folder} has {first.feature_size} numbers a region "
            f"and {other.folder} {other.feature_size}.",
            "stores",
        )
    if not made_alike(first.signature, other.signature):
        raise InputError(
            f"stores should be made alike to be one, but {other.folder} was made otherwise than {first.folder}: "
            f"{other.signature} ≠ {first.signature}",
            "stores",
        )
    if first.columns != other.columns:
        has = [f"{store.folder} has {', '.join(store.columns) or 'features alone'}" for store in (first, other)]
        raise InputError(f"stores should have the same columns, but {', '.join(has)}.", "stores")
    for column in NAMES:
        names = (_columns(store).names_of(column) for store in (first, other))
        for number, (one, two) in enumerate(zip_longest(*names)):
            if one != two:
                raise InputError(
                    f"{column} should stand for the same names in all stores, but {number} is {one!r} in "
                    f"{first.folder} and {two!r} in {other.folder}.",
                    "stores",
                )


def _columns(store: FeatureStore) -> Columns:
    named = {"labels": store.label_names, "attributes": store.attribute_names}
    names = {NAMES[name]: tuple(lines) for name, lines in named.items() if name in store.columns}
    return Columns(store.columns, **names)


def _all_keys(stores: Sequence[FeatureStore]) -> tuple[list[str], list[int]]:
    """Keys of all images, and the row at which those of each store begin."""
    keys: list[str] = []
    starts: list[int] = []
    for store in stores:
        starts.append(len(keys))
        known, own = set(keys), list(store.keys())
        twice = [key for key in own if key in known]
        if twice:
            raise InputError(
                f"an image should be in one of the stores, but {len(twice)} of {store.folder} are in another one, too; "
                f"the first is {twice[0]!r}.",
                "stores",
            )
        keys.extend(own)
    return keys, starts


def _unreadable(store: FeatureStore, start: int) -> list[tuple[int, str]]:
    """Rows of the joined store, and reasons."""
    reasons = dict(read_unreadable(store.folder))
    found = [(row, reasons[key]) for row, key in enumerate(store.keys()) if key in reasons]
    if (~store.gather([row for row, _ in found])[1]).any():
        raise InputError(
            f"{store.folder / UNREADABLE} lists images that have features. Delete the store, and make it again."
        )
    return [(start + row, reason) for row, reason in found]


def _block(
    stores: Sequence[FeatureStore], starts: Sequence[int], start: int, stop: int, regions: int
) -> dict[str, np.ndarray]:
    """Features and columns of some rows.

    Shapes:
        returns: (stop - start, R, ...) each
    """
    parts: list[dict[str, np.ndarray]] = []
    for store, first in zip(stores, starts):
        rows = np.arange(max(start, first), min(stop, first + len(store))) - first
        if not rows.size:
            continue
        arrays = {"features": store.gather(rows)[0], **store.gather_columns(rows)}
        missing = regions - store.num_regions
        for name, values in arrays.items():
            absent = 0 if name == "features" else COLUMNS[name].absent
            behind = ((0, 0), (0, missing), *((0, 0) for _ in values.shape[2:]))
            arrays[name] = np.pad(values, behind, constant_values=absent)
        parts.append(arrays)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _signature(store: FeatureStore, images: int) -> str:
    """That of one of the stores, with the number of all images."""
    fields = store.signature.split("|")
    return "|".join(f"images:{images}" if field.startswith("images:") else field for field in fields)
