"""Both ends of a file: what is whole, what may be cut, how much is read."""

import pytest

from visual_grounding import InputError
from visual_grounding.text.both_ends import both_ends


def test_short_file_is_read_as_a_whole(tmp_path):
    (tmp_path / "text").write_text("ä b\n\nc\n", encoding="utf-8")
    assert both_ends(tmp_path / "text") == (["ä b", "", "c"], [])
    (tmp_path / "text").write_text("")
    assert both_ends(tmp_path / "text") == ([], [])


@pytest.mark.parametrize("size", range(1, 40))
def test_lines_are_those_of_the_file_from_both_sides(tmp_path, size):
    """All but the last of each list are whole; that one is the beginning of a line, or the end of one."""
    lines = [f"zeile {number} ä" for number in range(6)]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    first, last = both_ends(tmp_path / "text", size)
    assert first[:-1] == lines[: len(first) - 1] and lines[len(first) - 1].startswith(first[-1])
    if last:
        assert last[:-1] == lines[::-1][: len(last) - 1] and lines[-len(last)].endswith(last[-1])
    assert sum(map(len, (*first, *last))) <= 2 * size or not last


def test_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing can't be read: No such file"):
        both_ends(tmp_path / "nothing")
