"""Write an artefact shard by shard, survive being killed, and publish it by one atomic rename.

`OUT.partial/` (`unfinished.py`) grows in place: every array has its full size from the start, each shard is written at
its own offset; beside them it remembers the plan (every choice and input that decides the bytes) and the shards done.
A rerun with the same plan does only what is missing, so its result is the same byte by byte. Publishing renames
`files/` to `OUT`: under its own name an artefact is always whole.

Where the number of rows isn't known beforehand, shards are files of their own, joined at the end: `growing.py`.

One process writes an output, or all ranks of one job (`torchrun`): each takes every world-th shard, the first publishes
when all are done, and the bytes are the same. `writers.py` keeps everyone else away.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from ..errors import InputError
from .artefact import (
    FORMAT_VERSION,
    META,
    array_bytes,
    array_header,
    check_fields,
    claim_disk,
    open_array,
    sync_folder,
    write_json,
)
from .outside import open_file, read_json
from .ranks import Rank, this_rank
from .unfinished import Shard, Unfinished, shards_of
from .writers import LEAVE_SECONDS, Writers, remove_abandoned


class ShardedArtefact:
    """An artefact under construction.

        artefact = ShardedArtefact(out, "image-ids", plan, rows=S, shard_size=8192, arrays={"ids": ((N,), "int32")})
        if not artefact.finished:
            for shard in artefact.missing():
                artefact.write(shard, {"ids": …}, notes={"empty": 3})
            artefact.publish({"sentences": S})

    Args:
        out: where the finished artefact will be.
        format: what kind it is; goes into `meta.json`.
        plan: JSON-ready choices and input hashes that decide the bytes. The same plan continues or confirms an
            existing output, another plan is refused (unless no shard was finished: then there is nothing to lose).
        rows: length of the first axis of every array; None where that isn't known (`GrowingArtefact`).
        shard_size: rows per shard.
        arrays: name -> (shape of one row, dtype).
        rank: this process; None for what torchrun says.

    The same lines run in every rank of a job: `missing` gives the rank its shards, `notes` and `publish` wait for the
    others.

    Raises:
        InputError: `out` exists and was made by another plan, is being written by another process, or can't be written.
    """

    def __init__(
        self,
        out: str | Path,
        format: str,
        plan: dict[str, Any],
        rows: int | None,
        shard_size: int,
        arrays: dict[str, tuple[tuple[int, ...], str]],
        rank: Rank | None = None,
    ) -> None:
        self._unfinished = Unfinished(out)
        self.out, self.partial = self._unfinished.out, self._unfinished.folder
        self.files, self.progress = self._unfinished.files, self._unfinished.progress
        self.format = format
        sizes = {} if rows is None else {"rows": rows, "shard_size": shard_size}
        self.plan = json.loads(json.dumps({**plan, **sizes}))
        self.rows = rows
        self.shard_size = shard_size
        self._rows = {name: (tuple(map(int, shape)), np.dtype(dtype)) for name, (shape, dtype) in arrays.items()}
        self._rank = this_rank() if rank is None else rank
        self.finished = self._check_finished()
        if not self.finished:
            try:
                self._join()
            except OSError as error:
                self._leave_nothing()
                raise InputError(f"{self.partial} can't be written: {error.strerror or error}.") from error

    def _leave_nothing(self) -> None:
        """Take away what couldn't even be laid out, unless another rank is at it or an earlier run did a part."""
        if hasattr(self, "_writers") and not self.files.is_dir() and not self._unfinished.done():
            self._writers.clean()

    def _join(self) -> None:
        """Become one of the writers; the first of them lays the arrays out."""
        self._writers = Writers.join(self.partial, self._rank)
        with self._writers.alone("layout"):
            self.finished = self._check_finished()  # another rank may have published it since the first look
            if not self.finished and not self._continues():
                self._start()
        if self.finished:
            self._writers.clean()

    def _check_finished(self) -> bool:
        if not self.out.exists():
            return False
        self._refuse_other_plan(finished_plan(self.out, self.format), self.out)
        self._check_arrays()
        remove_abandoned(self.partial)
        self._was_finished()
        return True

    def _was_finished(self) -> None:
        self.say_finished()

    def say_finished(self) -> None:
        """Say that there is nothing to do."""
        if self._rank.leads:
            print(
                f"{self.out} is there already, made by the same choices from the same inputs, as far as names and "
                "sizes tell: nothing was done. Delete it to make it anew.",
                file=sys.stderr,
            )

    def _check_arrays(self) -> None:
        """Refuse a finished artefact whose arrays aren't what they should be."""
        for name, (shape, dtype) in self._rows.items():
            open_array(self.out / f"{name}.npy", (self.rows, *shape), dtype.name)

    def _refuse_other_plan(self, previous: dict[str, Any], place: Path) -> None:
        refuse_other_plan(previous, {"format": self.format, **self.plan}, place)

    def _continues(self) -> bool:
        """Whether an earlier run of the same plan, or another rank, left something to continue."""
        if not self._unfinished.plan_file.exists() or not self.files.is_dir():
            return False
        previous = self._unfinished.plan()
        done = self._unfinished.done()
        if done or self._writers.others():
            self._refuse_other_plan(previous, self.partial)
        if previous != {"format": self.format, **self.plan}:
            return False
        whole = self._is_whole(done)
        if done and not whole:
            raise InputError(f"{self.files} doesn't hold what was written there before. Delete {self.partial}.")
        return whole

    def _is_whole(self, done: set[int]) -> bool:
        """Whether everything is there that holds the shards which are done."""
        return all(self._is_laid_out(name) for name in self._rows)

    def _is_laid_out(self, name: str) -> bool:
        """Whether an array's file begins as it should, and is as long."""
        path, header = self.files / f"{name}.npy", array_header(*self._array(name))
        try:
            with open_file(path) as file:
                begins = file.read(len(header))
            return begins == header and path.stat().st_size == array_bytes(*self._array(name))
        except OSError:
            return False

    def _start(self) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        try:
            self._lay_out()
        except OSError:
            shutil.rmtree(self.files, ignore_errors=True)  # nothing is in there yet, but it may have filled the disk
            raise
        write_json(self._unfinished.plan_file, {"format": self.format, **self.plan})

    def _lay_out(self) -> None:
        """Make every array in its full size."""
        for name in self._rows:
            with open(self.files / f"{name}.npy", "wb") as file:
                file.write(array_header(*self._array(name)))
                file.flush()
                size = array_bytes(*self._array(name)) - file.tell()
                if size:
                    claim_disk(file.fileno(), file.tell(), size)
                os.fsync(file.fileno())
        sync_folder(self.files)

    def _array(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of a whole array."""
        shape, dtype = self._rows[name]
        return (self.rows or 0, *shape), dtype

    @property
    def _folders(self) -> tuple[Path, ...]:
        """What is cleared before the first shard."""
        return self.progress, self.files

    def shards(self) -> Iterator[Shard]:
        """All shards, in order."""
        return shards_of(self.rows or 0, self.shard_size)

    def own(self) -> Iterator[Shard]:
        """The shards of this rank, in order."""
        return (shard for shard in self.shards() if self._owner(shard) == self._rank.number)

    def missing(self) -> Iterator[Shard]:
        """The shards that this rank still has to write, in order."""
        return (shard for shard in self.own() if not self._unfinished.marker(shard.number).exists())

    def _owner(self, shard: Shard) -> int:
        return shard.number % self._rank.world

    def write(self, shard: Shard, arrays: dict[str, np.ndarray], notes: dict[str, Any] | None = None) -> None:
        """Write one shard of every array, then mark it done. `notes` (JSON-ready) come back from `notes()`.

        Raises:
            ValueError: an array isn't of the shard's shape.
            InputError: it can't be written.
        """
        for name, (shape, dtype) in self._rows.items():
            block = np.ascontiguousarray(arrays[name], dtype=dtype)
            expected = (shard.stop - shard.start, *shape)
            if block.shape != expected:
                raise ValueError(f"shard {shard.number} of {name} should have shape {expected}, but has {block.shape}")
            path = self.files / f"{name}.npy"
            try:
                with open(path, "r+b") as file:
                    file.seek(len(array_header(*self._array(name))) + shard.start * block[:1].nbytes)
                    file.write(block.tobytes())
                    file.flush()
                    os.fdatasync(file.fileno())
            except OSError as error:
                raise self._unwritable(path, error) from error
        self._mark_done(shard.number, notes or {})

    def _mark_done(self, shard: int, notes: dict[str, Any]) -> None:
        marker = self._unfinished.marker(shard)
        try:
            write_json(marker, notes)
        except OSError as error:
            raise self._unwritable(marker, error) from error

    def add_lines(self, name: str, lines: Iterable[str]) -> None:
        """Add a text file beside the arrays, one item a line, before publishing; the rank that publishes does.

        Raises:
            InputError: it can't be written.
        """
        if not self._rank.leads:
            return
        path = self.files / name
        try:
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(line + "\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._unwritable(path, error) from error

    def _unwritable(self, path: Path, error: OSError) -> InputError:
        return InputError(f"{path} can't be written: {error.strerror or error}. What is done stays; rerun.")

    def notes(self, **fields: type | UnionType) -> list[dict[str, Any]]:
        """What was noted with each shard, in order: also for shards written before an interruption, or by other ranks.

        Args:
            fields: what each holds, name -> type; an `int` is a count.

        Raises:
            InputError: a note is broken, or a rank died.
        """
        self._wait_for_shards()
        notes = []
        for shard in self.shards():
            marker = self._unfinished.marker(shard.number)
            notes.append(self._unfinished.read(marker))
            check_fields(marker, notes[-1], fields)
        return notes

    def publish(self, meta: dict[str, Any]) -> None:
        """Add `meta.json` and give the whole its name; ranks that don't publish wait for it.

        Raises:
            InputError: it can't be written, or a rank died.
            RuntimeError: this rank's shards are missing.
        """
        self._wait_for_shards()
        if not self._rank.leads:
            self._writers.wait_for("the finished output", lambda: set() if self.out.exists() else {0} | self._unheard())
            self._writers.leave()
            return
        if not self._is_whole({shard.number for shard in self.shards()}):
            raise InputError(f"{self.files} doesn't hold what was written there before. Delete {self.partial}.")
        try:
            write_json(self.files / META, {"format": self.format, "version": FORMAT_VERSION, "plan": self.plan, **meta})
            with self._writers.alone("layout"):
                self.files.rename(self.out)
        except OSError as error:
            raise self._unwritable(self.out, error) from error
        with suppress(OSError):  # it is published; nothing after this can make it wrong
            sync_folder(self.out.parent)
        self._writers.clean(patience=LEAVE_SECONDS)

    def _wait_for_shards(self) -> None:
        missing = [shard.number for shard in self.missing()]
        if missing:
            raise RuntimeError(f"{self.partial}: shards {missing[:5]} are missing, {len(missing)} in all")
        if self._rank.world > 1:
            left = list(self.shards())

            def owners() -> set[int]:
                left[:] = [shard for shard in left if not self._unfinished.marker(shard.number).exists()]
                return {self._owner(shard) for shard in left} | self._unheard()

            self._writers.wait_for("the shards", owners)

    def _unheard(self) -> set[int]:
        """Ranks that haven't said yet what all have to agree on: nothing, where all know the number of rows."""
        return set()


_DIGEST = re.compile("[0-9a-f]{64}")
_DIGESTED = {  # of a plan's digests, those that aren't named after what they are of
    "exclude_sha256": "other images to exclude",
    "keys_sha256": "other images",
    "retriever_sha256": "another retriever",
    "text_sha256": "another text",
}


def finished_plan(out: Path, format: str) -> dict[str, Any]:
    """The plan of a finished artefact, with its format.

    Raises:
        InputError: it isn't a finished artefact.
    """
    try:
        meta = read_json(out / META)
        return {"format": meta["format"], **meta["plan"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{out} exists and isn't a finished {format}. Choose another folder.", "out") from error


def refuse_other_plan(previous: dict[str, Any], now: dict[str, Any], place: Path) -> None:
    """Keep what was made by other choices from being mixed with, or taken for, what is asked for now.

    Raises:
        InputError: the plans differ, with each choice that does; or it is another kind of artefact.
    """
    kind, wanted = previous.get("format"), now.get("format")
    if kind != wanted:
        raise InputError(f"{place} should be of kind {wanted}, but is of kind {kind}. Choose another folder.", "out")
    names = sorted(name for name in previous.keys() | now.keys() if previous.get(name) != now.get(name))
    if names:
        changes = "; ".join(_change(name, previous.get(name), now.get(name)) for name in names)
        raise InputError(
            f"{place} was made with other choices ({changes}). Choose another folder, or delete it.", "out"
        )


def _change(name: str, before: Any, now: Any) -> str:
    """How a choice differs; a digest says nothing to a person, so what it is of does.

    >>> _change("pool", "mean", "max"), _change("text_sha256", "0" * 64, "f" * 64)
    ("pool was 'mean', now 'max'", 'another text')
    """
    if all(value is None or _DIGEST.fullmatch(str(value)) for value in (before, now)):
        return _DIGESTED.get(name, f"other {name.removesuffix('_sha256').replace('_', ' ')}")
    return f"{name} was {before!r}, now {now!r}"
