"""Lines from places all over a file: whole ones, under their numbers, both ends among them."""

import pytest

from visual_grounding import InputError
from visual_grounding.text import spread_lines as module
from visual_grounding.text.spread_lines import spread_lines


def test_short_file_comes_as_a_whole(tmp_path):
    (tmp_path / "text").write_text("ä b\n\nc\n", encoding="utf-8")
    assert list(spread_lines(tmp_path / "text")) == [(0, "ä b"), (1, ""), (2, "c")]
    (tmp_path / "text").write_text("")
    assert list(spread_lines(tmp_path / "text")) == []


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("places", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("size", [1, 2, 3, 10, 11, 12, 40, 1000])
def test_lines_have_their_own_numbers(tmp_path, monkeypatch, places, size, chunk):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    lines = [f"zeile {number} ä" * (number % 3) for number in range(60)]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = list(spread_lines(tmp_path / "text", places, size))
    assert found and all(lines[number] == line for number, line in found)
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    # The naive twin: a line comes where one of the places has its first byte.
    starts, whole = [], 0
    for line in lines:
        starts.append(whole)
        whole += len(line.encode()) + 1
    begins = [max(0, whole - size) * place // max(1, places - 1) for place in range(places)]
    expected = [number for number, at in enumerate(starts) if any(b <= at < b + size for b in begins)]
    assert numbers == expected
    if places * size >= 2 * whole:
        assert numbers == list(range(60))


def test_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing can't be read: No such file"):
        list(spread_lines(tmp_path / "nothing"))
