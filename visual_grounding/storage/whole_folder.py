"""Folders that are there as a whole or not at all: a model's, for instance, which other programs open by its name.

A folder is written beside its place and renamed: killed at any moment, a command leaves the older folder or the new
one, never a part of either. An older one is moved aside for that, as a folder can't be renamed onto one that isn't
empty: killed between the two renames, it leaves none under the name. The next run puts it back before it begins.
"""

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from ..errors import InputError
from .artefact import PARTIAL, sync_folder

REPLACED = ".replaced"  # behind the name of an older folder, while the new one takes its place


def write_folder(folder: Path, write_files: Callable[[Path], None], stays: Callable[[Path], Collection[str]]) -> None:
    """Write a folder, or put it in the place of an older one.

    Args:
        folder: its place; a link is followed.
        write_files: writes everything into the folder that it is given.
        stays: names of what lies in the older folder and isn't of it, such as somebody's notes: they stay. It raises
            InputError where the folder holds something else.

    Raises:
        InputError: the folder holds something else, or can't be written.
    """
    place, beside, older = (beside_of(folder, suffix) for suffix in ("", PARTIAL, REPLACED))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _restore(place, older)
        kept = set(stays(place)) if place.exists() else set()
        for left in (beside, older):
            if left.exists():
                shutil.rmtree(left)
        if kept:
            shutil.copytree(
                place,
                beside,
                symlinks=True,
                ignore=lambda here, names: _but(kept, names) if Path(here) == place else (),
            )
        beside.mkdir(exist_ok=True)
        write_files(beside)
        _flush(beside)
        if place.exists():
            place.rename(older)
        beside.rename(place)
        sync_folder(place.parent)
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}.") from error
    finally:
        _restore(place, older)
        for left in (beside, older):
            shutil.rmtree(left, ignore_errors=True)


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
