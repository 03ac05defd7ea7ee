"""Whether the next step's output fits on the disk, before hours are spent on it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from .artefacts import Parts, partial_of
from .findings import Finding, note, ok, wrong

_ID_BYTES = 4 + 2  # an int32 row and its float16 score
_MARGIN = 1.02  # lists of keys, descriptions


def bytes_needed(step: str, parts: Parts, values_per_image: int, images_per_sentence: int) -> int | None:
    """Size of the next step's output; None where a part that decides it couldn't be opened."""
    if step == "extract" and parts.images is not None:
        return round(_MARGIN * len(parts.images.keys) * values_per_image * 2)
    if step == "index" and parts.store is not None and parts.retriever is not None:
        return round(_MARGIN * len(parts.store) * parts.retriever.joint_size * 4)
    if step == "retrieve" and parts.text is not None:
        return round(_MARGIN * len(parts.text) * images_per_sentence * _ID_BYTES)
    return None


def check_disk(step: str, out: Path, needed: int | None) -> Iterator[Finding]:
    """Whether `needed` bytes can be written at `out`; what an interrupted run claimed there already counts."""
    if needed is None:
        yield note(f"How much disk `{step}` needs isn't known, because something that it needs is broken or not given.")
        return
    parent = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.is_dir())
    blocked = next((path for path in (out.absolute(), *out.absolute().parents) if path.is_file()), None)
    if blocked is not None:
        yield wrong(f"{out} can't be written: {blocked} is a file, but should be a folder. Choose another --out.")
        return
    if not os.access(parent, os.W_OK):
        yield wrong(f"{out} can't be written: {parent} is read-only for you. Choose another --out.")
        return
    free = shutil.disk_usage(parent).free
    claimed = _size_below(partial_of(out))
    text = f"`{step}` needs about {_readable(max(0, needed - claimed))} at {out}, and {_readable(free)} are free"
    if needed - claimed > free:
        yield wrong(f"{text}: too little. Free some, or choose an --out on another disk.")
    else:
        yield ok(f"{text}.")


def _size_below(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _readable(size: int) -> str:
    """Bytes for a person.

    >>> _readable(999), _readable(25_000_000), _readable(3_200_000_000_000)
    ('999 B', '25.0 MB', '3.2 TB')
    """
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    number, power = float(size), 0
    while number >= 1000 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.1f} {units[power]}" if power else f"{size} B"
