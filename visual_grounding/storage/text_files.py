"""Folders of text files that a command writes: each file whole, and one of them only there with all the others."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from .file_set import write_file_set


def write_text_files(folder: Path, files: dict[str, Iterable[str]], last: str) -> None:
    """Write lines into files of a folder, as `write_file_set` does.

    Args:
        files: name -> lines without their line ends, read one by one, file after file.
        last: the file that readers can't do without.

    Raises:
        InputError: another process writes this folder, or it can't be written.
    """
    write_file_set(folder, {name: partial(_write, lines=lines) for name, lines in files.items()}, last)


def _write(path: Path, lines: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
