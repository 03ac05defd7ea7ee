"""`vokenize --dry-run`: read the text, label a little of it, and say what a run would take."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..features.dry_run import readable_time
from ..storage.estimate import estimate_output, readable_size
from ..storage.lines import STANDARD_INPUT
from ..storage.ranks import this_rank
from ..storage.unfinished import Unfinished
from .cutting import Cutter
from .stream import of_this_text, refuse_no_text, vokens_plan
from .text_shards import TextReader
from .vokenizer import Vokenizer
from .vokens import VOKENS, Vokens

_LETTERS = 2**16  # that are labelled, whole lines


class Estimate(NamedTuple):
    """What a run would make and take. Pieces, bytes and seconds are told from a sample.

    Attributes:
        lines, letters: of the text; exact.
        pieces: about how many.
        size: bytes of the finished output; while it is joined it needs twice as many.
        free: bytes on the disk, with what an earlier run of this output took.
        done: share of the text that an earlier run has finished.
        seconds: for what is left.
        rate: pieces a second.
    """

    out: Path
    lines: int
    letters: int
    pieces: int
    size: int
    free: int
    done: float
    seconds: float
    rate: float

    def describe(self) -> str:
        """A few lines for whoever ran the command."""
        state = f"interrupted; a run would continue after {self.done:.0%}" if self.done else "nothing there yet"
        if self.out.exists():
            state = "finished; a run would only compare the text"
        said = [
            ("text", f"{self.lines} lines, {self.letters} letters, about {self.pieces} pieces"),
            ("output", f"{self.out}: about {readable_size(self.size)}, twice that while it is joined"),
            ("disk", f"{readable_size(self.free)} free" + ("" if self.free > 2 * self.size else ": too little")),
            ("state", state),
            ("speed", f"about {self.rate:.0f} pieces a second"),
            ("time", f"about {readable_time(self.seconds)}"),
        ]
        return "\n".join(f"{name:8}{what}" for name, what in said) + "\nNothing was written."


def estimate(
    vokenizer: Vokenizer,
    cutter: Cutter,
    text: Sequence[Path],
    out: Path,
    keep_scores: bool,
    shard_lines: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Estimate:
    """Find out what `vokenize` with the same arguments would take.

    Raises:
        InputError: the text is empty, can't be read, or is standard input; `out` can't be written, or was made of
            another text or by other choices.
    """
    if STANDARD_INPUT in text:
        raise InputError("a dry run reads the text, and standard input can be read only once. Give a file.", "text")
    room = estimate_output(out, VOKENS, vokens_plan(vokenizer, cutter, keep_scores, shard_lines))
    reader, sample, taken = TextReader(text, shard_lines), list[str](), 0
    for shard in reader.shards():
        for line in shard.lines:
            if taken < _LETTERS:
                sample.append(line)
                taken += len(line)
    refuse_no_text(reader)
    if room.finished:
        of_this_text(Vokens(out), reader)
    vokenizer.label_pieces(cutter.cut(sample), 0)  # the first time memory is allocated and algorithms are chosen
    started = clock()
    cut = cutter.cut(sample)
    vokenizer.label_pieces(cut, 0)
    seconds = max(clock() - started, 1e-9)
    share = reader.letters / taken
    done = 1.0 if room.finished else min(1.0, _lines_done(Unfinished(out)) / reader.lines)
    pieces = round(len(cut) * share)
    size = round((4 + 2 * keep_scores) * pieces + len(cut.tokens) * share + 8 * reader.lines)
    size += sum(len(each.encode()) + 1 for each in (*vokenizer.candidates.keys, *cutter.bridge.dictionary_lines()))
    left = seconds * share * (1 - done)
    ranks = this_rank().world if vokenizer.plan.get("device") == "cuda" else 1
    return Estimate(
        out,
        reader.lines,
        reader.letters,
        pieces,
        size,
        room.free + room.claimed,
        done,
        left / ranks,
        len(cut) / seconds,
    )


def _lines_done(unfinished: Unfinished) -> int:
    """How many lines an interrupted run has labelled."""
    notes = (unfinished.read(unfinished.marker(shard)) for shard in unfinished.done())
    return sum(lines for note in notes if isinstance(lines := note.get("lines"), int))
