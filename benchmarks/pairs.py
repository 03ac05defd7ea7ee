"""What all benchmarks share: alternating pairs, their median and spread, a verdict, and the machine they ran on."""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

Part = TypeVar("Part")

# Seconds of a benchmark: on a busy machine it measures fewer pairs, and says so.
LIMIT = float(os.environ.get("BENCHMARK_LIMIT", "300"))
_started = time.monotonic()


@dataclass(frozen=True)
class Comparison:
    """Seconds of two ways to do the same, measured in turn.

    Attributes:
        ours: seconds, one for each pair.
        theirs: likewise, of what it is compared with.
        wanted: how many pairs were to be measured; 0 for as many as were.
        first: whether it is the first runs, which else don't count, as there was time for no other.
    """

    ours: list[float]
    theirs: list[float]
    wanted: int = 0
    first: bool = False

    @property
    def ratios(self) -> list[float]:
        """Ours by theirs, pair by pair: what disturbs the machine for longer than a pair disturbs both alike.

        >>> Comparison([1.0, 3.0], [2.0, 2.0]).ratios
        [0.5, 1.5]
        """
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs)]

    @property
    def median(self) -> float:
        """The median ratio.

        >>> Comparison([1.0, 3.0, 2.0], [2.0, 2.0, 2.0]).median
        1.0
        """
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        """Median and spread, in words.

        >>> print(Comparison([1.0, 3.0, 2.0], [2.0, 2.0, 2.0]))
        1.000 (median of 3 pairs, 0.500 to 1.500; 2.0 s against 2.0 s)
        >>> print(Comparison([1.0], [2.0], wanted=5))
        0.500 (median of 1 pair, as there was no time for 5, 0.500 to 0.500; 1.0 s against 2.0 s)
        >>> print(Comparison([1.0], [2.0], wanted=5, first=True))
        0.500 (the first runs, as there was no time for 5 pairs after them; 1.0 s against 2.0 s)
        """
        pairs = f"{len(self.ratios)} pair{'s' if len(self.ratios) > 1 else ''}"
        if self.wanted > len(self.ratios):
            pairs += f", as there was no time for {self.wanted}"
        seconds = [f"{statistics.median(each):.3g}" for each in (self.ours, self.theirs)]
        seconds = [text if "." in text or "e" in text else f"{text}.0" for text in seconds]
        if self.first:
            left = f"the first runs, as there was no time for {self.wanted} pairs after them"
            return f"{self.median:.3f} ({left}; {seconds[0]} s against {seconds[1]} s)"
        return (
            f"{self.median:.3f} (median of {pairs}, {min(self.ratios):.3f} to "
            f"{max(self.ratios):.3f}; {seconds[0]} s against {seconds[1]} s)"
        )


def seconds_of(action: Callable[[], object]) -> float:
    """Wall-clock seconds of one run, until a GPU has finished too."""
    _wait_for_gpu()
    start = time.perf_counter()
    action()
    _wait_for_gpu()
    return time.perf_counter() - start


def _wait_for_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def alternate(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    pairs: int = 5,
    measure: Callable[[Callable[[], object]], float] = seconds_of,
) -> Comparison:
    """Measure both in turn, after one run of each that doesn't count; every other pair begins with the other.

    No pair is begun that would end, if it took as long as the longest, later than `LIMIT` after the benchmark began;
    the first one is where half of what the first runs took is left, as these may have had something to start. Without
    any pair the first runs are what is known.
    """
    begun = time.monotonic()
    warm = [measure(action) for action in (ours, theirs)]
    longest = time.monotonic() - begun
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs):
        begun = time.monotonic()
        if not fits(longest if pair else longest / 2):
            break
        for first in (True, False):
            is_ours = first == (pair % 2 == 0)
            seconds[is_ours].append(measure(ours if is_ours else theirs))
        longest = max(longest, time.monotonic() - begun)
    if not seconds[True]:
        return Comparison(warm[:1], warm[1:], pairs, first=True)
    return Comparison(seconds[True], seconds[False], pairs)


def fits(seconds: float) -> bool:
    """Whether what takes so long would end in time."""
    return time.monotonic() + seconds <= _started + LIMIT


def in_time(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts of a benchmark that measures several things in turn, and says of how many it had no time for.

    After the first none is begun that would end, if it took as long as the longest, later than `LIMIT` after the
    benchmark began.

    >>> list(in_time("abc"))
    ['a', 'b', 'c']
    """
    longest = 0.0
    for number, part in enumerate(parts):
        begun = time.monotonic()
        if number and not fits(longest):
            left = ", ".join(map(str, parts[number:]))
            print(f"no time for {left}: {number} of {len(parts)} were measured; BENCHMARK_LIMIT=3600 gives an hour")
            return
        yield part
        longest = max(longest, time.monotonic() - begun)


def noise_of(action: Callable[[], object], pairs: int = 5) -> float:
    """How far from 1 the ratio of something and itself is: the median deviation.

    It is what a comparison on this machine, now, can't tell from no difference.
    """
    return statistics.median(abs(ratio - 1) for ratio in alternate(action, action, pairs).ratios)


def verdict(name: str, found: float, goal: float, tolerance: float = 0.0) -> bool:
    """Print whether a goal, an upper limit, is met within a tolerance, and return it.

    >>> verdict("search", 1.01, 1.0, tolerance=0.02)
    met: search is 1.010, at most 1.000 is the goal (tolerance 0.020)
    True
    """
    met = found <= goal + tolerance
    stated = f" (tolerance {tolerance:.3f})" if tolerance else ""
    print(f"{'met' if met else 'MISSED'}: {name} is {found:.3f}, at most {goal:.3f} is the goal{stated}")
    return met


def exit_status(verdicts: list[bool]) -> int:
    """0 where every goal was met, else 1."""
    return 0 if all(verdicts) else 1


def machine() -> str:
    """Processor, cores, threads, GPU, and versions, in one line."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return (
        f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, {gpu}; "
        f"Python {platform.python_version()}, torch {torch.__version__}, {sys.platform}"
    )
