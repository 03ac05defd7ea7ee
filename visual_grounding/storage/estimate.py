"""What writing an artefact would meet: what an earlier run left, its size, the disk. Nothing is written here."""

import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from .artefact import FORMAT_VERSION, META, json_text
from .shards import Shard, refuse_other_plan, shards_of
from .writers import refuse_if_written

_NOTE_BYTES = 4096  # a shard's note on disk, until the artefact is published


class Estimate(NamedTuple):
    """What a run would meet.

    Attributes:
        finished: the artefact is there already.
        missing: shards still to be written.
        free: bytes free where it will lie.
        claimed: bytes of it that an interrupted run took from the disk already.
    """

    finished: bool
    missing: list[Shard]
    free: int
    claimed: int

    def lacking(self, size: int) -> int:
        """How many bytes the disk lacks for an artefact of `size` bytes; 0 where it suffices."""
        if self.finished:
            return 0
        return max(0, size - self.claimed + _NOTE_BYTES * len(self.missing) - self.free)


def estimate_output(out: str | Path, format: str, plan: dict[str, Any], rows: int, shard_size: int) -> Estimate:
    """Look at an output as `ShardedArtefact` would find it.

    Raises:
        InputError: it exists and was made by another plan, or can't be written.
    """
    out = Path(out) if Path(out).name not in ("", "..") else Path(out).resolve()
    now = {"format": format, **json.loads(json.dumps({**plan, "rows": rows, "shard_size": shard_size}))}
    partial = out.with_name(out.name + ".partial")
    free = _free(out)
    refuse_if_written(partial)
    if out.exists():
        try:
            meta = json.loads((out / META).read_text(encoding="utf-8"))
            previous = {"format": meta["format"], **meta["plan"]}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{out} exists and isn't a finished {format}. Choose another --out.") from error
        refuse_other_plan(previous, now, out)
        return Estimate(True, [], free, 0)
    shards = list(shards_of(rows, shard_size))
    done = {path.stem for path in partial.glob("progress/*.json")} - {"plan"}
    claimed = sum(_allocated(path) for path in partial.glob("files/*.npy"))
    if done:
        refuse_other_plan(_previous(partial), now, partial)
    return Estimate(False, [shard for shard in shards if f"{shard.number:06d}" not in done], free, claimed)


def array_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Size of a `.npy` file."""
    header = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    return len(header.getvalue()) + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def meta_bytes(format: str, plan: Mapping[str, Any], rows: int, shard_size: int, meta: Mapping[str, Any]) -> int:
    """Size of the `meta.json` that `ShardedArtefact` publishes."""
    plan = {**plan, "rows": rows, "shard_size": shard_size}
    return len(json_text({"format": format, "version": FORMAT_VERSION, "plan": plan, **meta}).encode())


def _previous(partial: Path) -> dict[str, Any]:
    path = partial / "progress/plan.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{path} should say what was done before, but is broken: {error}. Delete {partial}."
        ) from error


def _free(out: Path) -> int:
    folder = out.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        reason = "no permission, or a read-only disk" if folder.is_dir() else f"{folder} is no folder"
        raise InputError(f"{out} can't be written: {reason}. Choose another --out.")
    return shutil.disk_usage(folder).free


def _allocated(path: Path) -> int:
    status = path.stat()
    return min(status.st_blocks * 512, status.st_size)
