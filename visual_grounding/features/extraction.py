"""Pixels -> feature store: decode ahead in threads, run a network by batches, pool its map, write shard by shard."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch.nn.functional import adaptive_avg_pool2d
from tqdm import tqdm

from ..devices import choose_device
from ..errors import InputError
from ..storage.ranks import ranks_here, this_rank
from ..storage.signature import signature
from .backbones import Backbone
from .images import ImageSource, UnreadableImage, read_image
from .store_writer import StoreSummary, StoreWriter

POOLS = ("mean", "max", "grid")
Item = TypeVar("Item")
Result = TypeVar("Result")


class Pooling(NamedTuple):
    """How a network's map becomes regions: `mean` or `max` over all of it, or the means of `grid` x `grid` cells.

    `grid` is None for the network's own map: each of its places is a region.
    """

    kind: str = "mean"
    grid: int | None = None

    def regions(self, feature_map: torch.Tensor) -> torch.Tensor:
        """Pool.

        Shapes:
            feature_map: (B, F, h, w)
            returns: (B, R, F), cells row by row from the top left; R = 1 for mean and max.
        """
        if self.kind == "max":
            return feature_map.amax(dim=(2, 3)).unsqueeze(1)
        if self.kind == "mean":
            return feature_map.mean(dim=(2, 3)).unsqueeze(1)
        cells = feature_map if self.grid is None else adaptive_avg_pool2d(feature_map, self.grid)
        return cells.flatten(2).transpose(1, 2)


MEAN = Pooling()


def extract(
    images: ImageSource,
    backbone: Backbone,
    out: str | Path,
    pooling: Pooling = MEAN,
    device: str | None = None,
    batch_size: int = 64,
    shard_size: int = 1024,
    workers: int | None = None,
    strict: bool = False,
) -> StoreSummary:
    """Write the feature store of a collection of images.

    Batches are formed inside a shard, and decoding doesn't depend on its thread, so an interrupted run continues to the
    same bytes.

    Args:
        device: "cpu", "cuda", "cuda:1"; None for CUDA where there is one.
        workers: threads that read and decode; None for one per core, shared among the ranks of this machine.
        strict: the first unreadable image is an error.

    Raises:
        InputError: a choice that doesn't fit the network or the machine, features that aren't finite, an output that
            exists or can't be written, no readable image at all.
    """
    for name, value in (("--batch-size", batch_size), ("--workers", 1 if workers is None else workers)):
        if value < 1:
            raise InputError(f"{name} should be 1 or more, but is {value}.")
    place = choose_device(device)
    backbone.network.to(place)
    features, side = _map_size(backbone, place)
    regions = _count_regions(pooling, side, backbone.name)
    choices = {
        "backbone": backbone.name,
        "weights": backbone.weights,
        "preprocessing": backbone.preprocessing.as_plan(),
        "pool": pooling.kind,
        "grid": pooling.grid,
    }
    plan = {**choices, "images": images.fingerprint, "device": place.type, "batch_size": batch_size}
    writer = StoreWriter(out, images.keys, regions, features, plan, shard_size, strict)
    shards = list(writer.missing())

    def load(row: int) -> np.ndarray | str:
        try:
            return backbone.preprocessing.pixels(read_image(images, row))
        except UnreadableImage as reason:
            return str(reason)

    rows = (row for shard in shards for row in range(shard.start, shard.stop))
    threads = workers or _cores()
    missing = sum(shard.stop - shard.start for shard in shards)
    quiet = not shards or not this_rank().leads
    with tqdm(total=writer.share, initial=writer.share - missing, unit="image", disable=quiet) as progress:
        loaded = map_ahead(load, rows, threads, ahead=2 * batch_size + threads)
        for shard in shards:
            unreadable: dict[int, str] = {}
            batches = []  # left on the device until the shard is whole, so that collecting the next doesn't wait for it
            for start in range(shard.start, shard.stop, batch_size):
                stop = min(start + batch_size, shard.stop)
                pixels = _batch(loaded, start, stop, backbone.preprocessing.crop, unreadable, place.type == "cuda")
                batches.append(pooling.regions(_forward(backbone, pixels, place)))
                progress.update(stop - start)
            writer.write(shard, torch.cat(batches).cpu().numpy(), unreadable)
    seen = {
        "images": len(images.keys),
        **choices,
        "preprocessing": f"{backbone.preprocessing.resize}/{backbone.preprocessing.crop}",
    }
    return writer.publish(signature("extract", **seen))


def map_ahead(function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int) -> Iterator[Result]:
    """Apply `function` in threads, in order, at most `ahead` items before the one that is taken."""
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _map_size(backbone: Backbone, device: torch.device) -> tuple[int, int]:
    """Channels and side of the network's map, by one blank image."""
    side = backbone.preprocessing.crop
    blank = _forward(backbone, torch.zeros(1, side, side, 3, dtype=torch.uint8), device)
    return blank.shape[1], blank.shape[2]


def _count_regions(pooling: Pooling, side: int, name: str) -> int:
    if pooling.kind not in POOLS:
        raise InputError(f"--pool should be one of {', '.join(POOLS)}, but is {pooling.kind}.")
    if pooling.kind != "grid":
        if pooling.grid is not None:
            raise InputError(f"--grid {pooling.grid} needs --pool grid, but --pool is {pooling.kind}.")
        return 1
    cells = side if pooling.grid is None else pooling.grid
    if not 1 <= cells <= side:
        raise InputError(
            f"--grid should be 1 to {side}, because the map of {name} is {side}x{side} here, but is {cells}."
        )
    return cells * cells


def _batch(
    loaded: Iterator[np.ndarray | str], first: int, stop: int, crop: int, unreadable: dict[int, str], pin: bool
) -> torch.Tensor:
    """Collect the next images; one that is unreadable stays black and is noted with its reason.

    Shapes:
        returns: (stop - first, crop, crop, 3) uint8
    """
    pixels = torch.zeros(stop - first, crop, crop, 3, dtype=torch.uint8, pin_memory=pin)
    for place, row in enumerate(range(first, stop)):
        image = next(loaded)
        if isinstance(image, str):
            unreadable[row] = image
        else:
            pixels[place] = torch.from_numpy(image)
    return pixels


def _forward(backbone: Backbone, pixels: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The network's map of a batch.

    Shapes:
        pixels: (B, crop, crop, 3) uint8, on the CPU
        returns: (B, F, h, w) on the device
    """
    # The same algorithm every time: a rerun after an interruption must give the same bytes.
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        try:
            return backbone.network(backbone.preprocessing.normalise(pixels.to(device, non_blocking=True)))
        except torch.cuda.OutOfMemoryError as error:
            raise InputError(
                f"{len(pixels)} images at once don't fit into the memory of {device}. Lower --batch-size."
            ) from error


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) // ranks_here())
