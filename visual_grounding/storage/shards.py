"""Write an artefact shard by shard, survive being killed, and publish it by one atomic rename.

`OUT.partial/files/` grows in place: every array has its full size from the start, each shard is written at its own
offset. `OUT.partial/progress/` remembers the plan (every choice and input that decides the bytes) and the shards done.
A rerun with the same plan does only what is missing, so its result is the same byte by byte. Publishing renames
`files/` to `OUT`: under its own name an artefact is always whole.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from .artefact import FORMAT_VERSION, META, write_json


class Shard(NamedTuple):
    """Rows `start` to `stop` (exclusive) of an artefact's arrays."""

    number: int
    start: int
    stop: int


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
        rows: length of the first axis of every array.
        shard_size: rows per shard.
        arrays: name -> (shape of one row, dtype).

    Raises:
        InputError: `out` exists and was made by another plan, or can't be written.
    """

    def __init__(
        self,
        out: str | Path,
        format: str,
        plan: dict[str, Any],
        rows: int,
        shard_size: int,
        arrays: dict[str, tuple[tuple[int, ...], str]],
    ) -> None:
        self.out = Path(out) if Path(out).name not in ("", "..") else Path(out).resolve()
        self.format = format
        self.plan = json.loads(json.dumps({**plan, "rows": rows, "shard_size": shard_size}))
        self.rows = rows
        self.shard_size = shard_size
        self.partial = self.out.with_name(self.out.name + ".partial")
        self.files = self.partial / "files"
        self.progress = self.partial / "progress"
        self._rows = {name: (tuple(map(int, shape)), np.dtype(dtype)) for name, (shape, dtype) in arrays.items()}
        self.finished = self._check_finished()
        if not self.finished:
            try:
                if not self._continues():
                    self._start()
            except OSError as error:
                raise InputError(f"{self.partial} can't be written: {error.strerror or error}.") from error

    def _check_finished(self) -> bool:
        if not self.out.exists():
            return False
        try:
            meta = json.loads((self.out / META).read_text(encoding="utf-8"))
            previous = {"format": meta["format"], **meta["plan"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.out} exists and isn't a finished {self.format}. Choose another --out.") from error
        self._refuse_other_plan(previous, self.out)
        shutil.rmtree(self.partial, ignore_errors=True)  # killed between the rename and its own cleaning
        return True

    def _refuse_other_plan(self, previous: dict[str, Any], place: Path) -> None:
        refuse_other_plan(previous, {"format": self.format, **self.plan}, place)

    def _continues(self) -> bool:
        """Whether an earlier run of the same plan left something to continue."""
        plan_file = self.progress / "plan.json"
        if not plan_file.exists() or not self.files.is_dir():
            return False
        previous = json.loads(plan_file.read_text(encoding="utf-8"))
        if any(path.stem.isdigit() for path in self.progress.glob("*.json")):
            self._refuse_other_plan(previous, self.partial)
        return previous == {"format": self.format, **self.plan}

    def _start(self) -> None:
        for folder in (self.progress, self.files):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        try:
            self._lay_out()
        except OSError:
            shutil.rmtree(self.files, ignore_errors=True)  # nothing is in there yet, but it may have filled the disk
            raise
        write_json(self.progress / "plan.json", {"format": self.format, **self.plan})

    def _lay_out(self) -> None:
        """Make every array in its full size."""
        for name, (shape, dtype) in self._rows.items():
            path = self.files / f"{name}.npy"
            header = {
                "descr": np.lib.format.dtype_to_descr(dtype),
                "fortran_order": False,
                "shape": (self.rows, *shape),
            }
            with open(path, "wb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                size = self.rows * self._row_bytes(name)
                if size:  # claims the disk now: a full disk is an error here, not a crash after hours
                    os.posix_fallocate(file.fileno(), file.tell(), size)

    def _row_bytes(self, name: str) -> int:
        shape, dtype = self._rows[name]
        return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

    def shards(self) -> Iterator[Shard]:
        """All shards, in order."""
        return shards_of(self.rows, self.shard_size)

    def missing(self) -> Iterator[Shard]:
        """The shards still to be written, in order."""
        return (shard for shard in self.shards() if not self._marker(shard).exists())

    def _marker(self, shard: Shard) -> Path:
        return self.progress / f"{shard.number:06d}.json"

    def write(self, shard: Shard, arrays: dict[str, np.ndarray], notes: dict[str, Any] | None = None) -> None:
        """Write one shard of every array, then mark it done. `notes` (JSON-ready) come back from `notes()`."""
        for name, (shape, dtype) in self._rows.items():
            block = np.ascontiguousarray(arrays[name], dtype=dtype)
            expected = (shard.stop - shard.start, *shape)
            if block.shape != expected:
                raise ValueError(f"shard {shard.number} of {name} should have shape {expected}, but has {block.shape}")
            path = self.files / f"{name}.npy"
            try:
                with open(path, "r+b") as file:
                    file.seek(os.path.getsize(path) - (self.rows - shard.start) * self._row_bytes(name))
                    file.write(block.tobytes())
                    file.flush()
                    os.fdatasync(file.fileno())
            except OSError as error:
                raise self._unwritable(path, error) from error
        try:
            write_json(self._marker(shard), notes or {})
        except OSError as error:
            raise self._unwritable(self._marker(shard), error) from error

    def add_lines(self, name: str, lines: Iterable[str]) -> None:
        """Add a text file beside the arrays, one item a line, before publishing.

        Raises:
            InputError: it can't be written.
        """
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

    def notes(self) -> list[dict[str, Any]]:
        """What was noted with each shard, in order: also for shards written before an interruption."""
        return [json.loads(self._marker(shard).read_text(encoding="utf-8")) for shard in self.shards()]

    def publish(self, meta: dict[str, Any]) -> None:
        """Add `meta.json` and give the whole its name.

        Raises:
            RuntimeError: shards are missing.
        """
        missing = [shard.number for shard in self.missing()]
        if missing:
            raise RuntimeError(f"{self.partial}: shards {missing[:5]} are missing, {len(missing)} in all")
        try:
            write_json(self.files / META, {"format": self.format, "version": FORMAT_VERSION, "plan": self.plan, **meta})
            self.files.rename(self.out)
        except OSError as error:
            raise self._unwritable(self.out, error) from error
        shutil.rmtree(self.partial, ignore_errors=True)  # it is published; the rest can't make it wrong


def shards_of(rows: int, shard_size: int) -> Iterator[Shard]:
    """Cut rows into shards."""
    for number, start in enumerate(range(0, rows, shard_size)):
        yield Shard(number, start, min(start + shard_size, rows))


def refuse_other_plan(previous: dict[str, Any], now: dict[str, Any], place: Path) -> None:
    """Keep what was made by other choices from being mixed with, or taken for, what is asked for now.

    Raises:
        InputError: the plans differ, with each choice that does.
    """
    names = sorted(name for name in previous.keys() | now.keys() if previous.get(name) != now.get(name))
    if names:
        changes = "; ".join(f"{name} was {previous.get(name)!r}, now {now.get(name)!r}" for name in names)
        raise InputError(f"{place} was made with other choices ({changes}). Choose another --out, or delete it.")
