"""`vokenize`: text of any length to vokens, shard by shard, in memory for a few of them.

A shard is so many lines, or so many letters, whatever comes first. While one is labelled, the next ones are read and
cut: in a thread on a CPU, whose cores are busy anyway, in processes beside a GPU, which would wait for one thread. What
cuts and fails ends the run with its error. A rerun reads the text again, and does the shards that aren't there.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from ..errors import InputError, check_workers
from ..progress import progress_bar
from ..storage.growing import GrowingArtefact
from ..storage.lines import STANDARD_INPUT
from ..storage.ranks import this_rank
from ..storage.signature import signature
from ..text.tokenizer_bridge import TokenizerBridge
from .cutting import Cutter, CutText
from .publishing import LENGTHS, SCORES, publish_vokens
from .text_shards import SHARD_LINES, Shard, TextReader
from .vokenizer import Labels, Vokenizer
from .vokens import TOKENS, VOKENS, Vokens

_COUNTS = ("empty", "sentences", "windowed", "unknown")


def vokenize(
    vokenizer: Vokenizer,
    cutter: Cutter,
    text: Sequence[Path],
    out: Path,
    keep_scores: bool = False,
    shard_lines: int = SHARD_LINES,
    workers: int = 0,
) -> Vokens:
    """Give every piece of a text a voken; continues where it was interrupted.

    Args:
        vokenizer: what gives them.
        cutter: what cuts the text into pieces.
        text: files; `-` is standard input, for one process alone.
        out: the artefact to make.
        keep_scores: write `scores.npy`, too.
        shard_lines: lines between two save points, at most.
        workers: processes that cut; 0 for a thread of this one.

    Raises:
        InputError: the text can't be read, is empty, is another than that of an earlier run, or `out` holds something
            else; or a worker died.
    """
    if keep_scores and not vokenizer.scored:
        raise InputError(f"method {vokenizer.method} has no scores that could be kept.", "scores")
    if STANDARD_INPUT in text and this_rank().world > 1:
        raise InputError(
            "several ranks should each read the whole text, but standard input goes to one of them. Give a file.",
            "text",
        )
    reader = TextReader(text, shard_lines)
    reader.check_there()
    plan = vokens_plan(vokenizer, cutter, keep_scores, shard_lines)
    arrays: dict[str, tuple[tuple[int, ...], str]] = {"vokens": ((), "int32"), LENGTHS: ((), "int64")}
    if keep_scores:
        arrays[SCORES] = ((), "float16")
    published = [name for name in arrays if name != LENGTHS]
    artefact = GrowingArtefact(out, VOKENS, plan, arrays, [TOKENS], published)
    if artefact.finished:
        for _ in reader.shards():
            pass
        found = of_this_text(Vokens(out), reader)
        artefact.say_finished()
        return found
    digests: list[str] = []
    ahead, shown = _cut_ahead(reader, cutter, artefact, workers), this_rank().leads
    with progress_bar(None, 0, "lines", shown=shown) as bar, ThreadPoolExecutor(1) as writer, closing(ahead):
        written: Future[None] | None = None  # of the shard before; it goes to disk while the next one is labelled
        for shard, cut in ahead:
            digests.append(shard.sha256)
            if cut is not None:
                labels = vokenizer.label_pieces(cut, shard.number)
                if written is not None:
                    written.result()
                written = writer.submit(_write, artefact, shard, cut, labels, keep_scores)
            bar.update(len(shard.lines))
        if written is not None:
            written.result()
    artefact.end(len(digests))
    refuse_no_text(reader)
    _check_shards_of_ranks(artefact, digests, text)
    _publish(artefact, vokenizer, cutter.bridge, reader, keep_scores)
    return Vokens(out)


def refuse_no_text(reader: TextReader) -> None:
    """Refuse a text without a letter or space.

    Raises:
        InputError: it is one.
    """
    if not reader.letters:
        raise InputError(f"{', '.join(map(str, reader.paths))} should hold text, but is empty.", "text")


def vokens_plan(vokenizer: Vokenizer, cutter: Cutter, keep_scores: bool, shard_lines: int) -> dict[str, Any]:
    """Whatever decides the bytes, but the text: each shard remembers its own."""
    return {
        **vokenizer.plan,
        "method": vokenizer.method,
        "keys_sha256": vokenizer.candidates.sha256,
        "tokenizer_sha256": cutter.bridge.sha256,
        "language": cutter.language,
        "max_pieces": cutter.window,
        "scores": keep_scores,
        "shard_lines": shard_lines,
    }


def of_this_text(vokens: Vokens, reader: TextReader) -> Vokens:
    """What is finished already, if it is of this text, which was read to its end.

    Raises:
        InputError: it is of another.
    """
    if (reader.lines, reader.sha256) != (vokens.lines, vokens.text_sha256):
        raise InputError(
            f"{vokens.folder} holds the vokens of another text: of {vokens.lines} lines with sha256 "
            f"{vokens.text_sha256[:8]}…, where this one has {reader.lines} with {reader.sha256[:8]}…. Choose another "
            "folder, or delete it.",
            "out",
        )
    return vokens


def _cut_ahead(
    reader: TextReader, cutter: Cutter, artefact: GrowingArtefact, workers: int
) -> Generator[tuple[Shard, CutText | None], None, None]:
    """Each shard of the text, in order, with its pieces where this rank has to label them.

    Raises:
        InputError: a worker died, or another text was given in an earlier run.
    """
    ahead = 2 * workers + 1
    own = None if workers else cutter  # processes have theirs
    with _executor(cutter, workers) as pool:
        waiting: deque[tuple[Shard, Future[CutText] | None]] = deque()
        try:
            for shard in reader.shards():
                _check_same_text(artefact, shard, reader.lines - len(shard.lines) + 1)
                needed = artefact.lacks(shard.number)
                waiting.append((shard, pool.submit(_cut, shard.lines, own) if needed else None))
                while len(waiting) > ahead:
                    yield _taken(waiting.popleft())
            while waiting:
                yield _taken(waiting.popleft())
        except BrokenProcessPool as error:
            raise InputError(
                "a process that cuts text into pieces was killed, by the system for want of memory maybe. What is done "
                "stays: run the same command again, with fewer workers.",
                "workers",
            ) from error
        finally:
            for _, future in waiting:
                if future is not None:
                    future.cancel()


_cutter: Cutter  # of a process that cuts


def _begin_worker(cutter: Cutter) -> None:
    global _cutter
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the process that gives the work ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _cutter = cutter


def _end_with_parent() -> None:
    """End this process when the one that gives it work was killed: it would wait for more for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _cut(lines: list[str], cutter: Cutter | None) -> CutText:
    return (_cutter if cutter is None else cutter).cut(lines)


def _executor(cutter: Cutter, workers: int) -> Executor:
    check_workers(workers)
    if workers < 1:
        return ThreadPoolExecutor(1)
    # Not forked: a process with CUDA, or with the threads of a tokenizer, can't be.
    return ProcessPoolExecutor(workers, get_context("spawn"), _begin_worker, (cutter,))


def _taken(shard: tuple[Shard, "Future[CutText] | None"]) -> tuple[Shard, CutText | None]:
    return shard[0], None if shard[1] is None else shard[1].result()


def _check_same_text(artefact: GrowingArtefact, shard: Shard, line: int) -> None:
    noted = artefact.done_with(shard.number)
    if noted is not None and noted.get("sha256") != shard.sha256:
        raise InputError(
            f"{artefact.partial} was begun with another text: somewhere from line {line} on it differs. Give the same "
            "text again, choose another folder, or delete that one.",
            "out",
        )


def _check_shards_of_ranks(artefact: GrowingArtefact, digests: Sequence[str], text: Sequence[Path]) -> None:
    """Compare what every rank labelled with the text that this one read; waits for the others."""
    other = [number for number, note in enumerate(artefact.notes(sha256=str)) if note["sha256"] != digests[number]]
    if other:
        raise InputError(
            f"all ranks should read the same text, but {len(other)} of {len(digests)} parts are of another one than "
            f"{', '.join(map(str, text))}, the first is part {other[0] + 1}. Give each the same file, and delete "
            f"{artefact.partial}.",
            "text",
        )


def _write(artefact: GrowingArtefact, shard: Shard, cut: CutText, labels: Labels, keep_scores: bool) -> None:
    arrays = {"vokens": labels.vokens, LENGTHS: cut.lengths}
    if keep_scores and labels.scores is not None:
        arrays[SCORES] = labels.scores
    notes = {"sha256": shard.sha256, "lines": len(shard.lines), "pieces": len(cut), **cut.counts}
    artefact.add(shard.number, arrays, {TOKENS: cut.tokens}, notes)


def _publish(
    artefact: GrowingArtefact, vokenizer: Vokenizer, bridge: TokenizerBridge, reader: TextReader, keep_scores: bool
) -> None:
    candidates = vokenizer.candidates
    publish_vokens(
        artefact,
        bridge,
        candidates.keys,
        _COUNTS,
        keep_scores,
        vokens=len(candidates.keys),
        label=vokenizer.label,
        text_sha256=reader.sha256,
        keys_sha256=candidates.sha256,
        signature=signature(
            "vokenize",
            method=vokenizer.method,
            **vokenizer.signed,
            vokens=len(candidates.keys),
            keys=candidates.sha256[:8],
            tokenizer=bridge.sha256[:8],
        ),
    )
