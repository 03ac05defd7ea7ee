"""Binarised text without its lines' ends: pieces behind each other, and the voken of each where there are vokens."""

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from ..errors import InputError
from ..storage.artefact import check_array_whole
from ..text.spread_lines import spread_lines
from ..vokenization.vokens import TOKENS, Vokens

_LINES = 2**22  # compared at a time
_SHOWN = 60  # letters of a line in a message


class VokenText:
    """The pieces of a text, from its first line to its last, by their place; nothing of it is held in memory.

    `fairseq-preprocess` ends each line with `</s>`, which is no piece. Text that was binarised from an artefact's
    tokens.txt has as many pieces in each line as there are vokens.

    Args:
        text: fairseq's indexed dataset, memory-mapped: S lines.
        place: what it is called.
        symbols: of its dictionary, by their numbers.
        vokens: of the same text; None for text alone.

    Attributes:
        offsets: (S + 1,) where each line's pieces begin; those of the vokens, memory-mapped. Without vokens 8 bytes a
            line are held.
        pieces: how many there are.

    Raises:
        InputError: a line has no end, there is no piece, or the vokens are of another text.
    """

    def __init__(self, text: Any, place: str, symbols: Sequence[str], vokens: Optional[Vokens] = None) -> None:
        self.text, self.place, self.vokens = text, place, vokens
        if len(text) == 0 or int(text.sizes.max()) < 2:
            raise InputError(f"{place} should have pieces, but has none in {len(text)} lines.")
        if int(text.sizes.min()) < 1:
            raise InputError(
                f"{place} should end each line with </s>, as fairseq-preprocess does, but line "
                f"{int(text.sizes.argmin()) + 1} has nothing at all. Binarise the text anew."
            )
        if vokens is None:
            self.offsets = np.zeros(len(text) + 1, np.int64)
            np.cumsum(text.sizes, out=self.offsets[1:])
            self.offsets -= np.arange(len(text) + 1)
        else:
            self._check_sizes(vokens)
            self._check_pieces(vokens, symbols)
            self.offsets = vokens.offsets
        self.pieces = int(self.offsets[-1])

    def __getstate__(self) -> dict[str, Any]:
        """For a data loader's worker that isn't forked: a memory-mapped array would be sent as its numbers."""
        state = dict(self.__dict__)
        if self.vokens is not None:
            state |= {"vokens": self.vokens.folder, "offsets": None}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        if state["vokens"] is not None:
            self.vokens = Vokens(state["vokens"])
            self.offsets = self.vokens.offsets

    def _check_sizes(self, vokens: Vokens) -> None:
        if len(self.text) != vokens.lines:
            raise InputError(
                f"{self.place} has {len(self.text)} lines, but vokens in {vokens.folder} are of {vokens.lines}. "
                f"{_remedy(vokens)}"
            )
        for start in range(0, vokens.lines, _LINES):
            own = self.text.sizes[start : start + _LINES] - 1
            wanted = np.diff(vokens.offsets[start : start + _LINES + 1])
            if not np.array_equal(own, wanted):
                first = int(np.flatnonzero(own != wanted)[0])
                raise InputError(
                    f"{self.place} has {own[first]} pieces in line {start + first + 1}, but vokens in {vokens.folder} "
                    f"are of {wanted[first]}. {_remedy(vokens)}"
                )

    def _check_pieces(self, vokens: Vokens, symbols: Sequence[str]) -> None:
        """Another text may have the same sizes: the pieces at 64 places of it are compared, all of a small one's."""
        path = vokens.folder / TOKENS
        for place, line in spread_lines(path):
            if place >= vokens.lines:
                break
            *own, _ = (symbols[each] for each in self.text[place].tolist())
            if own != line.split():
                raise InputError(
                    f"{self.place} should have the pieces of {path}, but line {place + 1} is "
                    f"{' '.join(own)[:_SHOWN]!r} in one and {line[:_SHOWN]!r} in the other: as many pieces of "
                    f"another text. {_remedy(vokens)}"
                )

    def numbers(self, start: int, end: int) -> np.ndarray:
        """Numbers of the pieces from one place to another.

        Shapes:
            returns: (end − start,)

        Raises:
            InputError: the vokens were cut short since they were opened.
        """
        check_array_whole(self.offsets)
        first = int(np.searchsorted(self.offsets, start, side="right")) - 1
        last = int(np.searchsorted(self.offsets, end, side="left"))
        lines = [self.text[line].numpy()[:-1] for line in range(first, last)]
        skipped = start - int(self.offsets[first])
        return np.concatenate(lines)[skipped : skipped + end - start]

    def vokens_at(self, start: int, end: int) -> np.ndarray:
        """Vokens of these pieces.

        Shapes:
            returns: (end − start,)

        Raises:
            ValueError: it is text alone.
            InputError: as `numbers`.
        """
        if self.vokens is None:
            raise ValueError(f"{self.place} is text without vokens")
        check_array_whole(self.vokens.vokens)
        return np.asarray(self.vokens.vokens[start:end], dtype=np.int64)

    def begins(self, start: int, end: int) -> np.ndarray:
        """Whether a line begins with each of these pieces.

        Shapes:
            returns: (end − start,) bool
        """
        first, last = np.searchsorted(self.offsets, [start, end], side="left")
        found = np.zeros(end - start, bool)
        found[np.asarray(self.offsets[first:last]) - start] = True
        return found


def _remedy(vokens: Vokens) -> str:
    return f"They belong to the pieces beside them; binarise those: {vokens.binarise}"
