"""Folders of text files: lines with line feeds, all of them or none."""

from pathlib import Path

import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.text_files import write_text_files


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def test_files_are_written_with_line_feeds_and_other_files_stay(tmp_path):
    folder = tmp_path / "a/b"
    write_text_files(folder, {"one": ["ä", ""], "last": iter(["x"])}, last="last")
    assert contents(folder) == {"one": "ä\n\n", "last": "x\n"}
    (folder / "mine").write_text("kept")
    write_text_files(folder, {"one": [], "last": ["y"]}, last="last")
    assert contents(folder) == {"one": "", "last": "y\n", "mine": "kept"}
    assert b"\r" not in (folder / "last").read_bytes()


def test_a_failure_while_writing_changes_nothing(tmp_path):
    write_text_files(tmp_path, {"one": ["old"], "last": ["old"]}, last="last")

    def broken():
        yield "new"
        raise InputError("the text is broken")

    with pytest.raises(InputError, match="the text is broken"):
        write_text_files(tmp_path, {"one": ["new"], "last": broken()}, last="last")
    assert contents(tmp_path) == {"one": "old\n", "last": "old\n"}
