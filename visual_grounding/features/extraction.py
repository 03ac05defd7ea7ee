"""Pixels -> feature store: decode ahead in threads, run a network by batches, pool its map, write shard by shard."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn.functional import adaptive_avg_pool2d

from ..devices import choose_device, cores
from ..errors import InputError
from ..images.sources import ImageSource, UnreadableImage, read_image
from ..progress import progress_bar
from ..storage.ranks import this_rank
from ..storage.signature import signature
from .backbones import Backbone, PicturePreprocessing
from .store_writer import StoreSummary, StoreWriter

POOLS = ("mean", "max", "grid", "own")
PRECISIONS = ("float32", "float16", "bfloat16")
Item = TypeVar("Item")
Result = TypeVar("Result")


class Pooling(NamedTuple):
    """How a network's map becomes regions: `mean` or `max` over all of it, or the means of `grid` x `grid` cells.

    `grid` is None for the network's own map: each of its places is a region. `own` is the network's own pooling and
    projection instead of its map: one region.
    """

    kind: str = "mean"
    grid: int | None = None

    def regions(self, feature_map: torch.Tensor) -> torch.Tensor:
        """Pool.

        Shapes:
            feature_map: (B, F, h, w); for own (B, F), pooled already
            returns: (B, R, F), cells row by row from the top left; R = 1 for mean, max and own.
        """
        if self.kind == "own":
            return feature_map.unsqueeze(1)
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
    forward: "_Forward"
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
            pixels: (B, H, W, 3) uint8, on the CPU
            returns: (B, R, F) on the device
        """
        return self.pooling.regions(self.forward(pixels))

    @property
    def place(self) -> torch.device:
        """Where the network computes."""
        return self.forward.device


def prepare(
    images: ImageSource,
    backbone: Backbone,
    pooling: Pooling = MEAN,
    device: str | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    precision: str = "float32",
) -> Preparation:
    """Check every choice and put the network on its device; nothing is written.

    Raises:
        InputError: a choice that doesn't fit the network or the machine.
    """
    for name, value in (("--batch-size", batch_size), ("--workers", 1 if workers is None else workers)):
        if value < 1:
            raise InputError(f"{name} should be 1 or more, but is {value}.")
    place = choose_device(device)
    forward = _Forward(_network(backbone, pooling), backbone.preprocessing, place, _dtype(precision, place))
    features, height, width = forward.map_size()
    regions = _count_regions(pooling, height, width, backbone.name)
    choices = {
        "backbone": backbone.name,
        "weights": backbone.weights,
        "preprocessing": backbone.preprocessing.describe(),
        "pool": pooling.kind,
        "grid": pooling.grid,
        "precision": precision,
    }
    plan = {**choices, "images": images.digest, "device": place.type, "batch_size": batch_size}
    seen = {"images": len(images.keys), **choices, "preprocessing": backbone.preprocessing.summary}
    shape = (regions, features)
    return Preparation(images, backbone, pooling, forward, shape, plan, seen, batch_size, workers or cores())


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
    precision: str = "float32",
) -> StoreSummary:
    """Write the feature store of a collection of images.

    Batches are formed inside a shard, and decoding doesn't depend on its thread, so an interrupted run continues to the
    same bytes.

    Args:
        device: "cpu", "cuda", "cuda:1"; None for CUDA where there is one.
        workers: threads that read and decode; None for one per core, shared among the ranks of this machine.
        strict: the first unreadable image is an error.
        precision: what the network computes in: "float32" as torch does it by default (on CUDA, convolutions take
            TF32), or "bfloat16" or, on CUDA, "float16" where torch's autocast finds that they do. The network's map is
            pooled in float32.

    Raises:
        InputError: a choice that doesn't fit the network or the machine, features that aren't finite, an output that
            exists or can't be written, no readable image at all.
    """
    job = prepare(images, backbone, pooling, device, batch_size, workers, precision)
    writer = StoreWriter(out, images.keys, *job.shape, job.plan, shard_size, strict)
    shards = list(writer.missing())
    rows = (row for shard in shards for row in range(shard.start, shard.stop))
    missing = sum(shard.stop - shard.start for shard in shards)
    shown = bool(shards) and this_rank().leads
    with progress_bar(writer.share, writer.share - missing, "images", shown=shown) as progress:
        loaded = map_ahead(job.load, rows, job.threads, ahead=2 * batch_size + job.threads)
        for shard in shards:
            unreadable: dict[int, str] = {}
            batches = []  # left on the device until the shard is whole, so that collecting the next doesn't wait for it
            for start in range(shard.start, shard.stop, batch_size):
                stop = min(start + batch_size, shard.stop)
                pixels = _batch(loaded, start, stop, backbone.preprocessing.shape, unreadable, job.place.type == "cuda")
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


def _network(backbone: Backbone, pooling: Pooling) -> nn.Module:
    """The part of a backbone that a pooling needs."""
    if pooling.kind != "own":
        return backbone.network
    if backbone.own is None:
        raise InputError(f"--pool own: {backbone.name} has no pooling of its own. Give --pool mean.")
    return backbone.own


def _dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision not in PRECISIONS:
        raise InputError(f"--precision should be one of {', '.join(PRECISIONS)}, but is {precision}.")
    if precision == "float16" and device.type == "cpu":
        raise InputError("--precision float16 needs --device cuda; on cpu give --precision bfloat16 or float32.")
    return getattr(torch, precision)


def _count_regions(pooling: Pooling, height: int, width: int, name: str) -> int:
    if pooling.kind not in POOLS:
        raise InputError(f"--pool should be one of {', '.join(POOLS)}, but is {pooling.kind}.")
    if pooling.kind != "grid":
        if pooling.grid is not None:
            raise InputError(f"--grid {pooling.grid} needs --pool grid, but --pool is {pooling.kind}.")
        return 1
    if pooling.grid is None:
        return height * width
    if not 1 <= pooling.grid <= min(height, width):
        raise InputError(
            f"--grid should be 1 to {min(height, width)}, because the map of {name} is {height}x{width} here, but is "
            f"{pooling.grid}. A larger --image-size gives a larger map."
        )
    return pooling.grid**2


def _batch(
    loaded: Iterator[np.ndarray | str],
    first: int,
    stop: int,
    shape: tuple[int, int],
    unreadable: dict[int, str],
    pin: bool,
) -> torch.Tensor:
    """Collect the next images; one that is unreadable stays black and is noted with its reason.

    Shapes:
        returns: (stop - first, H, W, 3) uint8
    """
    pixels = torch.zeros(stop - first, *shape, 3, dtype=torch.uint8, pin_memory=pin)
    for place, row in enumerate(range(first, stop)):
        image = next(loaded)
        if isinstance(image, str):
            unreadable[row] = image
        else:
            pixels[place] = torch.from_numpy(image)
    return pixels


class _Forward:
    """A network on its device, in its precision."""

    def __init__(
        self, network: nn.Module, preprocessing: PicturePreprocessing, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.network = network.to(device)
        self.preprocessing = preprocessing
        self.device = device
        self.dtype = dtype

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """What the network makes of a batch.

        Shapes:
            pixels: (B, H, W, 3) uint8, on the CPU
            returns: (B, F, h, w), or (B, F) where it pools by itself; float32 on the device

        Raises:
            InputError: the batch is too large for the device.
        """
        mixed = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        # The same algorithm every time: a rerun after an interruption must give the same bytes.
        same = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
        with torch.inference_mode(), same, mixed:
            try:
                return self.network(self.preprocessing.normalise(pixels.to(self.device, non_blocking=True))).float()
            except torch.cuda.OutOfMemoryError as error:
                raise InputError(
                    f"{len(pixels)} images at once don't fit into the memory of {self.device}. Lower --batch-size."
                ) from error

    def map_size(self) -> tuple[int, int, int]:
        """F, h and w, by one blank image; h = w = 1 where the network pools by itself."""
        blank = self(torch.zeros(1, *self.preprocessing.shape, 3, dtype=torch.uint8))
        return (blank.shape[1], *blank.shape[2:]) if blank.dim() == 4 else (blank.shape[1], 1, 1)
