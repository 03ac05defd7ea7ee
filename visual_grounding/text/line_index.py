"""Single lines of a long text file, without keeping it in memory: keys of images that were found."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..storage.outside import open_file

_BLOCK = 1 << 22  # bytes read at a time


class LineIndex:
    """Random access to the lines of a UTF-8 file by number; it keeps 8 bytes a line in memory.

    Processes may share it: reading moves no position that others would see.

    Attributes:
        path: the file.
        sha256: digest of the file, which is read once.

    Raises:
        InputError: the file can't be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = self._open()
        digest = hashlib.sha256()
        ends = [np.array([-1])]
        position = 0
        while block := self._file.read(_BLOCK):
            ends.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + position)
            digest.update(block)
            position += len(block)
        self._ends = np.concatenate(ends)  # (lines + 1,) where the line before each one ends
        self.sha256 = digest.hexdigest()

    def _open(self) -> Any:
        try:
            return open_file(self.path)  # lives as long as the index: see `__del__`
        except OSError as error:
            raise InputError(f"{self.path} can't be read: {error.strerror or error}.") from error

    def __del__(self) -> None:
        file = self.__dict__.get("_file")  # there is none where the file couldn't be opened
        if file is not None:
            file.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_file"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self._file = self._open()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        start, end = int(self._ends[number]) + 1, int(self._ends[number + 1])
        return os.pread(self._file.fileno(), end - start, start).decode("utf-8")
