"""Folders of text files: each file whole, one of them only with all others, whenever the process is killed."""

import fcntl
import os
import signal
import subprocess
import sys
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


KILLED = """
import os, signal, sys
from pathlib import Path
from visual_grounding.storage.text_files import write_text_files

renames, step = 0, int(sys.argv[2])
replace = Path.replace
def count(self, target):
    global renames
    if renames == step:
        os.kill(os.getpid(), signal.SIGKILL)
    renames += 1
    return replace(self, target)
Path.replace = count
write_text_files(Path(sys.argv[1]), {"last": ["new"], "one": ["new"], "two": ["new"]}, last="last")
"""


@pytest.mark.parametrize("step", [0, 1, 2])
def test_where_the_last_file_is_all_are_of_one_run_whenever_it_is_killed(tmp_path, step):
    write_text_files(tmp_path, {name: ["old"] for name in ("last", "one", "two")}, last="last")
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path, str(step)])
    assert killed.returncode == -signal.SIGKILL
    found = {name: text for name, text in contents(tmp_path).items() if not name.endswith(".tmp")}
    assert found == {name: "new\n" if place < step else "old\n" for place, name in enumerate(("one", "two"))}
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path, "9"])
    assert done.returncode == 0
    assert contents(tmp_path) == dict.fromkeys(("last", "one", "two"), "new\n")


def test_a_second_writer_is_refused(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(InputError, match=f"{tmp_path} is being written by another process. Wait for it, or choose"):
        write_text_files(tmp_path, {"last": []}, last="last")
    os.close(handle)
    write_text_files(tmp_path, {"last": []}, last="last")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/out can't be written: Not a directory"):
        write_text_files(tmp_path / "file/out", {"last": []}, last="last")
