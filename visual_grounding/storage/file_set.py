"""Files that a command writes into a folder together: all of one run, or all of the run before."""

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

from ..errors import InputError
from .artefact import kind_of, named_kind_of, sync_folder
from .whole_folder import BESIDE, beside_of, lock_folder, write_folder

_BESIDE_FILE = ".tmp"


def write_file_set(
    folder: Path,
    files: Mapping[str, Callable[[Path], object]],
    last: str,
    instead_of: Sequence[str] = (),
    beside: Callable[[], Collection[str]] = tuple,
) -> None:
    """Write files of a folder, which may hold others: they stay, and the caller says what they are.

    A folder that holds nothing else is replaced as a whole (`write_folder`): whenever the process is killed, its files
    are of the older run or of this one. One that has to stay the same, as other things lie in it, or it is a mount,
    somebody else's, or the working directory, gets files that are written beside their places: then `last` is taken
    away, the others are renamed into place, and `last` after them. So there too, where it is, all files are of one run,
    and a rerun writes them anew.

    Args:
        files: name -> what writes it to the path that it is given, whose name may be another; called one by one.
        last: the file that readers can't do without.
        instead_of: names, or patterns (`numbered`), of what an earlier run may have left beside `last`: it
            goes, where it isn't written anew.
        beside: names of those of earlier runs that this one adds to, so that the folder is whole with them. It is also
            asked while the folder is locked.

    Raises:
        InputError: another process writes this folder, or it can't be written.
    """
    place = beside_of(folder, "")

    def write(new: Path) -> None:
        for name, to in files.items():
            to(new / name)
        for name in set(beside()).difference(files):
            _link_or_copy(place / name, new / name)

    def bring(new: Path, place: Path) -> None:
        _bring({name: new / name for name in files}, place, last, instead_of)

    try:
        if _can_be_replaced(place, [*files, *instead_of, *map(escape, beside())]):
            write_folder(folder, write, lambda _: (), otherwise=bring)
        else:
            _write_one_by_one(folder, files, last, instead_of)
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}.") from error


def numbered(name: str) -> list[str]:
    """Patterns of a file's names, with a number in the place of `{}`, and of no others.

    >>> numbered("line-{}.png")[:2]
    ['line-[0-9].png', 'line-[0-9][0-9].png']
    """
    return [name.format("[0-9]" * digits) for digits in range(1, 13)]


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


def check_place(folder: Path, files: Collection[str], last: str, sign: str, format: str = "") -> None:
    """Refuse to write over what another command made, or somebody has there under the same names.

    Args:
        files: names that will be written.
        last: as of `write_file_set`; with `sign`, it says that an earlier run of the same command was here.
        sign: a file that each run leaves.
        format: of the artefact that the command makes; empty for none.

    Raises:
        InputError: the folder is another artefact, or has one of `files` from elsewhere.
    """
    wanted = f"{folder} should be new, or of an earlier run of this command, but"
    if kind := kind_of(folder):
        if kind == format:
            return
        raise InputError(f"{wanted} holds {named_kind_of(folder)}. Choose another folder.", "out")
    interrupted = (folder / f"{last}{_BESIDE_FILE}").exists() or beside_of(folder, BESIDE).exists()
    if interrupted or all((folder / name).is_file() for name in (sign, last)):
        return
    there = sorted(name for name in files if (folder / name).exists())
    if there:
        raise InputError(
            f"{wanted} has {', '.join(there[:3])}{' and others' if len(there) > 3 else ''} from elsewhere, which would "
            "be written over. Choose another folder, or take them away first.",
            "out",
        )


def _can_be_replaced(place: Path, own: Sequence[str]) -> bool:
    """Whether nothing is lost when another folder takes this one's name: it is ours, and nothing else lies in it.

    Args:
        own: names, or patterns, of what may lie in it.
    """
    if not place.is_dir():
        return True
    status = place.stat()
    with suppress(FileNotFoundError):  # where this process stands was removed
        if Path.cwd().is_relative_to(place):
            return False
    return (
        os.access(place.parent, os.R_OK | os.W_OK | os.X_OK)
        and (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
        and not place.is_mount()
        and all(_is_own(path, own) for path in place.iterdir())
    )


def _is_own(path: Path, own: Sequence[str]) -> bool:
    return path.is_file() and not path.is_symlink() and any(fnmatchcase(path.name, name) for name in own)


def _link_or_copy(path: Path, to: Path) -> None:
    """The same file under another name; where the file system has no such links, a copy."""
    try:
        os.link(path, to)
    except OSError:
        shutil.copy2(path, to)


def _write_one_by_one(
    folder: Path, files: Mapping[str, Callable[[Path], object]], last: str, instead_of: Sequence[str]
) -> None:
    lock = lock_folder(folder)
    beside = {name: folder / f"{name}{_BESIDE_FILE}" for name in files}
    try:
        try:
            for name, write in files.items():
                write(beside[name])
                _flush(beside[name])
        except BaseException:
            for path in beside.values():
                path.unlink(missing_ok=True)
            raise
        _bring(beside, folder, last, instead_of)  # interrupted, what is left tells `check_place` so
    finally:
        os.close(lock)


def _bring(written: Mapping[str, Path], place: Path, last: str, instead_of: Sequence[str]) -> None:
    """Rename files into place, where `last` isn't there meanwhile."""
    (place / last).unlink(missing_ok=True)
    for path in [path for pattern in instead_of for path in place.glob(pattern)]:
        if path.name not in written and path not in written.values():
            path.unlink()
    for name in sorted(written, key=lambda name: name == last):
        written[name].replace(place / name)
    sync_folder(place)


def _flush(path: Path) -> None:
    """Bring a file to disk, before its name says that it is whole."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
