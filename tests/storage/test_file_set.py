"""Files written together: all of one run, or all of the run before, whenever the process is killed."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.file_set import check_place, numbered, write_file_set


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if path.is_file()}


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def test_files_are_written_in_order_beside_the_folder(tmp_path):
    out = tmp_path / "out"
    write_file_set(out, {"last": text("old"), "one": text("old")}, last="last")
    seen = []

    def look(path: Path) -> None:
        path.write_bytes(b"new")
        seen.append((contents(out), contents(path.parent)))

    write_file_set(out, {"last": look, "one": look}, last="last")
    old = {"last": "old", "one": "old"}
    assert seen == [(old, {"last": "new"}), (old, {"last": "new", "one": "new"})]
    assert contents(out) == {"last": "new", "one": "new"} and os.listdir(tmp_path) == ["out"]


def test_where_folders_lie_in_it_each_file_is_written_beside_its_place(tmp_path):
    """Somebody may be writing there, a training its checkpoints for instance."""
    (tmp_path / "checkpoints").mkdir()
    number = tmp_path.stat().st_ino
    write_file_set(tmp_path, {"last": text("old"), "one": text("old")}, last="last")
    seen = []

    def look(path: Path) -> None:
        path.write_bytes(b"new")
        seen.append(contents(tmp_path))

    write_file_set(tmp_path, {"last": look, "one": look}, last="last")
    old = {"last": "old", "one": "old"}
    assert seen == [{**old, "last.tmp": "new"}, {**old, "last.tmp": "new", "one.tmp": "new"}]
    assert contents(tmp_path) == {"last": "new", "one": "new"} and tmp_path.stat().st_ino == number


WHERE = ["in it", "on a mount", "beside what can't be written", "somebody's", "beside a file", "a link in it"]


@pytest.mark.parametrize("where", ["anywhere", *WHERE])
def test_folder_that_must_stay_the_same_does(tmp_path, monkeypatch, where):
    out = tmp_path / "out"
    out.mkdir()
    number = out.stat().st_ino
    (out / "last").write_text("old")
    if where == "beside a file":
        (out / "file").write_text("x")
    if where == "a link in it":
        (out / "last").unlink()
        (out / "last").symlink_to(tmp_path / "elsewhere")
    if where == "somebody's":
        monkeypatch.setattr(os, "geteuid", lambda: out.stat().st_uid + 1)
    if where == "in it":
        monkeypatch.chdir(out)
    if where == "on a mount":
        monkeypatch.setattr(Path, "is_mount", lambda path: path == out)
    if where == "beside what can't be written":  # asked of the kernel, as root may write everywhere
        monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    for name in ("out.partial", "out.replaced"):  # of what continues, and of an export
        (tmp_path / name).mkdir()
        (tmp_path / name / "work").write_text("")
    write_file_set(out, {"last": text("new")}, last="last")
    assert sorted(path.parent.name for path in tmp_path.rglob("work")) == ["out.partial", "out.replaced"]
    assert (out / "last").read_text() == "new" and (out.stat().st_ino == number) == (where != "anywhere")
    assert sorted(os.listdir(out)) == (["file", "last"] if where == "beside a file" else ["last"])
    assert not list(tmp_path.glob("*.being-written"))


KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from visual_grounding.storage import file_set, whole_folder

place, how = Path(sys.argv[1]), sys.argv[2]
names = ("last", "one", "two")

def write(content, left, kill_at=0):
    steps = 0
    def stepping(function):
        def step(*arguments, **options):
            nonlocal steps
            steps += 1
            if steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)
        return step
    for name in ("replace", "rename", "unlink", "rmdir", "mkdir", "link", "fsync"):
        setattr(os, name, stepping(getattr(os, name)))
    exchange = stepping(whole_folder._exchange)
    whole_folder._exchange = exchange if how in ("together", "added") else lambda one, other: False
    writers = {name: lambda path: path.write_text(content) for name in names}
    files = {**writers, **{name: writers["one"] for name in left}}
    if how == "a model":
        whole_folder.write_folder(place, lambda folder: [files[name](folder / name) for name in files], lambda _: ())
    else:
        file_set.write_file_set(place, files, "last", ["left-?"], lambda: ["kept"] if how == "added" else [])

for step in range(1, 1000):
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if how == "beside other things":
        (place / "folder").mkdir()
    if how == "added":
        (place / "kept").write_text("kept")
    write("old", ["left-1"])
    child = os.fork()
    if child == 0:
        write("new", [], step)
        os._exit(0)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = {path.name: path.read_text() for path in place.glob("*") if path.is_file()}
    write("new", [])
    after = {path.name: path.read_text() for path in place.parent.rglob("*") if path.is_file()}
    print(json.dumps([killed, found, after]))
    if not killed:
        break
"""


def killed_at_each_step(place: Path, how: str) -> list[tuple[int, dict[str, str], dict[str, str]]]:
    """Of an older run's files written anew and killed before each step: status, what is there, and after a rerun."""
    done = subprocess.run([sys.executable, "-c", KILLED, place, how], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


OLD = dict.fromkeys(("last", "one", "two", "left-1"), "old")
NEW = dict.fromkeys(("last", "one", "two"), "new")


def test_killed_at_any_step_all_files_are_of_the_older_run_or_of_the_new_one(tmp_path):
    *killed, whole = killed_at_each_step(tmp_path / "place/out", "together")
    assert whole[0] == 0 and all(status == -signal.SIGKILL for status, _, _ in killed)
    found = [there for _, there, _ in killed]
    order = [OLD, NEW]
    assert all(there in order for there in found) and found == sorted(found, key=order.index)
    assert OLD in found and NEW in found and len(found) > 8
    assert all(after == NEW for _, _, after in [*killed, whole])


def test_killed_at_any_step_files_that_are_added_to_stay(tmp_path):
    *killed, whole = killed_at_each_step(tmp_path / "place/out", "added")
    old, new = ({**files, "kept": "kept"} for files in (OLD, NEW))
    found = [there for _, there, _ in killed]
    assert whole[0] == 0 and all(there in (old, new) for there in found) and found.count(old) > 3 and new in found
    assert all(after == new for _, _, after in [*killed, whole])


@pytest.mark.parametrize("links", [True, False])
def test_files_that_are_added_to_go_over_into_the_new_folder(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", lambda path, to: os.stat(tmp_path / "nowhere"))
    out = tmp_path / "out"
    write_file_set(out, {"last": text("old"), "[one]": text("old")}, last="last")
    number = out.stat().st_ino
    write_file_set(out, {"last": text("new"), "two": text("new")}, last="last", beside=lambda: ["[one]"])
    assert contents(out) == {"last": "new", "[one]": "old", "two": "new"} and out.stat().st_ino != number
    (out / "somebody's").write_text("x")
    number = out.stat().st_ino
    write_file_set(out, {"last": text("newer")}, last="last", beside=lambda: ["[one]", "two"])
    assert contents(out) == {"last": "newer", "[one]": "old", "two": "new", "somebody's": "x"}
    assert out.stat().st_ino == number and os.listdir(tmp_path) == ["out"]


def test_where_folders_cannot_change_places_a_model_may_be_gone_for_a_moment(tmp_path):
    *killed, whole = killed_at_each_step(tmp_path / "place/out", "a model")
    found = [there for _, there, _ in killed]
    order: list[dict[str, str]] = [OLD, {}, NEW]
    assert whole[0] == 0 and found.count({}) == 1 and found == sorted(found, key=order.index)
    assert all(after == NEW for _, _, after in [*killed, whole])


@pytest.mark.parametrize("how", ["beside other things", "where folders cannot change places"])
def test_one_by_one_all_files_are_of_one_run_where_the_last_is(tmp_path, how):
    *killed, whole = killed_at_each_step(tmp_path / "place/out", how)
    found = [{name: text for name, text in there.items() if not name.endswith(".tmp")} for _, there, _ in killed]
    assert whole[0] == 0 and len(found) > 8
    assert {there["last"] for there in found if "last" in there} == {"old", "new"}
    assert all(there in (OLD, NEW) for there in found if "last" in there)
    assert any("last" not in there for there in found)
    assert all(after == NEW for _, _, after in [*killed, whole])


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


def placed(folder: Path, *names: str, **meta: object) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    if meta:
        (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_what_others_made_or_have_there_is_not_written_over(tmp_path):
    def check(folder: Path) -> None:
        check_place(folder, ["meta.json", "one", "two", "three", "last"], "last", "meta.json", "pieces")

    check(tmp_path / "new")
    check(placed(tmp_path / "other names", "four"))
    check(placed(tmp_path / "own", "one", "last", "meta.json"))
    check(placed(tmp_path / "own, interrupted", "one", format="pieces"))
    check(placed(tmp_path / "interrupted", "one", "meta.json", "last.tmp"))
    placed(tmp_path / "aside.being-written", "last")
    check(placed(tmp_path / "aside", "one", "meta.json"))
    for name, files, meta, said in (
        (
            "a",
            ["one", "last"],
            {},
            "a should be new, or .* but has last, one from elsewhere, which",
        ),
        ("b", ["last", "one", "two", "three"], {}, "has last, one, three and others from elsewhere"),
        ("c", ["one", "last"], {"format": "vokens"}, "c should be new, .* but holds vokens. Choose another folder"),
        ("d", [], {"format": "averaged-checkpoint"}, "but holds an averaged checkpoint"),
        ("e", [], {"format": "somebody's"}, "but has meta.json from elsewhere"),
    ):
        with pytest.raises(InputError, match=said):
            check(placed(tmp_path / name, *files, **meta))


@pytest.mark.parametrize("how", ["beside other things", "where folders cannot change places"])
def test_interrupted_while_files_change_places_the_next_run_is_not_refused(tmp_path, monkeypatch, how):
    out = placed(tmp_path / "out", "mine.txt") if how == "beside other things" else tmp_path / "out"
    if how != "beside other things":
        monkeypatch.setattr("visual_grounding.storage.whole_folder._exchange", lambda beside, place: False)
    write_file_set(out, {"sign": text("old"), "last": text("old")}, "last")
    check_place(out, ["sign", "last"], "last", "sign")

    def stop(path: Path, to: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            write_file_set(out, {"sign": text("new"), "last": text("new")}, "last")
    assert (out / "sign").read_text() == "old" and not (out / "last").exists()
    check_place(out, ["sign", "last"], "last", "sign")
    write_file_set(out, {"sign": text("new"), "last": text("new")}, "last")
    assert [(out / name).read_text() for name in ("sign", "last")] == ["new", "new"]
    assert os.listdir(tmp_path) == ["out"]


def test_only_a_number_stands_in_the_place_of_a_number(tmp_path):
    out = placed(tmp_path / "out", "line-chart.png", "line-1.png", "line-10.png", "line-1b.png", "line-.png")
    write_file_set(out, {"line-2.png": text("new"), "page": text("new")}, "page", numbered("line-{}.png"))
    assert sorted(contents(out)) == ["line-.png", "line-1b.png", "line-2.png", "line-chart.png", "page"]
