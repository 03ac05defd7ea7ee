"""Whether the next step's output fits on the disk, before hours are spent on it."""

from collections.abc import Iterator
from pathlib import Path

from ..storage.artefact import array_bytes
from ..storage.estimate import readable_size, room_for
from .artefacts import Parts
from .findings import Finding, note, ok, wrong

_MARGIN = 1.02  # for lists of keys and descriptions


def bytes_needed(step: str, parts: Parts, values_per_image: int, images_per_sentence: int) -> int | None:
    """Size of the next step's output; None where a part that decides it couldn't be opened."""
    arrays: list[tuple[tuple[int, int], str]]
    if step == "extract" and parts.images is not None:
        arrays = [((len(parts.images.keys), values_per_image), "float16")]
    elif step == "index" and parts.store is not None and parts.retriever is not None:
        arrays = [((len(parts.store), parts.retriever.joint_size), "float32")]
    elif step == "retrieve" and parts.text is not None:
        arrays = [((len(parts.text), images_per_sentence), dtype) for dtype in ("int32", "float16")]
    else:
        return None
    return round(_MARGIN * sum(array_bytes(shape, dtype) for shape, dtype in arrays))


def check_disk(step: str, out: Path, needed: int | None) -> Iterator[Finding]:
    """Whether `needed` bytes can be written at `out`; what an interrupted run claimed there already counts."""
    if needed is None:
        yield note(f"How much disk `{step}` needs isn't known, because something that it needs is broken or not given.")
        return
    room = room_for(out)
    text = (
        f"`{step}` needs about {readable_size(max(0, needed - room.claimed))} at {out}, and {readable_size(room.free)} "
        "are free"
    )
    if room.lacking(needed):
        yield wrong(f"{text}: too little. Free some, or choose an --out on another disk.")
    else:
        yield ok(f"{text}.")
