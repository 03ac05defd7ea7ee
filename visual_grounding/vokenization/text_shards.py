"""Files of text, cut into what is done between two save points."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import check_at_least_one
from ..storage.lines import STANDARD_INPUT, iterate_lines

SHARD_LINES = 8192
SHARD_LETTERS = 2**20  # one line may have more


class Shard(NamedTuple):
    """Lines between two save points."""

    number: int
    lines: list[str]
    sha256: str


class TextReader:
    """Lines of several files, one after the other, cut into shards; read once.

    Args:
        paths: UTF-8, also .gz and .zst; `-` is standard input.
        shard_lines: lines of a shard, at most.

    Attributes:
        lines: read so far.
        letters: likewise.
    """

    def __init__(self, paths: Sequence[Path], shard_lines: int = SHARD_LINES) -> None:
        check_at_least_one(shard_lines=shard_lines)
        self.paths = list(paths)
        self.shard_lines = shard_lines
        self.lines = self.letters = 0
        self._digest = hashlib.sha256()

    def check_there(self) -> None:
        """Open every file once, before hours go into the first of them.

        Raises:
            InputError: as `iterate_lines`, for the first line of each.
        """
        for path in self.paths:
            piped = path.exists() and not path.is_file() and not path.is_dir()  # its first line would be gone
            if path != STANDARD_INPUT and not piped:
                next(iterate_lines(path), None)

    @property
    def sha256(self) -> str:
        """Of the lines read so far, as `sha256_of_lines`."""
        return self._digest.hexdigest()

    def shards(self) -> Iterator[Shard]:
        """All shards, in order.

        Raises:
            InputError: as `iterate_lines`.
        """
        lines: list[str] = []
        number = letters = 0
        for path in self.paths:
            for line in iterate_lines(path):
                lines.append(line)
                letters += len(line)
                if len(lines) == self.shard_lines or letters >= SHARD_LETTERS:
                    yield self._shard(number, lines)
                    lines, letters, number = [], 0, number + 1
        if lines:
            yield self._shard(number, lines)

    def _shard(self, number: int, lines: list[str]) -> Shard:
        content = "".join(f"{line}\n" for line in lines).encode()
        self._digest.update(content)
        self.lines += len(lines)
        self.letters += sum(map(len, lines))
        return Shard(number, lines, hashlib.sha256(content).hexdigest())
