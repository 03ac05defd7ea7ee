"""Text files: a byte order mark, and the place of a byte that isn't UTF-8."""

import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.lines import read_lines


def test_read_lines_leaves_a_byte_order_mark_out(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read_lines(path) == ["one", "two"]


def test_read_lines_counts_lines_and_columns_from_1(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"one\nB\xe4r\n")
    with pytest.raises(InputError, match="line 2 has byte 0xe4 at column 2"):
        read_lines(path)
