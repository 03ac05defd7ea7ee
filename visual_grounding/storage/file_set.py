"""Files that a command writes into a folder together: each whole, and one of them only there with all the others."""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError
from .artefact import sync_folder


def write_file_set(
    folder: Path, files: Mapping[str, Callable[[Path], object]], last: str, instead_of: Sequence[str] = ()
) -> None:
    """Write files of a folder, which may hold others: they stay, and the caller says what they are.

    All are written beside their places first. Then `last` is taken away, the others are renamed into place, and `last`
    after them: where it is, all files are of one run, whenever the process was killed. A rerun writes them anew.

    Args:
        files: name -> what writes it to the path that it is given, whose name is another; called one by one.
        last: the file that readers can't do without.
        instead_of: names, or patterns such as `line-*.png`, of what an earlier run may have left beside `last`: it
            goes, where it isn't written anew.

    Raises:
        InputError: another process writes this folder, or it can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            beside = {name: folder / f"{name}.tmp" for name in files}
            try:
                for name, write in files.items():
                    write(beside[name])
                    _flush(beside[name])
                (folder / last).unlink(missing_ok=True)
                for path in (path for pattern in instead_of for path in folder.glob(pattern)):
                    if path.name not in files:
                        path.unlink()
                for name in sorted(files, key=lambda name: name == last):
                    beside[name].replace(folder / name)
                sync_folder(folder)
            finally:
                for path in beside.values():
                    path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}.") from error


def check_finished(folder: Path, last: str) -> None:
    """Refuse to leave files of earlier runs as they are where `write_file_set` was interrupted: whose they are is lost.

    Raises:
        InputError: `last` isn't there.
    """
    if not (folder / last).is_file():
        raise InputError(
            f"{folder} should be whole before files are added to it, but has no {last}: a command that wrote there was "
            "interrupted, and files of two runs may lie in it. Delete that folder, or give all files together.",
            "out",
        )


def _flush(path: Path) -> None:
    """Bring a file to disk, before its name says that it is whole."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder's lock."""
    handle = lock_folder(folder)
    try:
        yield
    finally:
        os.close(handle)


def lock_folder(folder: Path) -> int:
    """Lock a folder, and return its handle: closed, or freed by the kernel when the process dies, it is free again.

    Where the file system has no locks there is none.

    Raises:
        InputError: another process has it.
        OSError: it can't be opened.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise InputError(
            f"{folder} is being written by another process. Wait for it, or choose another folder.", "out"
        ) from error
    except OSError:
        pass
    return handle
