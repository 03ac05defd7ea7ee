"""Single lines of a file by number."""

import pytest

from visual_grounding.errors import InputError
from visual_grounding.text import line_index
from visual_grounding.text.line_index import LineIndex
from visual_grounding.text.pieces import join_pieces


@pytest.mark.parametrize("block", [1, 3, 1 << 22])
def test_line_index_gives_every_line_whatever_the_block(block, tmp_path, monkeypatch):
    monkeypatch.setattr(line_index, "_BLOCK", block)
    lines = ["ä.jpg", "", "a b:c.png", "x" * 9]
    (tmp_path / "keys").write_bytes("".join(line + "\n" for line in lines).encode())
    index = LineIndex(tmp_path / "keys")
    assert len(index) == 4
    assert [index[number] for number in (3, 1, 0, 2)] == [lines[number] for number in (3, 1, 0, 2)]


def test_line_index_refuses_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"keys can't be read: No such file"):
        LineIndex(tmp_path / "keys")


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ("", ""),
        ("ein Hund", "ein Hund"),
        ("Schl@@ äger", "Schläger"),
        ("ein Schl@@ ä@@ ger@@", "ein Schläger"),
        ("me@home @@ x", "me@home x"),
        ("▁ein ▁Schl äger", "ein Schläger"),
        ("play ##ing tennis ##y ball", "playing tennisy ball"),
        ("## a ## b", "## a ## b"),
    ],
)
def test_join_pieces(pieces, words):
    assert join_pieces(pieces) == words
