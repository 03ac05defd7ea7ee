"""Who may write an output: one process, or all ranks of one job; never two jobs.

Every writer holds a lock on a file of its own, `OUT.partial/locks/rank-<number>`, as long as it lives. The kernel frees
the lock of a killed process, so none is ever stale, and a lock that is free tells the other ranks that its owner died.

The locks are `flock`. On NFS Linux passes them to the server, so they hold between machines, unless the share is
mounted with `nolock` or `local_lock`; then two machines don't see one another's locks. Where a file system has no locks
at all, a process by itself goes on with a warning, and several ranks are refused.

Why not `filelock`: it can only ask whether a lock is held by taking it, so of two that ask at once each takes the other
for a writer. Why not `torch.distributed`: no rank could begin, or be refused, before all have joined.
"""

import errno
import fcntl
import json
import os
import shutil
import socket
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from ..errors import InputError, warn
from .outside import read_json
from .ranks import Rank

LOCKS = "locks"
POLL_SECONDS = 0.2
START_SECONDS = 600.0  # for a rank that hasn't appeared yet: it may load its network from a slow disk
LEAVE_SECONDS = 120.0  # for ranks on other machines: NFS tells them of a new name after up to a minute
_TRIES = 1000
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Writers:
    """The writers of one output, and this process's place among them.

    Args:
        partial: the folder that the output grows in.
        rank: this process.

    Raises:
        InputError: another process or job writes this output.
        OSError: the folder can't be written.
    """

    _here: "weakref.WeakValueDictionary[tuple[Path, int], Writers]" = weakref.WeakValueDictionary()

    @classmethod
    def join(cls, partial: Path, rank: Rank) -> "Writers":
        """Become a writer; within a process, the same one again."""
        known = cls._here.get((partial.absolute(), os.getpid()))
        if known is not None and known.rank == rank and known.still_holds():
            return known
        writers = cls(partial, rank)
        cls._here[partial.absolute(), os.getpid()] = writers
        return writers

    def __init__(self, partial: Path, rank: Rank) -> None:
        self.partial = partial
        self.folder = partial / LOCKS
        self.rank = rank
        self._said_waiting = False
        with self.alone("gate"):
            self._refuse_others()
            self._claim()
        self._release = weakref.finalize(self, os.close, self._file)

    def still_holds(self) -> bool:
        """Whether the lock is held and its file is where others look for it."""
        return self._release.alive and _is_at(self._file, self._path(self.rank.number))

    def alone(self, name: str) -> AbstractContextManager[None]:
        """Let no other process into the same section meanwhile."""
        return _alone(self.folder, name)

    def _refuse_others(self) -> None:
        paths = sorted(self.folder.glob("rank-*"))
        alive = [path for path in paths if _is_locked(path)]
        for path in alive:
            owner = _read_owner(path)
            if owner.get("job") != self.rank.job or path == self._path(self.rank.number):
                raise _written_by_another(self.partial, path)
        if not alive:  # so that from now on a free lock is that of a rank of this job which died
            for path in paths:
                path.unlink()

    def _claim(self) -> None:
        path = self._path(self.rank.number)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _lock(self._file):
                self._warn_of_no_locks()
            self._owner: dict[str, object] = {"pid": os.getpid(), "host": socket.gethostname(), "job": self.rank.job}
            self.say()
        except BaseException:
            os.close(self._file)
            raise

    def say(self, **facts: object) -> None:
        """Tell the other ranks something, as long as this one lives; `heard` is what they ask.

        Args:
            facts: JSON-ready.
        """
        self._owner |= facts
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, (json.dumps(self._owner) + "\n").encode(), 0)

    def heard(self, fact: str) -> dict[int, object]:
        """What other ranks that are alive said of something, by their numbers; without those that haven't yet."""
        said = {number: _read_owner(self._path(number)) for number in self.others()}
        return {number: owner[fact] for number, owner in said.items() if fact in owner}

    def _warn_of_no_locks(self) -> None:
        where = f"{self.partial} is on a file system without file locks"
        if self.rank.world > 1:
            raise InputError(
                f"{where}, which several ranks need. Choose a folder on another one, or use one process.", "out"
            )
        warn(f"{where}; make sure that no other process writes it.")

    def _path(self, number: int) -> Path:
        return self.folder / f"rank-{number}"

    def others(self) -> set[int]:
        """Ranks of this job that are alive, without this one."""
        paths = [path for path in self.folder.glob("rank-*") if path != self._path(self.rank.number)]
        return {_number_of(path) for path in paths if _is_locked(path)}

    def wait_for(self, what: str, waiting_for: Callable[[], set[int]]) -> None:
        """Poll until no rank has anything left to do.

        Args:
            what: for the message on stderr.
            waiting_for: ranks that still have something to do.

        Raises:
            InputError: one of them died, or never appeared.
        """
        start = monotonic()
        while wanted := waiting_for():
            if not self._said_waiting:
                self._said_waiting = True
                print(f"rank {self.rank.number} waits for {_ranks(wanted)}.", file=sys.stderr)
            late = monotonic() - start > START_SECONDS
            with self.alone("gate"):  # who joins makes its file and locks it inside
                absent = {number for number in wanted - self.others() if late or self._path(number).exists()}
            absent &= waiting_for()  # it may have done its part, and left, since the first question
            if absent:
                why = f"hasn't started for {START_SECONDS:.0f} s" if late else "ended before that"
                raise InputError(
                    f"rank {self.rank.number} waited for {what} of {_ranks(absent)}, which {why}. What is done "
                    "stays: run the same command again."
                )
            sleep(POLL_SECONDS)

    def leave(self) -> None:
        """Give the lock back."""
        self._release()

    def clean(self, patience: float = 0.0) -> None:
        """Remove the folder of an output that is published, as soon as no other rank looks into it.

        Args:
            patience: seconds to wait for the others.
        """
        start = monotonic()
        with suppress(OSError):
            while self.others() and monotonic() - start < patience:
                sleep(POLL_SECONDS)
            with self.alone("gate"):
                self.leave()
                if patience or not self.others():
                    shutil.rmtree(self.partial, ignore_errors=True)


def refuse_if_written(partial: Path) -> None:
    """Refuse an output that a process is writing now.

    Raises:
        InputError: which process, and its lock.
    """
    for path in sorted((partial / LOCKS).glob("rank-*")):
        if _is_locked(path):
            raise _written_by_another(partial, path)


def _written_by_another(partial: Path, lock: Path) -> InputError:
    owner = _read_owner(lock)
    return InputError(
        f"{partial} is being written by another process: {owner.get('pid', 'unknown')} on host "
        f"{owner.get('host', 'unknown')} (it holds the lock {lock}). Wait until it has finished, stop "
        "it, or choose another folder.",
        "out",
    )


def remove_abandoned(partial: Path) -> None:
    """Remove what someone left who was killed between publishing and cleaning. A live writer's folder stays."""
    if partial.is_dir():
        with suppress(OSError), _alone(partial / LOCKS, "gate"):
            if not any(_is_locked(path) for path in (partial / LOCKS).glob("rank-*")):
                shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    file = _lock_in_place(folder, name)
    try:
        yield
    finally:
        os.close(file)


def _lock_in_place(folder: Path, name: str) -> int:
    """Lock a file that is still in its place afterwards: whoever publishes removes the whole folder."""
    tries = 0
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # removed in between; or it can't be made at all
            tries += 1
            if tries == _TRIES:
                raise
            continue
        try:
            _lock(file)
            if _is_at(file, folder / name):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _lock(file: int) -> bool:
    """Wait for a lock and take it; False where the file system has none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _is_locked(path: Path) -> bool:
    """Whether a writer holds its lock. The question shares the lock for a moment, so askers don't disturb askers."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one that its path names now."""
    try:
        here = os.stat(path)
    except OSError:
        return False
    opened = os.fstat(file)
    return (here.st_dev, here.st_ino) == (opened.st_dev, opened.st_ino)


def _read_owner(path: Path) -> dict[str, object]:
    try:
        owner = read_json(path)
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _number_of(path: Path) -> int:
    number = path.name.removeprefix("rank-")
    return int(number) if number.isdecimal() else -1


def _ranks(numbers: set[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}"
