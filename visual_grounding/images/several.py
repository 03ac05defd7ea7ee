"""Images of several sources, one source after the other."""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

from ..errors import InputError


class _Images(Protocol):
    keys: Sequence[str]
    digest: str

    def read(self, row: int) -> bytes:
        """The file's content."""


class SeveralSources:
    """See `ImageSource`.

    Args:
        sources: by what they are called in a message.

    Raises:
        InputError: a key is in two of them.
    """

    def __init__(self, sources: dict[str, _Images]) -> None:
        self._sources = list(sources.values())
        self._starts = list(accumulate((len(source.keys) for source in self._sources), initial=0))
        origin: dict[str, str] = {}
        for name, source in sources.items():
            for key in source.keys:
                other = origin.setdefault(key, name)
                if other != name:
                    raise InputError(
                        f"image keys should be unique in all {len(sources)} sources, but {key!r} is in {other} and in "
                        f"{name}. Give a folder that holds both: keys are paths relative to it."
                    )
        self.keys: Sequence[str] = [key for source in self._sources for key in source.keys]
        self.digest = hashlib.sha256("\n".join(source.digest for source in self._sources).encode()).hexdigest()
        notes = {name: getattr(source, "note", "") for name, source in sources.items()}
        self.note = " ".join(f"{name}: {note}" for name, note in notes.items() if note)

    def read(self, row: int) -> bytes:
        """The bytes of one image file."""
        place = bisect_right(self._starts, row) - 1
        return self._sources[place].read(row - self._starts[place])
