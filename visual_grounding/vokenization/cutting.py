"""Lines of text to pieces, and the pieces to what an encoder reads at a time: sentences, the long ones in windows.

A line is cut by the tokenizer as a whole, so that its pieces are those of any other use; sentences only bound the
encoder's context (VOK §3.1). Everything is flat: the pieces of all lines behind one another, windows as parts of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..errors import InputError
from ..text.sentences import check_language, sentence_starts
from ..text.tokenizer_bridge import TokenizerBridge, composed
from ..text.words import UNKNOWN

WINDOW_PIECES = 126  # with [CLS] and [SEP] 128, as in the paper's code


@dataclass(frozen=True)
class CutText:
    """The pieces of some lines.

    Attributes:
        numbers: of fairseq's dictionary, all lines behind one another.
        lengths: pieces of each line; an empty line has none.
        starts, sizes: the windows: first piece and how many. They tile `numbers`, in order.
        sentences: which sentence each window is of, counted from 0; a window never holds two.
        tokens: of `tokens.txt`, the lines' pieces.
        counts: what there is to say: `empty` lines, `sentences`, `windowed` ones, `unknown` pieces.

    Shapes:
        numbers: (P,) int32;  lengths: (L,) int64;  starts, sizes, sentences: (W,) int64
    """

    numbers: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    sentences: np.ndarray
    tokens: bytes
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.numbers)


class Cutter:
    """Cuts lines. It may be pickled into another process, where the tokenizer is opened again.

    Args:
        tokenizer: a model's name on the hub, or a folder.
        language: of the text, for its sentences.
        window: pieces that the encoder reads at a time, without what the tokenizer puts around them.

    Raises:
        InputError: the tokenizer can't be used (`TokenizerBridge`), or the window isn't one.
    """

    def __init__(self, tokenizer: str, language: str = "en", window: int = WINDOW_PIECES) -> None:
        self.tokenizer = str(tokenizer)
        check_language(language)
        self.language = language
        self.window = window
        if window < 1:
            raise InputError(f"a window should have at least 1 piece, but has {window}.", "max_pieces")
        self.bridge = TokenizerBridge(self.tokenizer)
        if window > self.bridge.max_pieces:
            raise InputError(
                f"a window should have at most the {self.bridge.max_pieces} pieces that {self.tokenizer} has positions "
                f"for, but has {window}.",
                "max_pieces",
            )
        self._symbols = np.array(self.bridge.symbols, dtype=object)

    def __getstate__(self) -> tuple[str, str, int]:
        return self.tokenizer, self.language, self.window

    def __setstate__(self, state: tuple[str, str, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def cut(self, lines: Sequence[str]) -> CutText:
        """The pieces of lines.

        Raises:
            InputError: the tokenizer fails on a text.
        """
        texts = [composed(line) for line in lines]
        begins = [sentence_starts(text, self.language) for text in texts]
        numbers, ends = self.bridge.cut(texts, [len(each) > 1 for each in begins])
        lengths = np.array([len(each) for each in numbers], dtype=np.int64)
        flat = np.concatenate(numbers) if numbers else np.zeros(0, np.int32)
        starts, sizes, sentences = self._windows(lengths, begins, ends)
        lines_of_pieces = (" ".join(self._symbols[each]) + "\n" for each in numbers)
        counts = {
            "empty": int((lengths == 0).sum()),
            "sentences": int(sentences[-1]) + 1 if len(sentences) else 0,
            "windowed": int((np.bincount(sentences) > 1).sum()) if len(sentences) else 0,
            "unknown": int((flat == UNKNOWN).sum()),
        }
        return CutText(flat, lengths, starts, sizes, sentences, "".join(lines_of_pieces).encode(), counts)

    def _windows(
        self, lengths: np.ndarray, begins: list[list[int]], ends: list[np.ndarray | None]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts, sizes and sentences of all windows."""
        windows: list[tuple[int, int, int]] = []
        sentence = first = 0
        for length, starts, last in zip(lengths.tolist(), begins, ends):
            # A piece belongs to the sentence of its last letter: a byte-level one begins with the space before a word.
            inner = [] if last is None else np.searchsorted(last, starts[1:], side="right").tolist()
            for start, stop in _between([0, *inner, length]):
                windows += [(first + at, size, sentence) for at, size in equal_parts(start, stop, self.window)]
                sentence += 1
            first += length
        found = np.array(windows, dtype=np.int64).reshape(-1, 3)
        return found[:, 0], found[:, 1], found[:, 2]


def _between(places: list[int]) -> Iterator[tuple[int, int]]:
    """What lies between two places, where there is something."""
    return ((start, stop) for start, stop in pairwise(places) if stop > start)


def equal_parts(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    """Start and size of as few parts as hold at most so many each, as equal as can be.

    Assumption: the paper cuts a sentence of more than 128 pieces off; here every piece gets a voken.

    >>> equal_parts(10, 17, most=3)
    [(10, 3), (13, 2), (15, 2)]
    """
    count = -(-(stop - start) // most)
    size, larger = divmod(stop - start, count)
    return [(start + part * size + min(part, larger), size + (part < larger)) for part in range(count)]
