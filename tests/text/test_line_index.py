"""Single lines of a file by number."""

import os
import pickle

import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.artefact import sha256_of_file
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


def test_line_index_knows_the_files_digest_and_shares_no_position_with_copies(tmp_path):
    (tmp_path / "keys").write_text("".join(f"{number}.jpg\n" for number in range(50_000)))
    index = LineIndex(tmp_path / "keys")
    assert index.sha256 == sha256_of_file(tmp_path / "keys")
    before = os.lseek(index._file.fileno(), 0, os.SEEK_CUR)
    assert [index[number] for number in (40_000, 0)] == ["40000.jpg", "0.jpg"]
    assert os.lseek(index._file.fileno(), 0, os.SEEK_CUR) == before  # a process that was forked has the same one
    copy = pickle.loads(pickle.dumps(index))
    assert (copy[1], copy.sha256, len(copy)) == ("1.jpg", index.sha256, 50_000)
    kept = pickle.dumps(index)
    (tmp_path / "keys").unlink()
    with pytest.raises(InputError, match=r"keys can't be read: No such file"):
        pickle.loads(kept)


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
