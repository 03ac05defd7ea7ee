"""Files written together: each whole, one of them only with all others, whenever the process is killed."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.file_set import write_file_set


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def test_each_file_is_written_beside_its_place_in_order(tmp_path):
    write_file_set(tmp_path, {"last": text("old"), "one": text("old")}, last="last")
    seen = []

    def look(path: Path) -> None:
        path.write_bytes(b"new")
        seen.append(contents(tmp_path))

    write_file_set(tmp_path, {"last": look, "one": look}, last="last")
    old = {"last": "old", "one": "old"}
    assert seen == [{**old, "last.tmp": "new"}, {**old, "last.tmp": "new", "one.tmp": "new"}]
    assert contents(tmp_path) == {"last": "new", "one": "new"}


KILLED = """
import os, signal, sys
from pathlib import Path
from visual_grounding.storage.file_set import write_file_set

renames, step = 0, int(sys.argv[2])
replace = Path.replace
def count(self, target):
    global renames
    if renames == step:
        os.kill(os.getpid(), signal.SIGKILL)
    renames += 1
    return replace(self, target)
Path.replace = count
files = dict.fromkeys(("last", "one", "two"), lambda path: path.write_text("new"))
write_file_set(Path(sys.argv[1]), files, last="last")
"""


@pytest.mark.parametrize("step", [0, 1, 2])
def test_where_the_last_file_is_all_are_of_one_run_whenever_it_is_killed(tmp_path, step):
    write_file_set(tmp_path, dict.fromkeys(("last", "one", "two"), text("old")), last="last")
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path, str(step)])
    assert killed.returncode == -signal.SIGKILL
    found = {name: text for name, text in contents(tmp_path).items() if not name.endswith(".tmp")}
    assert found == {name: "new" if place < step else "old" for place, name in enumerate(("one", "two"))}
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path, "9"])
    assert done.returncode == 0
    assert contents(tmp_path) == dict.fromkeys(("last", "one", "two"), "new")


def test_what_an_earlier_run_left_goes_where_it_is_named(tmp_path):
    old = {name: text("old") for name in ("last", "line-1.png", "line-2.png", "line-3.txt")}
    write_file_set(tmp_path, old, last="last")
    write_file_set(tmp_path, {"last": text("new"), "line-2.png": text("new")}, "last", ["line-*.png", "nothing"])
    assert contents(tmp_path) == {"last": "new", "line-2.png": "new", "line-3.txt": "old"}


def test_a_second_writer_is_refused(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(InputError, match=f"{tmp_path} is being written by another process. Wait for it, or choose"):
        write_file_set(tmp_path, {"last": text("")}, last="last")
    os.close(handle)
    write_file_set(tmp_path, {"last": text("")}, last="last")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/out can't be written: Not a directory"):
        write_file_set(tmp_path / "file/out", {"last": text("")}, last="last")
