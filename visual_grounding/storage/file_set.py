"""Files that a command writes into a folder together: all of one run, or all of the run before."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import InputError
from .artefact import sync_folder
from .whole_folder import beside_of, lock_folder, write_folder


def write_file_set(
    folder: Path, files: Mapping[str, Callable[[Path], object]], last: str, instead_of: Sequence[str] = ()
) -> None:
    """Write files of a folder, which may hold others: they stay, and the caller says what they are.

    The folder is replaced as a whole (`write_folder`): whenever the process is killed, its files are of the older run
    or of this one. Where that can't be, as folders lie in it that others may be writing, or it is a mount, or where
    the user stands, files are written beside their places: then `last` is taken away, the others are renamed into
    place, and `last` after them. So there too, where it is, all files are of one run, and a rerun writes them anew.

    Args:
        files: name -> what writes it to the path that it is given, whose name may be another; called one by one.
        last: the file that readers can't do without.
        instead_of: names, or patterns such as `line-*.png`, of what an earlier run may have left beside `last`: it
            goes, where it isn't written anew.

    Raises:
        InputError: another process writes this folder, or it can't be written.
    """

    def write(beside: Path) -> None:
        for name, to in files.items():
            to(beside / name)

    try:
        if _can_be_replaced(beside_of(folder, "")):
            write_folder(folder, write, lambda place: _others(place, files, instead_of))
        else:
            _write_one_by_one(folder, files, last, instead_of)
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


def _can_be_replaced(place: Path) -> bool:
    """Whether nothing is lost when another folder takes this one's name."""
    if not place.is_dir():
        return True
    here = Path(os.path.realpath(os.curdir))
    return (
        os.access(place.parent, os.W_OK | os.X_OK)
        and not place.is_mount()
        and not here.is_relative_to(place)
        and not any(path.is_dir() for path in place.iterdir())
    )


def _others(folder: Path, files: Mapping[str, object], instead_of: Sequence[str]) -> set[str]:
    """Names in a folder that are neither written nor of an earlier run."""
    earlier = {path.name for pattern in instead_of for path in folder.glob(pattern)}
    return set(os.listdir(folder)) - earlier - set(files) - {f"{name}.tmp" for name in files}


def _write_one_by_one(
    folder: Path, files: Mapping[str, Callable[[Path], object]], last: str, instead_of: Sequence[str]
) -> None:
    lock = lock_folder(folder)
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
        os.close(lock)


def _flush(path: Path) -> None:
    """Bring a file to disk, before its name says that it is whole."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
