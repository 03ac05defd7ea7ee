"""Pictures -> feature store: decode ahead in threads, run an extractor by batches, write shard by shard."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from ..devices import cores
from ..errors import InputError, check_at_least_one, check_workers
from ..images.sources import ImageSource, UnreadableImage, read_image
from ..progress import progress_bar
from ..storage.ranks import this_rank
from ..storage.signature import signature
from .extractor import DROPPED, Extractor
from .store_writer import StoreSummary, StoreWriter

Item = TypeVar("Item")
Result = TypeVar("Result")


class Unreadable(NamedTuple):
    """Why there is no picture."""

    reason: str


class Extraction:
    """An extraction but for its output: every choice is checked.

    Attributes:
        plan: what decides the rows.
        signature: of the store.
        threads: that read and decode.

    Raises:
        InputError: a batch size or a number of threads below 1.
    """

    def __init__(
        self, images: ImageSource, extractor: Extractor, batch_size: int = 64, workers: int | None = None
    ) -> None:
        check_at_least_one(batch_size=batch_size, workers=1 if workers is None else workers)
        check_workers(workers or 1)
        self.images = images
        self.extractor = extractor
        self.batch_size = batch_size
        self.threads = workers or cores()
        computation = extractor.computation
        self.plan: dict[str, Any] = {
            **extractor.plan,
            "precision": computation.precision,
            "images": images.digest,
            "device": computation.device.type,
            "batch_size": batch_size,
        }
        self.signature = signature(
            "extract",
            images=len(images.keys),
            **extractor.signed,
            precision=computation.precision,
            **extractor.columns.signed(),
        )

    def load(self, row: int) -> Any:
        """What the extractor takes of one image, or why there is nothing."""
        try:
            return self.extractor.load(read_image(self.images, row))
        except UnreadableImage as reason:
            return Unreadable(str(reason))

    def rows(self, pictures: Sequence[Any]) -> dict[str, torch.Tensor]:
        """What the extractor gives for a batch.

        Raises:
            InputError: as `Extractor.rows`; or it gives something else than it promised.
        """
        rows = self.extractor.rows(pictures)
        regions, size = self.extractor.shape
        promised = ["features", *self.extractor.columns.present]
        given = sorted(name for name in rows if name != DROPPED)
        features = tuple(rows["features"].shape) if "features" in rows else None
        if given != sorted(promised) or features != (len(pictures), regions, size):
            raise InputError(
                f"{type(self.extractor).__name__} should turn {len(pictures)} pictures into {', '.join(promised)}, "
                f"features of shape {(len(pictures), regions, size)}, but made {', '.join(given)}, features of shape "
                f"{features}."
            )
        return rows


def extract(
    images: ImageSource,
    extractor: Extractor,
    out: str | Path,
    batch_size: int = 64,
    shard_size: int = 1024,
    workers: int | None = None,
    strict: bool = False,
) -> StoreSummary:
    """Write the feature store of a collection of images.

    Batches are formed inside a shard, and decoding doesn't depend on its thread, so an interrupted run continues to the
    same bytes.

    Args:
        batch_size: images that the extractor sees at once.
        shard_size: images between two save points.
        workers: threads that read and decode; None for one per core, shared among the ranks of this machine.
        strict: the first unreadable image is an error, and so is a region that has a label or a box but no features.

    Raises:
        InputError: a choice that doesn't fit, features or columns that aren't what they have to be, an output that
            exists or can't be written, no readable image at all.
    """
    job = Extraction(images, extractor, batch_size, workers)
    writer = StoreWriter(out, images.keys, *extractor.shape, job.plan, shard_size, strict, extractor.columns)
    shards = list(writer.missing())
    rows = (row for shard in shards for row in range(shard.start, shard.stop))
    missing = sum(shard.stop - shard.start for shard in shards)
    shown = bool(shards) and this_rank().leads
    ahead = map_ahead(job.load, rows, job.threads, ahead=2 * batch_size + job.threads)
    with (
        progress_bar(writer.share, writer.share - missing, "images", shown=shown) as progress,
        closing(ahead) as loaded,
    ):
        for shard in shards:
            unreadable: dict[int, str] = {}
            batches = []  # left on the device until the shard is whole, so that collecting the next doesn't wait for it
            for start in range(shard.start, shard.stop, batch_size):
                stop = min(start + batch_size, shard.stop)
                batches.append(job.rows(_batch(loaded, start, stop, unreadable)))
                progress.update(stop - start)
            columns = {name: torch.cat([batch[name] for batch in batches]).cpu().numpy() for name in batches[0]}
            dropped = int(columns.pop(DROPPED, np.zeros(0)).sum())
            writer.write(shard, columns.pop("features"), unreadable, columns, {"dropped": dropped})
    return writer.publish(job.signature)


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int
) -> Generator[Result, None, None]:
    """Apply `function` in threads, in order, at most `ahead` items before the one that is taken.

    Whoever may leave it before its end closes it: left to the garbage collector, it would wait for its threads wherever
    that comes by, as while another thread begins, which then waits for ever.
    """
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


def _batch(loaded: Iterator[Any], first: int, stop: int, unreadable: dict[int, str]) -> list[Any]:
    """Collect the next pictures; one that is unreadable is None, and noted with its reason."""
    pictures = []
    for row in range(first, stop):
        picture = next(loaded)
        if isinstance(picture, Unreadable):
            unreadable[row] = picture.reason
        pictures.append(None if isinstance(picture, Unreadable) else picture)
    return pictures
