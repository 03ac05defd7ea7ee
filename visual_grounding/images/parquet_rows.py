"""One column of several parquet files, looked up by row: lazily, in bounded memory, from any thread or process.

A row group is decoded from its start in small blocks; the last ones are kept. So rows asked for nearly in order, as
threads that share a queue ask, cost one pass over the file; any other order is right, but slower.
"""

import os
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from ..errors import InputError, in_short
from ..storage.outside import check_file
from .decoding import UnreadableImage

BLOCK_ROWS = 16
CACHE_BYTES = 128 << 20
_BUFFER_BYTES = 1 << 20  # read from disk at once; a whole page is decoded in memory, however large its writer made it


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file for reading in a stream.

    Raises:
        InputError: it is gone or can't be read, broken or encrypted.
    """
    try:
        check_file(path)
        # Without a buffer, or with a pre-buffer, pyarrow would read a whole row group.
        return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True)
    except FileNotFoundError as error:
        raise InputError(f"{path} was there, but is gone. Bring it back; what is done stays.") from error
    except Exception as error:  # ArrowInvalid, OSError, … by the damage
        raise InputError(
            f"{path} should be a whole parquet file, but isn't: {in_short(error)}. Copy it again."
        ) from error


class _Block(NamedTuple):
    group: int
    start: int
    stop: int
    values: Any  # a pyarrow array


class ParquetRows:
    """Values of a column of bytes.

    Args:
        paths: the files.
        column: the leaf as parquet names it, e.g. "image.bytes".
        rows_of_groups: for each file, the number of rows in each of its row groups.
    """

    def __init__(self, paths: Sequence[Path], column: str, rows_of_groups: Sequence[Sequence[int]]) -> None:
        self._paths, self._column, self._rows_of_groups = paths, column, rows_of_groups
        self._groups = [(file, group) for file, rows in enumerate(rows_of_groups) for group in range(len(rows))]
        self._starts = [0]
        for rows in rows_of_groups:
            for count in rows:
                self._starts.append(self._starts[-1] + count)
        self._begin()
        _ALL.add(self)

    def _begin(self) -> None:
        """Nothing is open or kept yet."""
        self._lock = threading.Lock()
        self._blocks: deque[_Block] = deque()
        self._bytes = 0
        self._stream: Iterator[Any] = iter(())
        self._group = self._next = -1  # where the stream is
        self._broken: dict[int, tuple[int, str]] = {}  # row group -> first row that can't be decoded, and why

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetRows, (self._paths, self._column, self._rows_of_groups)

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, row: int) -> bytes:
        """The bytes in one row.

        Raises:
            UnreadableImage: the row is null, or this part of the file is broken.
            InputError: the file is gone.
        """
        group = bisect_right(self._starts, row) - 1
        row -= self._starts[group]
        with self._lock:
            block = self._block(group, row)
        value = block.values[row - block.start].as_py()
        if value is None:
            raise UnreadableImage("no bytes in its row")
        return value

    def _block(self, group: int, row: int) -> _Block:
        """The block of a row (counted in its group): kept, or decoded by going on from where the stream is."""
        for block in self._blocks:
            if block.group == group and block.start <= row < block.stop:
                return block
        first_broken, reason = self._broken.get(group, (row + 1, ""))
        if row >= first_broken:
            raise UnreadableImage(reason)
        if group != self._group or row < self._next:
            self._start(group)
        while True:
            try:
                batch = next(self._stream)
            except Exception as error:  # ArrowInvalid, OSError, … by the damage; StopIteration: rows are missing
                missing = isinstance(error, StopIteration)
                reason = f"broken or truncated: {'its rows are missing' if missing else in_short(error)}"
                self._broken[group] = (self._next, reason)
                self._group = -1
                raise UnreadableImage(reason) from error
            column = batch.column(0)
            values = column if column.type.num_fields == 0 else column.flatten()[0]
            block = self._keep(_Block(group, self._next, self._next + len(values), values))
            self._next = block.stop
            if row < block.stop:
                return block

    def _start(self, group: int) -> None:
        file, number = self._groups[group]
        self._group, self._next = group, 0
        try:
            reader = open_parquet(self._paths[file])
        except InputError:
            self._group = -1
            raise
        self._stream = reader.iter_batches(BLOCK_ROWS, [number], [self._column], use_threads=False)

    def _keep(self, block: _Block) -> _Block:
        self._blocks.append(block)
        self._bytes += block.values.nbytes
        while len(self._blocks) > 2 and self._bytes > CACHE_BYTES:
            self._bytes -= self._blocks.popleft().values.nbytes
        return block


# A forked process begins anew: it shares no open file with its parent, nor a lock that a thread there held.
_ALL: "weakref.WeakSet[ParquetRows]" = weakref.WeakSet()


def _begin_anew() -> None:
    for rows in _ALL:
        rows._begin()


os.register_at_fork(after_in_child=_begin_anew)
