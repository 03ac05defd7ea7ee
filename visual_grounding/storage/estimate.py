"""What writing an artefact would meet: what an earlier run left, its size, the disk. Nothing is written here."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from .artefact import FORMAT_VERSION, json_text
from .shards import finished_plan, refuse_other_plan
from .unfinished import Shard, Unfinished, shards_of
from .writers import refuse_if_written

_NOTE_BYTES = 4096  # a shard's note on disk, until the artefact is published


class Room(NamedTuple):
    """The disk where an output will lie.

    Attributes:
        free: bytes.
        claimed: bytes that an interrupted run of this output took from the disk already.
    """

    free: int
    claimed: int

    def lacking(self, size: int) -> int:
        """How many bytes the disk lacks for an output of `size` bytes; 0 where it suffices."""
        return max(0, size - self.claimed - self.free)


class Estimate(NamedTuple):
    """What a run would meet.

    Attributes:
        finished: the artefact is there already.
        missing: shards still to be written.
        free, claimed: as in `Room`.
    """

    finished: bool
    missing: list[Shard]
    free: int
    claimed: int

    def lacking(self, size: int) -> int:
        """How many bytes the disk lacks for an artefact of `size` bytes; 0 where it suffices."""
        if self.finished:
            return 0
        return Room(self.free, self.claimed).lacking(size + _NOTE_BYTES * len(self.missing))


def estimate_output(
    out: str | Path, format: str, plan: dict[str, Any], rows: int | None = None, shard_size: int = 0
) -> Estimate:
    """Look at an output as `ShardedArtefact` would find it; without rows as `GrowingArtefact`, with no missing shards.

    Raises:
        InputError: it exists and was made by another plan, or can't be written.
    """
    unfinished = Unfinished(out)
    sizes = {} if rows is None else {"rows": rows, "shard_size": shard_size}
    now = {"format": format, **json.loads(json.dumps({**plan, **sizes}))}
    room = room_for(out)
    refuse_if_written(unfinished.folder)
    if unfinished.out.exists():
        refuse_other_plan(finished_plan(unfinished.out, format), now, unfinished.out)
        return Estimate(True, [], room.free, 0)
    done = unfinished.done()
    if done:
        refuse_other_plan(unfinished.plan(), now, unfinished.folder)
    shards = () if rows is None else shards_of(rows, shard_size)
    missing = [shard for shard in shards if shard.number not in done]
    return Estimate(False, missing, *room)


def room_for(out: str | Path) -> Room:
    """The room there is for an output.

    Raises:
        InputError: it can't be written there.
    """
    unfinished = Unfinished(out)
    folder = unfinished.out.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        reason = "no permission, or a read-only disk" if folder.is_dir() else f"{folder} is no folder"
        raise InputError(f"{out} can't be written: {reason}. Choose another folder.", "out")
    return Room(shutil.disk_usage(folder).free, unfinished.claimed())


def readable_size(count: int) -> str:
    """Bytes for a person.

    >>> readable_size(999), readable_size(1536), readable_size(5 * 2**30)
    ('999 bytes', '1.5 KiB', '5.0 GiB')
    """
    if count < 1024:
        return f"{count} bytes"
    power = min((count.bit_length() - 1) // 10, 5)
    return f"{count / 1024**power:.1f} {'KMGTP'[power - 1]}iB"


def meta_bytes(format: str, plan: Mapping[str, Any], rows: int, shard_size: int, meta: Mapping[str, Any]) -> int:
    """Size of the `meta.json` that `ShardedArtefact` publishes."""
    plan = {**plan, "rows": rows, "shard_size": shard_size}
    return len(json_text({"format": format, "version": FORMAT_VERSION, "plan": plan, **meta}).encode())
