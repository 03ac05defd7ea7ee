"""Folders that are there as a whole or not at all: a model's, for instance, which other programs open by its name.

A folder is written beside its place. Where there is none yet it is renamed; where there is, the two change places by
one call of the kernel: killed at any moment, a command leaves the older folder or the new one, never a part of either
or of both. Where the kernel or the file system has no such call (Linux has, for local disks) the older one is moved
aside first: killed between these two renames, a command leaves none under the name, and the next run puts it back
before it begins. Who writes holds a lock on the folder and on that beside it, so that two commands don't write one.
"""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from ..errors import InputError
from .artefact import sync_folder

BESIDE = ".being-written"  # behind a folder's name; what continues lies under another: `artefact.PARTIAL`
REPLACED = ".replaced"  # behind the name of an older folder, while the new one takes its place
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of <fcntl.h> and <stdio.h>
# How the kernel says that folders can't change places here: no such call, a mount, a layer of a container.
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBUSY, errno.EXDEV, errno.EPERM)


def write_folder(
    folder: Path,
    write_files: Callable[[Path], None],
    stays: Callable[[Path], Collection[str]],
    otherwise: Callable[[Path, Path], None] | None = None,
) -> None:
    """Write a folder, or put it in the place of an older one.

    Args:
        folder: its place; a link is followed.
        write_files: writes everything into the folder that it is given.
        stays: names of what lies in the older folder and isn't of it, such as somebody's notes: they stay. It raises
            InputError where the folder holds something else.
        otherwise: where the two can't change places, and where one came meanwhile, brings what lies in the first, that
            beside, into the second; by default the older one is moved aside.

    Raises:
        InputError: the folder holds something else, can't be written, or is being written by another process.
    """
    place, beside = beside_of(folder, ""), beside_of(folder, BESIDE)
    older = None if otherwise else beside_of(folder, REPLACED)
    try:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # a file
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
        lock, done, bringing, before, moved = _lock(beside), False, False, None, beside
        try:
            _restore(place, older)
            there: set[str] = set()
            if place.exists():
                before = lock_folder(place)
                there = set(os.listdir(place))
                shutil.copystat(place, beside)
            kept = set(stays(place)) if there else set()
            if older is not None:
                shutil.rmtree(older, ignore_errors=True)
            _empty(beside)
            if kept:
                shutil.copytree(
                    place,
                    beside,
                    symlinks=True,
                    ignore=lambda here, names: _but(kept, names) if Path(here) == place else (),
                    dirs_exist_ok=True,
                )
            write_files(beside)
            _flush(beside)
            if before is None and not place.exists():
                beside.rename(place)
            elif before is not None and _exchange(beside, place):
                pass
            elif otherwise is not None:
                bringing = True  # interrupted, the folder beside stays and tells so
                otherwise(beside, place)
                shutil.rmtree(beside, ignore_errors=True)
            elif older is not None:
                moved = older
                place.rename(older)
                beside.rename(place)
            done = True  # from here on the names beside may be another process's
            sync_folder(place.parent)
        finally:
            try:
                if not done and not _is_open_as(place, lock):  # Ctrl-C may come right behind the call
                    _restore(place, older)
                    if not bringing:
                        shutil.rmtree(beside, ignore_errors=True)
                elif before is not None:
                    with suppress(FileNotFoundError):  # the next writer removed it
                        if os.path.samestat(moved.stat(), os.fstat(before)):
                            _take_over(set(os.listdir(moved)) - there, moved, place)
                            shutil.rmtree(moved, ignore_errors=True)
            finally:
                os.close(lock)
                if before is not None:
                    os.close(before)
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}.") from error


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


def _lock(beside: Path) -> int:
    """Make the folder beside, or take the one that a killed run left, and lock it; returns its handle."""
    while True:
        beside.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # another process put it in its place just now
            handle = lock_folder(beside)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), beside.stat()):
                    return handle
            os.close(handle)


def _empty(folder: Path) -> None:
    """Remove what lies in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def beside_of(folder: Path, suffix: str) -> Path:
    """A name beside a folder, or beside that which it is a link to."""
    return Path(os.path.realpath(folder) + suffix)


def _restore(place: Path, older: Path | None) -> None:
    """Put the older folder back where it was moved aside and none came in its place."""
    if older is not None and older.exists() and not place.exists():
        older.rename(place)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places at once; whether that can be done here.

    Raises:
        OSError: it can, but not with these.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    if library.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number))


def _is_open_as(place: Path, handle: int) -> bool:
    """Whether a name is that of an open folder."""
    try:
        return os.path.samestat(place.stat(), os.fstat(handle))
    except OSError:
        return False


def _take_over(names: Collection[str], older: Path, place: Path) -> None:
    """Take over what others put into the older folder while the new one was being written."""
    for name in names:
        if not (place / name).exists():
            (older / name).rename(place / name)


def _but(kept: Collection[str], names: Collection[str]) -> list[str]:
    return [name for name in names if name not in kept]


def _flush(folder: Path) -> None:
    """Bring everything in a folder to disk, before its name says that it is whole."""
    for path in folder.rglob("*"):
        if path.is_symlink():  # somebody else's, to anywhere
            continue
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        elif path.is_dir():
            sync_folder(path)
    sync_folder(folder)
