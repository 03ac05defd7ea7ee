"""Single lines of a long text file, without reading it whole: keys of images that were found."""

from pathlib import Path

import numpy as np

from ..errors import InputError

_BLOCK = 1 << 22  # bytes read at a time


class LineIndex:
    """Random access to the lines of a UTF-8 file by number; it keeps 8 bytes a line in memory.

    Raises:
        InputError: the file can't be read.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - lives as long as the index
        except OSError as error:
            raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
        ends = [np.array([-1])]
        position = 0
        while block := self._file.read(_BLOCK):
            ends.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + position)
            position += len(block)
        self._ends = np.concatenate(ends)  # (lines + 1,) where the line before each one ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        start, end = int(self._ends[number]) + 1, int(self._ends[number + 1])
        self._file.seek(start)
        return self._file.read(end - start).decode("utf-8")
