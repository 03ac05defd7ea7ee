"""An artefact whose number of rows nobody knows before the last: shards are files of their own, joined at the end.

Everything else is as in `shards.py`: the plan, one writer or the ranks of one job, a rerun to the same bytes, one
rename. A text of any length is cut into shards while it is read; memory holds one of them. Joining copies the shards,
and a run that is killed meanwhile joins them again: for that long they need their place on the disk twice.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .artefact import array_bytes, array_header, open_array, sync_folder
from .ranks import Rank
from .shards import ShardedArtefact
from .unfinished import Shard

_COPIED = 2**24  # bytes at a time
_BYTES = "bytes"  # in a shard's notes: the sizes of its files


class GrowingArtefact(ShardedArtefact):
    """An artefact under construction, shard after shard until there are no more.

        artefact = GrowingArtefact(out, "vokens", plan, {"vokens": ((), "int32")}, texts=["tokens.txt"])
        if not artefact.finished:
            for number, lines in enumerate(…):               # every rank reads all of the text
                if artefact.lacks(number):
                    artefact.add(number, {"vokens": …}, {"tokens.txt": …}, notes={"lines": len(lines)})
            artefact.end(number + 1)
            notes = artefact.notes(lines=int)                 # waits for the other ranks
            artefact.join_array("vokens", total)
            artefact.join_text("tokens.txt")
            artefact.publish({…})

    Args:
        out, format, plan, rank: as `ShardedArtefact`.
        arrays: name -> (shape of one row, dtype): of the shards' arrays. What is published may be made of them.
        texts: names of the shards' text files.
        published: of the arrays, those that the finished artefact has, for the check of one that is there.

    Raises:
        InputError: as `ShardedArtefact`.
    """

    def __init__(
        self,
        out: str | Path,
        format: str,
        plan: dict[str, Any],
        arrays: dict[str, tuple[tuple[int, ...], str]],
        texts: Sequence[str] = (),
        published: Sequence[str] = (),
        rank: Rank | None = None,
    ) -> None:
        self._texts = tuple(texts)
        self._published = tuple(published)
        self._count: int | None = None
        super().__init__(out, format, plan, None, 0, arrays, rank)

    def _check_arrays(self) -> None:
        for name in self._published:
            shape, dtype = self._rows[name]
            open_array(self.out / f"{name}.npy", (None, *shape), dtype.name)

    def _was_finished(self) -> None:
        """Nothing: whether it is of this text says the text. Who has read it calls `say_finished`."""

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self.progress, self.files, self._unfinished.shards

    def _lay_out(self) -> None:
        """Nothing: shards bring their files."""

    def _is_whole(self, done: set[int]) -> bool:
        return self._unfinished.shards.is_dir() and all(self._has_files(number) for number in done)

    def _has_files(self, number: int) -> bool:
        """Whether the files of a shard that is done are there in the sizes that they had, and arrays fill theirs."""
        sizes = self._unfinished.read(self._unfinished.marker(number)).get(_BYTES)
        if not isinstance(sizes, dict):
            return False
        paths = {name: self._file(number, name) for name in (*(f"{name}.npy" for name in self._rows), *self._texts)}
        there = all(path.is_file() and path.stat().st_size == sizes.get(name) for name, path in paths.items())
        return there and all(self._fills(paths[f"{name}.npy"], name) for name in self._rows)

    def _fills(self, path: Path, name: str) -> bool:
        """Whether an array's header says as many rows as its file has; it has their shape and type."""
        shape, dtype = self._rows[name]
        try:
            array = open_array(path, (None, *shape), dtype.name)
        except InputError:
            return False
        return path.stat().st_size == array_bytes(array.shape, dtype)

    def _file(self, number: int, name: str) -> Path:
        return self._unfinished.shards / f"{number:06d}.{name}"

    def owns(self, number: int) -> bool:
        """Whether a shard is this rank's."""
        return self._owner(Shard(number, 0, 0)) == self._rank.number

    def lacks(self, number: int) -> bool:
        """Whether this rank still has to add a shard."""
        return self.owns(number) and not self._unfinished.marker(number).exists()

    def done_with(self, number: int) -> dict[str, Any] | None:
        """What was noted with a shard that is done; None where it isn't."""
        marker = self._unfinished.marker(number)
        return self._unfinished.read(marker) if marker.exists() else None

    def add(
        self,
        number: int,
        arrays: Mapping[str, np.ndarray],
        texts: Mapping[str, bytes | Iterable[str]],
        notes: dict[str, Any] | None = None,
    ) -> None:
        """Write the files of one shard, then mark it done. `notes` (JSON-ready) come back from `notes()`.

        Args:
            number: counted from 0.
            arrays: one for each of the artefact's; each may have a length of its own.
            texts: lines without their ends, or all of them as they will stand in the file.

        Raises:
            ValueError: an array's rows haven't their shape.
            InputError: it can't be written.
        """
        sizes = {}
        for name, (shape, dtype) in self._rows.items():
            block = np.ascontiguousarray(arrays[name], dtype=dtype)
            if block.shape[1:] != shape or not block.ndim:
                raise ValueError(f"shard {number} of {name} should have rows {shape}, but has shape {block.shape}")
            path = self._file(number, f"{name}.npy")
            sizes[f"{name}.npy"] = self._write_file(path, iter((array_header(block.shape, dtype), block.tobytes())))
        for name in self._texts:
            path = self._file(number, name)
            text = texts[name]
            content = iter((text,)) if isinstance(text, bytes) else (f"{line}\n".encode() for line in text)
            sizes[name] = self._write_file(path, content)
        self._mark_done(number, {**(notes or {}), _BYTES: sizes})

    def end(self, count: int) -> None:
        """Say how many shards there are, when there are no more.

        Raises:
            InputError: an earlier run of this output had more: another text.
        """
        beyond = [number for number in self._unfinished.done() if number >= count]
        if beyond:
            raise InputError(
                f"{self.partial} was begun with a longer text: it has {max(beyond) + 1} parts, this one only {count}. "
                "Give the same text again, choose another folder, or delete that one.",
                "out",
            )
        self._count = count
        self._writers.say(parts=count)

    def _unheard(self) -> set[int]:
        """Ranks that haven't read the text to its end.

        Raises:
            InputError: one has, and found another number of shards.
        """
        heard = self._writers.heard("parts")
        for number, count in heard.items():
            if count != self._count:
                raise InputError(
                    f"all ranks should read the same text, but rank {self._rank.number} read {self._count} parts of "
                    f"it, and rank {number} {count}. Give each the same file, and delete {self.partial}.",
                    "text",
                )
        return set(range(self._rank.world)) - {self._rank.number, *heard}

    def shards(self) -> Iterator[Shard]:
        """All shards, in order, once `end` was called; their rows aren't counted.

        Raises:
            RuntimeError: `end` wasn't.
        """
        if self._count is None:
            raise RuntimeError(f"{self.partial}: nobody said how many shards there are")
        return (Shard(number, 0, 0) for number in range(self._count))

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """An array of each shard, in order, memory-mapped."""
        shape, dtype = self._rows[name]
        for shard in self.shards():
            yield open_array(self._file(shard.number, f"{name}.npy"), (None, *shape), dtype.name)

    def join_array(self, name: str, rows: int) -> str:
        """Join an array of all shards in the rank that publishes, and say its file's sha256; empty in others.

        Args:
            rows: how many there are in all.

        Raises:
            InputError: it can't be written, or there aren't as many.
        """
        shape, dtype = self._rows[name]
        return self.add_array(name, (rows, *shape), dtype, self.blocks(name))

    def add_array(self, name: str, shape: tuple[int, ...], dtype: str | np.dtype, blocks: Iterable[np.ndarray]) -> str:
        """Add an array in the rank that publishes, from parts of it, and say its file's sha256; empty in others.

        Args:
            shape: of the whole.
            blocks: the parts, in order.

        Shapes:
            blocks: (rows of the part, …) each

        Raises:
            InputError: it can't be written, or the parts don't make up its shape.
        """
        if not self._rank.leads:
            return ""
        kind, found, digest = np.dtype(dtype), 0, hashlib.sha256()

        def content() -> Iterator[bytes]:
            nonlocal found
            header = array_header(shape, kind)
            digest.update(header)
            yield header
            for block in blocks:
                found += len(block)
                part = np.ascontiguousarray(block, dtype=kind).tobytes()
                digest.update(part)
                yield part

        self._write_file(self.files / f"{name}.npy", content())
        if found != shape[0]:
            raise InputError(
                f"{self.partial} should have {shape[0]} rows of {name} in its parts, but has {found}: it was damaged, "
                f"or written by another version. Delete {self.partial}."
            )
        return digest.hexdigest()

    def join_text(self, name: str) -> str:
        """Join a text file of all shards in the rank that publishes, and say its sha256; empty in others.

        Raises:
            InputError: it can't be written.
        """
        if not self._rank.leads:
            return ""
        digest = hashlib.sha256()

        def content() -> Iterator[bytes]:
            for shard in self.shards():
                with open(self._file(shard.number, name), "rb") as file:
                    while part := file.read(_COPIED):
                        digest.update(part)
                        yield part

        self._write_file(self.files / name, content())
        return digest.hexdigest()

    def add_folder(self, name: str, write: Callable[[Path], object]) -> None:
        """Add a folder of files in the rank that publishes.

        Args:
            write: writes them into the empty folder that it is given.

        Raises:
            InputError: it can't be written.
        """
        if not self._rank.leads:
            return
        path = self.files / name
        try:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            write(path)
            for each in path.iterdir():
                with open(each, "rb") as file:
                    os.fsync(file.fileno())
            sync_folder(path)
        except OSError as error:
            raise self._unwritable(path, error) from error

    def _write_file(self, path: Path, parts: Iterator[bytes]) -> int:
        """Write and flush a file; returns its size."""
        try:
            with open(path, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            sync_folder(path.parent)
            return size
        except OSError as error:
            raise self._unwritable(path, error) from error
