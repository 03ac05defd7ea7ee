"""The guard: plain files are read, pipes and devices refused at once, a library's errors told in a line."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage import outside
from visual_grounding.storage.outside import (
    check_archive,
    check_file,
    check_other_files,
    load_array,
    open_file,
    open_text,
    parse_json,
    read_bytes,
    read_json,
    reading,
    walk_folder,
)

READERS = (open_file, open_text, read_bytes, read_json, load_array)


@pytest.mark.parametrize("read", READERS)
def test_pipes_and_devices_are_refused_before_they_are_opened(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="is a pipe or a device, not a file"):
            read(tmp_path / name)


@pytest.mark.parametrize("read", READERS)
def test_what_isnt_there_is_left_to_the_system(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


def test_text_may_come_out_of_a_pipe_or_of_nothing_but_out_of_no_other_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_file(tmp_path / "pipe", pipes=True)
    check_file("/dev/null", pipes=True)
    with pytest.raises(OSError, match="is a pipe or a device"):
        check_file("/dev/zero", pipes=True)
    with pytest.raises(OSError, match="is a pipe or a device"):
        check_file("/dev/null")
    reader, writer = os.pipe()
    os.write(writer, b"out of the shell")
    os.close(writer)
    with open_file(f"/dev/fd/{reader}", pipes=True) as file:  # as <(zcat …) is
        assert file.read() == b"out of the shell"
    os.close(reader)


def test_nul_in_a_name_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is no name of a file") as caught:
        check_file(f"{tmp_path}/a\0b")
    assert caught.value.errno == errno.EINVAL


def test_plain_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_bytes('{"a": ["é"]}\n'.encode())
    assert read_json(tmp_path / "f.json") == {"a": ["é"]}
    assert read_bytes(tmp_path / "f.json") == '{"a": ["é"]}\n'.encode()
    with open_text(tmp_path / "f.json") as file:
        assert file.read() == '{"a": ["é"]}\n'
    np.save(tmp_path / "a.npy", np.arange(3))
    assert load_array(tmp_path / "a.npy").tolist() == [0, 1, 2]
    assert isinstance(load_array(tmp_path / "a.npy", mapped=True), np.memmap)


def test_json_that_nests_too_deeply_and_python_objects_are_no_values(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("[" * 10**6)
    with pytest.raises(ValueError, match="it nests too deeply"):
        read_json(tmp_path / "deep")
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_array(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("x"), r"v should be vectors, but can't be read: 'x'\. Make them again\."),
        (PermissionError(13, "Permission denied"), r"v should be vectors, but can't be read: Permission denied\. Make"),
        (FileNotFoundError(2, "No such file"), r"v should be vectors, but isn't there\. Make them again\."),
        (InputError("v has no rows."), r"^v has no rows\.$"),
    ],
)
def test_any_error_of_a_library_becomes_one_line(tmp_path: Path, error: Exception, said: str) -> None:
    with pytest.raises(InputError, match=said), reading(tmp_path / "v", "vectors", "Make them again."):
        raise error


def test_json_with_half_a_character_is_no_text(tmp_path: Path) -> None:
    for text in ('["\\ud83d"]', '{"\\uDE00": 1}', '["\\ude00\\ud83d"]', '[["a", {"b": "x\\udc00"}]]'):
        with pytest.raises(ValueError, match="it has half a character"):
            parse_json(text)
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ValueError, match="it has half a character"):
            read_json(tmp_path / "a.json")
    assert parse_json('["\\ud83d\\ude00", "\\u00fc", "\\\\ud83d"]') == ["\U0001f600", "ü", "\\ud83d"]


def test_a_pipe_is_told_of_with_what_was_wanted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    said = r"pipe should be vectors, but can't be read: is a pipe or a device, not a file"
    with pytest.raises(InputError, match=said), reading(tmp_path / "pipe", "vectors"):
        pytest.fail("it should not get there")


def test_json_with_a_number_that_no_float_holds_is_refused() -> None:
    assert parse_json("[1e5, -12, 123456789012345678901234567890]")[2] == 123456789012345678901234567890
    with pytest.raises(ValueError, match="it has a number of 400 digits"):
        parse_json('{"recall": ' + "9" * 400 + "}")


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(10**5), y=np.zeros(10))
    with np.load(tmp_path / "a.npz") as arrays:
        check_archive(arrays)
        monkeypatch.setattr(outside, "_MOST_UNPACKED", 800_000)
        with pytest.raises(ValueError, match=r"its arrays take \d+ bytes, more than 800000"):
            check_archive(arrays)


def test_pipes_and_what_isnt_there_are_never_one_file_for_two_splits(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    os.link(tmp_path / "a", tmp_path / "same")
    check_other_files({"train": [tmp_path / "a", tmp_path / "a"], "valid": [tmp_path / "b"], "test": [tmp_path / "no"]})
    with pytest.raises(InputError, match=r"^valid should have another file than train, but .*same is given for both u"):
        check_other_files({"train": [tmp_path / "b", tmp_path / "a"], "valid": [tmp_path / "same"]})


def test_folders_that_are_links_are_walked_once(tmp_path: Path) -> None:
    for name in ("photos/own", "elsewhere/deep", "photos/.hidden"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x").touch()
    (tmp_path / "photos/a").symlink_to("own")  # walked by its own name
    (tmp_path / "photos/more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos/other").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos/own/up").symlink_to(tmp_path / "photos")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path)
    (tmp_path / "elsewhere/again").symlink_to("deep")
    found = sorted(os.path.relpath(os.path.join(parent, name), tmp_path)
                   for parent, names in walk_folder(tmp_path / "photos") for name in names)  # fmt: skip
    assert found == ["photos/more/deep/x", "photos/own/x"]


def test_a_folder_that_cannot_be_listed_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=rf"{tmp_path} can't be listed: Permission denied"):
        list(walk_folder(tmp_path))
