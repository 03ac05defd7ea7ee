"""Vokens of one tokenizer's pieces to those of another's (VOK §3.3), shard by shard.

    v(u_j; s) := v(w_ind(j); s)

w_i -> the pieces that have vokens, u_j -> those of the other tokenizer, ind -> `overlap.most_overlapping`. Sentences
don't matter, and neither does where an encoder's window ended: a line is one range of characters.

The text is cut again by both tokenizers, since only a tokenizer knows which characters its pieces come from; while one
shard is labelled, the next is cut and the one before goes to disk.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..features.extraction import map_ahead
from ..progress import progress_bar
from ..storage.artefact import META, check_array_whole, sha256_of_file
from ..storage.growing import GrowingArtefact
from ..storage.lines import check_read_again
from ..storage.ranks import this_rank
from ..storage.signature import signature
from ..text.pretrained_tokenizer import composed
from ..text.spans import spans_of_encodings
from ..text.tokenizer_bridge import TokenizerBridge
from .overlap import NO_PIECE, most_overlapping
from .publishing import LENGTHS, SCORES, publish_vokens
from .text_shards import SHARD_LINES, Shard, TextReader
from .vokens import NO_VOKEN, TOKENS, VOKENS, Vokens

_NO_SCORE = 0
COUNTS = ("empty", "unmatched", "ignored")

Cut = tuple[list[str], list[Any], list[Any]]  # texts in NFC, and what each tokenizer makes of them


class Revokenized(NamedTuple):
    """Some lines in the other tokenizer's pieces.

    Attributes:
        tokens: the pieces of each line, joined by spaces.
        vokens: of all their pieces.
        scores: likewise; None where there are none.
        lengths: pieces of each line.
        counts: `empty` lines, `unmatched` pieces that overlap none, `ignored` ones whose piece had no voken.

    Shapes:
        vokens: (U,) int32;  scores: (U,) float16;  lengths: (L,) int64
    """

    tokens: list[str]
    vokens: np.ndarray
    scores: np.ndarray | None
    lengths: np.ndarray
    counts: dict[str, int]


class Revokenizer:
    """Gives pieces of another tokenizer the vokens of those that they overlap most.

    Args:
        source: the vokens.
        tokenizer: the other one, a name on the hub or a folder.

    Raises:
        InputError: the vokens or their tokenizer are broken, or the other tokenizer can't be used.
    """

    def __init__(self, source: Vokens, tokenizer: str) -> None:
        self.source = source
        self.own = source.bridge()
        self.other = TokenizerBridge(tokenizer)

    def cut(self, texts: list[str]) -> Cut:
        """Texts in NFC, and what each tokenizer makes of them; most of the time is spent here, outside of Python.

        Raises:
            InputError: a tokenizer fails on a text.
        """
        texts = [composed(text) for text in texts]
        return texts, self.own.encodings_of(texts), self.other.encodings_of(texts)

    def label(self, first: int, tokens: list[str], cut: Cut) -> Revokenized:
        """Vokens of lines that were cut.

        Args:
            first: which line of the text the first of them is.
            tokens: the pieces that the vokens are of, line by line.

        Raises:
            InputError: the text isn't cut into those pieces any more, or the vokens were cut short meanwhile.
        """
        texts, own, other = cut
        for line, (found, kept) in enumerate(zip(self.own.lines_of(own), tokens, strict=True), first):
            if found != kept:
                raise InputError(_cut_otherwise(self.source, line, found, kept))
        ours, theirs = spans_of_encodings(texts, own), spans_of_encodings(texts, other)
        nearest = most_overlapping(ours.starts, ours.ends, theirs.starts, theirs.ends)  # (U,)
        for array in (self.source.offsets, self.source.vokens, self.source.scores):
            if array is not None:
                check_array_whole(array)
        start, stop = self.source.offsets[first], self.source.offsets[first + len(texts)]
        vokens = _taken(self.source.vokens[start:stop], nearest, NO_VOKEN)
        scores = self.source.scores
        unmatched = int((nearest == NO_PIECE).sum())
        counts = {
            "empty": int((np.diff(theirs.pieces) == 0).sum()),
            "unmatched": unmatched,
            "ignored": int((vokens == NO_VOKEN).sum()) - unmatched,
        }
        return Revokenized(
            self.other.lines_of(other),
            vokens,
            None if scores is None else _taken(scores[start:stop], nearest, _NO_SCORE),
            np.diff(theirs.pieces),
            counts,
        )


def _taken(values: np.ndarray, nearest: np.ndarray, otherwise: int) -> np.ndarray:
    """Each piece's value by the number of its neighbour: (U,)."""
    return np.append(values, values.dtype.type(otherwise))[nearest]  # NO_PIECE is the last


def _cut_otherwise(source: Vokens, line: int, found: str, kept: str) -> str:
    pairs = list(zip(found.split(), kept.split()))
    same = next((place for place, (a, b) in enumerate(pairs) if a != b), len(pairs))
    now, before = (" ".join(text.split()[same : same + 3]) or "nothing" for text in (found, kept))
    return (
        f"{source.folder / TOKENS} should have the pieces that its tokenizer cuts the text into, but in line "
        f"{line + 1} it has {before[:80]!r} where the tokenizer makes {now[:80]!r}, after {same} pieces that are the "
        "same. Another version of `tokenizers` may cut otherwise, or the file was changed: make the vokens again with "
        "visual-grounding vokenize."
    )


def check_text(source: Vokens, text: Sequence[Path]) -> None:
    """Refuse a text that the vokens aren't of, before anything is made of it.

    Raises:
        InputError: it is another one, can't be read, or is a pipe, which can't be read twice.
    """
    check_read_again(*text)
    reader = TextReader(text)
    for _ in reader.shards():
        pass
    if reader.sha256 != source.text_sha256:
        many = f"{reader.lines} lines" if reader.lines != source.lines else f"as many lines, {reader.lines},"
        raise InputError(
            f"{' and '.join(map(str, text))} should be the text that {source.folder} has the vokens of, {source.lines} "
            f"lines with sha256 {source.text_sha256}, but has {many} and sha256 {reader.sha256}. Give the files that "
            "`vokenize` was given, in their order.",
            "text",
        )


def revokenize(revokenizer: Revokenizer, text: Sequence[Path], out: Path) -> Vokens:
    """Make an artefact of vokens for another tokenizer; continues where it was interrupted.

    Args:
        revokenizer: what gives them.
        text: what its vokens are of: files, also .gz and .zst, in their order.
        out: the artefact to make.

    Raises:
        InputError: vokens, text and tokenizers don't belong together, or `out` holds something else.
    """
    source = revokenizer.source
    source.check_range()
    source.check_arrays()
    check_text(source, text)
    arrays: dict[str, tuple[tuple[int, ...], str]] = {"vokens": ((), "int32"), LENGTHS: ((), "int64")}
    if source.scores is not None:
        arrays[SCORES] = ((), "float16")
    published = [name for name in arrays if name != LENGTHS]
    artefact = GrowingArtefact(out, VOKENS, _plan(revokenizer), arrays, [TOKENS], published)
    if artefact.finished:
        artefact.say_finished()
    else:
        shards = _fill(artefact, revokenizer, text)
        artefact.end(shards)
        _publish(artefact, revokenizer)
    return Vokens(out)


def _plan(revokenizer: Revokenizer) -> dict[str, Any]:
    """Whatever decides the bytes."""
    return {
        "method": "revokenize",
        "vokens_sha256": sha256_of_file(revokenizer.source.folder / META),
        "tokenizer_sha256": revokenizer.other.sha256,
        "shard_lines": SHARD_LINES,
    }


def _fill(artefact: GrowingArtefact, revokenizer: Revokenizer, text: Sequence[Path]) -> int:
    """Write the shards that are missing; returns how many there are.

    Raises:
        InputError: the text was changed since it was checked, or isn't cut as it was.
    """
    source, reader, tokens = revokenizer.source, TextReader(text, SHARD_LINES), revokenizer.source.token_lines()
    count = first = 0

    def cut(shard: Shard) -> tuple[Shard, Cut | None]:
        return shard, revokenizer.cut(shard.lines) if artefact.lacks(shard.number) else None

    shown = this_rank().leads
    ahead = map_ahead(cut, reader.shards(), 1, ahead=1)
    with progress_bar(source.lines, 0, "lines", shown=shown) as bar, ThreadPoolExecutor(1) as writer, closing(ahead):
        written: Future[None] | None = None  # of the shard before; it goes to disk while the next one is labelled
        for shard, found in ahead:
            kept = list(islice(tokens, len(shard.lines)))
            if len(kept) < len(shard.lines):
                raise _changed(text, source.lines, f"more than {first + len(kept)}")
            if found is not None:
                made = revokenizer.label(first, kept, found)
                if written is not None:
                    written.result()
                written = writer.submit(_write, artefact, shard.number, made)
            count, first = shard.number + 1, first + len(shard.lines)
            bar.update(len(shard.lines))
        if written is not None:
            written.result()
    if first != source.lines:
        raise _changed(text, source.lines, str(first))
    return count


def _changed(text: Sequence[Path], lines: int, found: str) -> InputError:
    return InputError(
        f"{' and '.join(map(str, text))} changed while it was read: it had {lines} lines, and now {found}. Give the "
        "text of the vokens again.",
        "text",
    )


def _write(artefact: GrowingArtefact, number: int, made: Revokenized) -> None:
    arrays = {"vokens": made.vokens, LENGTHS: made.lengths}
    if made.scores is not None:
        arrays[SCORES] = made.scores
    artefact.add(number, arrays, {TOKENS: made.tokens}, {"lines": len(made.tokens), **made.counts})


def _publish(artefact: GrowingArtefact, revokenizer: Revokenizer) -> None:
    source = revokenizer.source
    publish_vokens(
        artefact,
        revokenizer.other,
        source.keys(),
        COUNTS,
        scored=source.scores is not None,
        vokens=source.size,
        keys_sha256=source.keys_sha256,
        label=source.label,
        text_sha256=source.text_sha256,
        signature=signature(
            "revokenize",
            tokenizer=revokenizer.other.sha256[:8],
            from_tokenizer=revokenizer.own.sha256[:8],
            vokens=source.signature,
        ),
    )
