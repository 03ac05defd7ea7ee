"""Folders that are there as a whole or not at all: a model's, for instance, which other programs open by its name.

A folder is written beside its place and renamed: killed at any moment, a command leaves the older folder or the new
one, never a part of either. An older one is moved aside for that, as a folder can't be renamed onto one that isn't
empty: killed between the two renames, it leaves none under the name. The next run puts it back before it begins. Who
writes holds a lock on the folder beside, so that two commands don't write one.
"""

import os
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from ..errors import InputError
from .artefact import PARTIAL, sync_folder
from .file_set import lock_folder

REPLACED = ".replaced"  # behind the name of an older folder, while the new one takes its place


def write_folder(folder: Path, write_files: Callable[[Path], None], stays: Callable[[Path], Collection[str]]) -> None:
    """Write a folder, or put it in the place of an older one.

    Args:
        folder: its place; a link is followed.
        write_files: writes everything into the folder that it is given.
        stays: names of what lies in the older folder and isn't of it, such as somebody's notes: they stay. It raises
            InputError where the folder holds something else.

    Raises:
        InputError: the folder holds something else, can't be written, or is being written by another process.
    """
    place, beside, older = (beside_of(folder, suffix) for suffix in ("", PARTIAL, REPLACED))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock, done, moved = _lock(beside), False, None
        try:
            _restore(place, older)
            kept = set(stays(place)) if place.exists() else set()
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
            if place.exists():
                place.rename(older)
                moved = older.stat()
            beside.rename(place)
            done = True  # from here on the names beside may be another process's
            sync_folder(place.parent)
        finally:
            try:
                if not done:
                    _restore(place, older)
                    shutil.rmtree(beside, ignore_errors=True)
                    shutil.rmtree(older, ignore_errors=True)
                elif moved is not None:
                    with suppress(FileNotFoundError):  # the next writer removed it
                        if os.path.samestat(older.stat(), moved):
                            shutil.rmtree(older, ignore_errors=True)
            finally:
                os.close(lock)
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}.") from error


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


def _restore(place: Path, older: Path) -> None:
    """Put the older folder back where it was moved aside and none came in its place."""
    if older.exists() and not place.exists():
        older.rename(place)


def _but(kept: Collection[str], names: Collection[str]) -> list[str]:
    return [name for name in names if name not in kept]


def _flush(folder: Path) -> None:
    """Bring everything in a folder to disk, before its name says that it is whole."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(folder)
