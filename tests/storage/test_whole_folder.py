"""A folder as a whole or not at all; who writes it writes alone. Kills: `retrieval/test_retriever_folder.py`."""

import ctypes
import errno
import os
from pathlib import Path

import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage import whole_folder
from visual_grounding.storage.whole_folder import write_folder


def writing(content: str):
    return lambda folder: [(folder / name).write_text(content) for name in ("a", "b")]


def content_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_second_writer_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write(folder: Path) -> None:
        (folder / "a").write_text("first")
        with pytest.raises(
            InputError, match=r"out\.being-written is being written by another process\. Wait"
        ) as refused:
            write_folder(out, writing("second"), lambda _: ())
        assert refused.value.choices == ("out",)
        (folder / "b").write_text("first")

    write_folder(out, write, lambda _: ())
    assert content_of(out) == {"a": "first", "b": "first"}
    write_folder(out, writing("third"), lambda _: ())
    assert content_of(out) == {"a": "third", "b": "third"} and os.listdir(tmp_path) == ["out"]


def test_what_a_killed_writer_left_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / "out.being-written"
    (left / "folder").mkdir(parents=True)
    (left / "folder/file").write_text("half")
    (left / "old").write_text("half")
    (left / "link").symlink_to("old")
    write_folder(tmp_path / "out", writing("whole"), lambda _: ())
    assert content_of(tmp_path / "out") == {"a": "whole", "b": "whole"}


def test_folder_that_was_published_before_it_could_be_locked_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process renames the folder beside between its being made here and its being locked."""
    out, beside, lock = tmp_path / "out", tmp_path / "out.being-written", whole_folder.lock_folder
    times = []

    def lock_late(folder: Path) -> int:
        times.append(len(times))
        if len(times) == 1:  # gone before it is opened
            (beside / "a").write_text("other's")
            beside.rename(out)
            return lock(folder)
        handle = lock(folder)
        if len(times) == 2:  # and once more, after it
            beside.rename(tmp_path / "moved")
        return handle

    monkeypatch.setattr(whole_folder, "lock_folder", lock_late)
    write_folder(out, writing("ours"), lambda _: ())
    assert len(times) == 4 and content_of(out) == {"a": "ours", "b": "ours"}
    assert list((tmp_path / "moved").iterdir()) == []


def test_older_folder_of_the_next_writer_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one may have moved what was just written aside: its only other copy until its own is there."""
    monkeypatch.setattr(whole_folder, "_exchange", lambda one, other: False)
    out, older, sync = tmp_path / "out", tmp_path / "out.replaced", whole_folder.sync_folder
    write_folder(out, writing("first"), lambda _: ())

    def begin(folder: Path) -> None:
        if folder == tmp_path:
            for path in older.iterdir():
                path.unlink()
            older.rmdir()
            out.rename(older)
        sync(folder)

    monkeypatch.setattr(whole_folder, "sync_folder", begin)
    write_folder(out, writing("second"), lambda _: ())
    assert content_of(older) == {"a": "second", "b": "second"} and not out.exists()


def test_next_writer_keeps_its_folder_when_the_one_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may begin as soon as the folder beside was renamed, before the first process has finished."""
    out, beside, sync = tmp_path / "out", tmp_path / "out.being-written", whole_folder.sync_folder

    def begin(folder: Path) -> None:
        if folder == tmp_path:
            beside.mkdir()
            (beside / "of the next").write_text("x")
        sync(folder)

    monkeypatch.setattr(whole_folder, "sync_folder", begin)
    write_folder(out, writing("first"), lambda _: ())
    assert content_of(out) == {"a": "first", "b": "first"} and content_of(beside) == {"of the next": "x"}


def test_writer_that_fails_leaves_the_older_folder_and_nothing_beside(tmp_path: Path) -> None:
    write_folder(tmp_path / "out", writing("older"), lambda _: ())

    def fail(folder: Path) -> None:
        writing("half")(folder)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_folder(tmp_path / "out", fail, lambda _: ())
    assert content_of(tmp_path / "out") == {"a": "older", "b": "older"} and os.listdir(tmp_path) == ["out"]


def test_what_others_put_there_meanwhile_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_folder(out, writing("older"), lambda _: ())

    def write(folder: Path) -> None:
        writing("newer")(folder)
        (out / "log").write_text("theirs")

    write_folder(out, write, lambda _: ())
    assert content_of(out) == {"a": "newer", "b": "newer", "log": "theirs"} and os.listdir(tmp_path) == ["out"]


def test_ctrl_c_right_behind_the_exchange_leaves_the_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, exchange = tmp_path / "out", whole_folder._exchange
    write_folder(out, writing("older"), lambda _: ())

    def interrupted(one: Path, other: Path) -> bool:
        exchange(one, other)
        (one / "log").write_text("theirs")  # through the older folder
        raise KeyboardInterrupt

    monkeypatch.setattr(whole_folder, "_exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_folder(out, writing("newer"), lambda _: ())
    assert content_of(out) == {"a": "newer", "b": "newer", "log": "theirs"} and os.listdir(tmp_path) == ["out"]


def test_a_link_to_nowhere_doesnt_stand_in_the_way(tmp_path: Path) -> None:
    write_folder(tmp_path / "out", writing("older"), lambda _: ())
    (tmp_path / "out/notes").symlink_to(tmp_path / "nowhere")
    write_folder(tmp_path / "out", writing("newer"), lambda _: ("notes",))
    assert (tmp_path / "out/notes").is_symlink() and (tmp_path / "out/a").read_text() == "newer"


@pytest.mark.parametrize(("number", "raised"), [(errno.EINVAL, False), (errno.EACCES, True)])
def test_what_cannot_be_exchanged_here_is_told_from_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: bool
) -> None:
    """Some file systems can't; the folder is moved aside there instead."""

    class Library:
        def renameat2(self, *given: object) -> int:
            ctypes.set_errno(number)
            return -1

    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").touch()
    monkeypatch.setattr(ctypes, "CDLL", lambda *given, **named: Library())
    if raised:
        with pytest.raises((InputError, PermissionError), match=os.strerror(number)):
            write_folder(tmp_path / "out", writing("new"), lambda folder: [])
        assert content_of(tmp_path / "out") == {"old": ""}
    else:
        write_folder(tmp_path / "out", writing("new"), lambda folder: [])
        assert content_of(tmp_path / "out") == {"a": "new", "b": "new"}
