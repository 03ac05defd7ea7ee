"""Pixels -> feature store: decode ahead in threads, run a network by batches, pool its map, write shard by shard."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch.nn.functional import adaptive_avg_pool2d

from ..devices import choose_device
from ..errors import InputError
from ..progress import progress_bar
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


@dataclass(frozen=True)
class Preparation:
    """An extraction but for its output: every choice is checked, and the network is on its device.

    Attributes:
        shape: R and F.
        plan: what decides the features.
        seen: what the signature says.
    """

    images: ImageSource
    backbone: Backbone
    pooling: Pooling
    place: torch.device
    shape: tuple[int, int]
    plan: dict[str, Any]
    seen: dict[str, Any]
    batch_size: int
    threads: int

    def load(self, row: int) -> np.ndarray | str:
        """Pixels of one image, or why there are none."""
        try:
            return self.backbone.preprocessing.pixels(read_image(self.images, row))
        except UnreadableImage as reason:
            return str(reason)

    def regions(self, pixels: torch.Tensor) -> torch.Tensor:
        """Features of a batch.

        Shapes:
            pixels: (B, crop, crop, 3) uint8, on the CPU
            returns: (B, R, F) on the device
        """
        return self.pooling.regions(_forward(self.backbone, pixels, self.place))


def prepare(
    images: ImageSource,
    backbone: Backbone,
    pooling: Pooling = MEAN,
    device: str | None = None,
    batch_size: int = 64,
    workers: int | None = None,
) -> Preparation:
    """Check every choice and put the network on its device; nothing is written.

    Raises:
        InputError: a choice that doesn't fit the network or the machine.
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
    seen = {
        "images": len(images.keys),
        **choices,
        "preprocessing": f"{backbone.preprocessing.resize}/{backbone.preprocessing.crop}",
    }
    shape = (regions, features)
    return Preparation(images, backbone, pooling, place, shape, plan, seen, batch_size, workers or _cores())


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
        workers: threads that read and decode; None for one per core.
        strict: the first unreadable image is an error.

    Raises:
        InputError: a choice that doesn't fit the network or the machine, features that aren't finite, an output that
            exists or can't be written, no readable image at all.
    """
    job = prepare(images, backbone, pooling, device, batch_size, workers)
    writer = StoreWriter(out, images.keys, *job.shape, job.plan, shard_size, strict)
    shards = list(writer.missing())
    rows = (row for shard in shards for row in range(shard.start, shard.stop))
    missing = sum(shard.stop - shard.start for shard in shards)
    with progress_bar(len(images.keys), len(images.keys) - missing, "images", shown=bool(shards)) as progress:
        loaded = map_ahead(job.load, rows, job.threads, ahead=2 * batch_size + job.threads)
        for shard in shards:
            unreadable: dict[int, str] = {}
            batches = []  # left on the device until the shard is whole, so that collecting the next doesn't wait for it
            for start in range(shard.start, shard.stop, batch_size):
                stop = min(start + batch_size, shard.stop)
                pixels = _batch(loaded, start, stop, backbone.preprocessing.crop, unreadable, job.place.type == "cuda")
                batches.append(job.regions(pixels))
                progress.update(stop - start)
            writer.write(shard, torch.cat(batches).cpu().numpy(), unreadable)
    return writer.publish(signature("extract", **job.seen))


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
    return len(os.sched_getaffinity(0))
