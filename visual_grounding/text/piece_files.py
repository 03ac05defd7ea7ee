"""Files of text to files of a tokenizer's pieces, line by line."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ..storage.lines import iterate_lines
from .tokenizer_bridge import BOS, EOS, TokenizerBridge
from .words import PAD, UNKNOWN

_LINES = 1000  # given to the tokenizer at a time


@dataclass
class PieceFile:
    """A text file's pieces; the counts are right once all lines were taken.

    Attributes:
        source: the text.
        lines: of the text.
        pieces: in all lines, those cut off left out.
        unknown: how many of them are `<unk>`.
        longest: pieces of the longest line before any was cut.
        too_long: lines with more pieces than fit between the encoder's special symbols.
        cut: lines that were cut.
        special: lines in whose middle the text names the tokenizer's own `<s>`, `<pad>` or `</s>`.
        sha256: of the text's lines.
    """

    source: Path
    lines: int = 0
    pieces: int = 0
    unknown: int = 0
    longest: int = 0
    too_long: int = 0
    cut: int = 0
    special: int = 0
    sha256: str = field(default="")

    def cut_lines(
        self, bridge: TokenizerBridge, max_pieces: int | None, taken: Callable[[int], object]
    ) -> Iterator[str]:
        """Each line's pieces, joined by spaces; an empty line stays one.

        Args:
            max_pieces: pieces of a line that are kept; None for all.
            taken: is told how many lines were read.

        Raises:
            InputError: as `iterate_lines`.
        """
        digest = hashlib.sha256()
        lines = iterate_lines(self.source)
        while texts := list(islice(lines, _LINES)):
            for text, numbers in zip(texts, bridge.numbers_of(texts)):
                digest.update(text.encode("utf-8") + b"\n")
                self.lines += 1
                self.longest = max(self.longest, len(numbers))
                self.too_long += len(numbers) > bridge.max_pieces
                self.cut += max_pieces is not None and len(numbers) > max_pieces
                numbers = numbers[:max_pieces]
                self.pieces += len(numbers)
                self.unknown += numbers.count(UNKNOWN)
                self.special += not {BOS, PAD, EOS}.isdisjoint(numbers)
                yield bridge.line_of(numbers)
            taken(len(texts))
        self.sha256 = digest.hexdigest()
