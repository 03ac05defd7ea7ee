"""Folders of text files that a command writes: each file whole, and one of them only there with all the others."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

from .file_set import write_file_set


def write_text_files(
    folder: Path,
    files: dict[str, Iterable[str]],
    last: str,
    instead_of: Sequence[str] = (),
    beside: Callable[[], Collection[str]] = tuple,
) -> None:
    """Write lines into files of a folder, as `write_file_set` does.

    Args:
        files: name -> lines without their line ends, read one by one, file after file.
        last: the file that readers can't do without.
        instead_of, beside: as of `write_file_set`.

    Raises:
        InputError: another process writes this folder, or it can't be written.
    """
    writers = {name: partial(write_lines, lines=lines) for name, lines in files.items()}
    write_file_set(folder, writers, last, instead_of, beside)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, given without their ends, as a file."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
