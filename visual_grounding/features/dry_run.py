"""`extract --dry-run`: check all that can be checked, measure a few images, and say what a run would take."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, check_at_least_one
from ..images.sources import ImageSource
from ..storage.artefact import array_bytes
from ..storage.estimate import Estimate, estimate_output, meta_bytes, readable_size
from ..storage.lines import sha256_of_lines
from ..storage.ranks import this_rank
from .extraction import Extraction, Unreadable, map_ahead
from .extractor import Extractor
from .store import FEATURE_STORE
from .store_writer import StoreSummary, store_meta, store_plan


class Pace(NamedTuple):
    """What a few images took.

    Attributes:
        images: how many they were.
        load_seconds: for each, reading, decoding and resizing, by all threads together.
        forward_seconds: for each, the network.
        unreadable: reasons of those that are.
    """

    images: int
    load_seconds: float
    forward_seconds: float
    unreadable: list[str]

    def seconds(self, images: int, overlapped: bool) -> float:
        """How long a collection takes.

        Args:
            overlapped: decoding and network have processors of their own (CUDA): the slower one counts. On a CPU they
                share the cores: both count.

        >>> Pace(10, 0.25, 0.5, []).seconds(100, overlapped=True)
        50.0
        >>> Pace(10, 0.25, 0.5, []).seconds(100, overlapped=False)
        75.0
        """
        parts = (self.load_seconds, self.forward_seconds)
        return images * (max(parts) if overlapped else sum(parts))


class DryRun(NamedTuple):
    """What a run would make and take. `size` is of the finished store, if every image is readable."""

    out: Path
    images: int
    first_key: str
    shape: tuple[int, int, int]
    columns: tuple[str, ...]
    size: int
    estimate: Estimate
    device: str
    pace: Pace | None
    seconds: float

    def describe(self) -> str:
        """A few lines for whoever ran the command."""
        shape = ", ".join(map(str, self.shape))
        columns = f" with {', '.join(self.columns)}" if self.columns else ""
        lines = [
            ("images", f"{self.images}, the first is {self.first_key}"),
            ("output", f"{self.out}: ({shape}) float16{columns}, {readable_size(self.size)}"),
            ("disk", f"{readable_size(self.estimate.free)} free"),
        ]
        left = self.images_left
        if self.estimate.finished:
            lines.append(("state", "finished already by the same command; a run would do nothing"))
        elif left < self.images or self.estimate.claimed:
            lines.append(("state", f"interrupted; a run would continue: {self.images - left} images done, {left} left"))
        else:
            lines.append(("state", "nothing there yet"))
        if self.pace is not None:
            count, unreadable = self.pace.images, self.pace.unreadable
            load, forward = (1 / max(part, 1e-9) for part in (self.pace.load_seconds, self.pace.forward_seconds))
            speed = f"reading and decoding {load:.1f} images/s, the network on {self.device} {forward:.1f} images/s"
            lines.append(("speed", f"{speed}, by {count} images"))
            lines.append(("time", f"about {readable_time(self.seconds)}"))
            if unreadable:
                lines.append(("unreadable", f"{len(unreadable)} of these {count}; the first: {unreadable[0]}"))
        return "\n".join(f"{name:11}{what}" for name, what in lines) + "\nNothing was written."

    @property
    def images_left(self) -> int:
        """Images that a run would still have to do."""
        return sum(shard.stop - shard.start for shard in self.estimate.missing)

    def check_disk(self) -> None:
        """Refuse a run that would fill the disk.

        Raises:
            InputError: with the bytes needed and free.
        """
        lacking = self.estimate.lacking(self.size)
        if lacking:
            raise InputError(
                f"{self.out} needs {readable_size(self.estimate.free + lacking)}, but the disk has "
                f"{readable_size(self.estimate.free)} free. Free {readable_size(lacking)}, or choose another output.",
                "out",
            )


def dry_run(
    images: ImageSource,
    extractor: Extractor,
    out: str | Path,
    batch_size: int = 64,
    shard_size: int = 1024,
    workers: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> DryRun:
    """Find out what `extract` with the same arguments would do. One batch is measured; nothing is written.

    Raises:
        InputError: as `extract`, as far as that can be known before.
    """
    job = Extraction(images, extractor, batch_size, workers)
    check_at_least_one(shard_size=shard_size)
    count, (regions, size), columns = len(images.keys), extractor.shape, extractor.columns
    digest = sha256_of_lines(list(images.keys))
    plan = store_plan(job.plan, digest, regions, size, columns)
    estimate = estimate_output(out, FEATURE_STORE, plan, count, shard_size)
    meta = store_meta(StoreSummary(count, regions, size, 0, 0, columns.present), digest, job.signature, columns)
    arrays = {"features": ((regions, size), "float16"), **columns.arrays(regions)}
    lists = [images.keys, *columns.files().values()]
    total = (
        sum(array_bytes((count, *row), dtype) for row, dtype in arrays.values())
        + sum(len(line.encode()) + 1 for lines in lists for line in lines)
        + meta_bytes(FEATURE_STORE, plan, count, shard_size, meta)
    )
    pace, seconds = None, 0.0
    device = extractor.computation.device
    if estimate.missing:
        shard = estimate.missing[len(estimate.missing) // 2]
        rows = range(shard.start, min(shard.stop, shard.start + batch_size))
        pace = measure(job.load, lambda pictures: job.rows(pictures)["features"].cpu(), rows, job.threads, clock)
        left = sum(shard.stop - shard.start for shard in estimate.missing)
        on_gpu = device.type == "cuda"
        # Ranks on one CPU share its cores, and so the pace; on GPUs each has a card of its own.
        seconds = pace.seconds(left, overlapped=on_gpu) / (this_rank().world if on_gpu else 1)
    shape = (count, regions, size)
    return DryRun(Path(out), count, images.keys[0], shape, columns.present, total, estimate, str(device), pace, seconds)


def measure(
    load: Callable[[int], Any],
    finish: Callable[[Sequence[Any]], object],
    rows: Iterable[int],
    threads: int,
    clock: Callable[[], float],
) -> Pace:
    """Time both halves of the work on a batch.

    Args:
        load: row -> a picture, or `Unreadable`.
        finish: turns pictures into features, and waits for the device.
    """
    started = clock()
    loaded = list(map_ahead(load, rows, threads, ahead=2 * threads))
    load_seconds = (clock() - started) / len(loaded)
    readable = [picture for picture in loaded if not isinstance(picture, Unreadable)]
    forward_seconds = 0.0
    if readable:
        # As large as the real batches, so that memory is tried too.
        pictures = [readable[place % len(readable)] for place in range(len(loaded))]
        finish(pictures)  # the first time a network allocates memory and chooses its algorithms
        started = clock()
        finish(pictures)
        forward_seconds = (clock() - started) / len(pictures)
    reasons = [picture.reason for picture in loaded if isinstance(picture, Unreadable)]
    return Pace(len(loaded), load_seconds, forward_seconds, reasons)


def readable_time(seconds: float) -> str:
    """A duration for a person, by its two largest units.

    >>> readable_time(0.2), readable_time(75), readable_time(4000), readable_time(200_000)
    ('1 s', '1 min 15 s', '1 h 6 min', '2 d 7 h')
    """
    whole = max(1, round(seconds))
    for unit, next_unit, length, next_length in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // next_length} {next_unit}"
    return f"{whole} s"
