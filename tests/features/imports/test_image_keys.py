"""Ids become keys; files of keys; which records are wanted."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from visual_grounding.errors import InputError
from visual_grounding.features.imports.image_keys import KeyFormat, find_wanted, read_key_file


def test_format_makes_keys_of_numbers_and_names() -> None:
    assert KeyFormat().key(7) == KeyFormat().key(b"7") == "7"
    assert KeyFormat("{id}.jpg").key("a/b") == "a/b.jpg"
    assert KeyFormat("COCO_val2014_{id:012d}.jpg").key("42") == "COCO_val2014_000000000042.jpg"
    assert KeyFormat("{{x}}{id:d}").key(5) == "{x}5"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{0}",
        "a.jpg",
        "{id}{id}",
        "{id.__class__}",
        "{id[0]}",
        "{id!r}",
        "{id:>9}",
        "{id",
        "{id:99999d}",
        "{id:0999999999999999999999d}",
    ],
)
def test_format_that_could_say_more_than_an_id_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"text with one {id} in it, or {id:012d}.* but is '") as caught:
        KeyFormat(text)
    assert caught.value.choices == ("key_format",) and repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "identity"), [("{id}", 10**5000), ("{id:d}", "9" * 5000), ("{id:d}", -(10**5000))], ids=["a", "b", "c"]
)
def test_ids_of_any_number_of_digits_are_refused(text: str, identity: object) -> None:
    with pytest.raises(InputError, match="at most 100 digits") as caught:
        KeyFormat(text).key(identity)
    assert len(str(caught.value)) < 300


def test_key_file_is_lines_or_a_pickle_of_rows(tmp_path: Path) -> None:
    (tmp_path / "k.txt").write_text("a\nb\n")
    assert read_key_file(tmp_path / "k.txt", KeyFormat("{id}.jpg")) == ["a", "b"]  # lines are keys already
    (tmp_path / "k.pkl").write_bytes(pickle.dumps({9: 1, 8: 0, 7: 2}))
    assert read_key_file(tmp_path / "k.pkl", KeyFormat("{id}.jpg")) == ["8.jpg", "9.jpg", "7.jpg"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({9: 1, 8: 3}, "should say of each id which row it is, .* and of each row once, but doesn't"),
        ({9: 1, 8: 1}, "and of each row once"),
        ({str(row): str(row) for row in range(11)}, "and of each row once"),  # "10" would be sorted before "2"
        ([1, 2], "should say of each id which row it is"),
        ({}, "should have one image key a line, but is empty"),
        ({"a\tb": 0}, "image key number 1 should be UTF-8"),
    ],
)
def test_pickle_of_no_rows_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "k.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=rf"k\.pkl.*{message}"):
        read_key_file(tmp_path / "k.pkl", KeyFormat())
    with pytest.raises(InputError, match=r"gone\.pkl should be a pickle of ids and their rows, but can't be read"):
        read_key_file(tmp_path / "gone.pkl", KeyFormat())


def test_wanted_images_are_found_in_their_order() -> None:
    assert find_wanted(["a", "b", "c"], None, Path("f")) == (["a", "b", "c"], [0, 1, 2])
    assert find_wanted(["a", "b", "c"], ["c", "x", "a"], Path("f")) == (["c", "x", "a"], [2, None, 0])
    with pytest.raises(InputError, match=r"f should hold .* none of these 1\. A key there is 'a', .* asked for is 'x'"):
        find_wanted(["a"], ["x"], Path("f"))
