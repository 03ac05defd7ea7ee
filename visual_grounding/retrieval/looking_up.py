"""Finders that first make something to look sentences up in, on disk: a table of topic words, vectors of captions."""

import fcntl
import multiprocessing
import os
import shutil
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ..errors import InputError
from ..storage.whole_folder import lock_folder
from .finder import Finder

_PREFIX = "visual-grounding-lookup-"


class Lookup(Protocol):
    """What sentences are looked up in; pickled by the names of its files."""

    @property
    def is_there(self) -> bool:
        """Whether the files that it reads exist."""


Table = TypeVar("Table", bound=Lookup)


class LookingUp(Finder, Generic[Table]):
    """A finder whose lookup table lies on disk.

    Where a table of image ids is written, it is in a folder beside it, else in a temporary one that goes away with the
    finder. Copies in other processes read the same files.
    """

    def __init__(self) -> None:
        self._table: Table | None = None

    @abstractmethod
    def build(self, folder: Path) -> Table:
        """The lookup table, with its files in a folder.

        Raises:
            InputError: what it is made of isn't sound.
        """

    @property
    def table(self) -> Table:
        """The lookup table; made in a temporary folder where it isn't there yet.

        Raises:
            InputError: as `build`, or the folder can't be written.
        """
        if self._table is None:
            try:
                _remove_abandoned(Path(tempfile.gettempdir()))
                folder, lock = _locked_folder()
                weakref.finalize(self, _remove, folder, os.getpid(), lock)
                self._table = self.build(folder)
                if multiprocessing.parent_process() is not None:  # such a process ends without cleaning up
                    shutil.rmtree(folder, ignore_errors=True)  # what is open stays readable
            except OSError as error:
                raise InputError(
                    f"{tempfile.gettempdir()} can't be written: {error.strerror or error}. TMPDIR may name another "
                    f"folder for what method {self.method} looks sentences up in."
                ) from error
        return self._table

    def make_shared(self) -> None:
        """Make the lookup table.

        Raises:
            InputError: as `table`.
        """
        _ = self.table

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": self.table}  # made once, for all processes

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        if not state["_table"].is_there:
            self._table = None

    @contextmanager
    def working_in(self, folder: Path) -> Iterator[None]:
        """Keep the lookup table in a folder, and remove it in the end.

        Raises:
            InputError: as `build`, or something can't be written.
        """
        try:
            shutil.rmtree(folder, ignore_errors=True)  # left by a run that was killed
            folder.mkdir()
            self._table = self.build(folder)
            yield
        except OSError as error:
            raise InputError(
                f"{folder.parent} can't be written: {error.strerror or error}. What is done stays; rerun."
            ) from error
        finally:
            self._table = None
            shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, process: int, lock: int) -> None:
    """Unless this is a copy by fork: the folder belongs to the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder() -> tuple[Path, int]:
    """A temporary folder that has its name as soon as it is locked, and the lock's handle."""
    made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    lock = lock_folder(made)
    return made.rename(made.with_name(made.name.removeprefix("."))), lock


def _remove_abandoned(place: Path) -> None:
    """Remove folders of processes that were killed: nobody holds their locks. Without locks all might be in use."""
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
