"""Lists of names: lines, or JSON as VTLM's."""

from pathlib import Path

import pytest

from visual_grounding.errors import InputError
from visual_grounding.features.names import read_names


def test_names_are_lines_or_json_by_number(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("man\ndog,puppy\n")
    assert read_names(tmp_path / "names.txt") == ["man", "dog,puppy"]
    (tmp_path / "names.json").write_text('{"1": "dog",\n "0": "man"}')
    assert read_names(tmp_path / "names.json") == ["man", "dog"]
    (tmp_path / "list.json").write_text('["man", "dog"]')
    assert read_names(tmp_path / "list.json") == ["man", "dog"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"0": "man", "2": "dog"}', "should have the names of the numbers 0 to 1, but has none of 1"),
        ("{}", "should have names, but is empty"),
        ('{"0": 7}', r"should be {number: name} or a list of names, but isn't"),
        ("7", r"should be {number: name} or a list of names, but isn't"),
        ('["a\\ud800"]', r"should be JSON, but isn't: it has half a character"),
        ("{", "should be JSON, but isn't: Expecting property name"),
        ("[" * 100_000, "should be JSON, but isn't: "),
    ],
)
def test_what_is_no_list_of_names_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "names.json").write_text(content)
    with pytest.raises(InputError, match=rf"names\.json {said}"):
        read_names(tmp_path / "names.json")


def test_an_empty_list_of_names_is_refused_as_none_given_means_the_librarys(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("")
    with pytest.raises(InputError, match=r"names\.txt should have names, but is empty"):
        read_names(tmp_path / "names.txt")
