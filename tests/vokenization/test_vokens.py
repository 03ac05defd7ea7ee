"""Vokens are read as they were written, and what doesn't fit is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_tokenizers import FAMILIES, make_tokenizer
from small_vokens import write_vokens

from visual_grounding.errors import InputError
from visual_grounding.storage.lines import sha256_of_lines
from visual_grounding.vokenization import vokens as module
from visual_grounding.vokenization.vokens import Vokens

LINES = ["A dog runs.", "", "Two birds  sit"]


@pytest.fixture
def folder(tmp_path):
    return write_vokens(tmp_path / "vokens", LINES, make_tokenizer(tmp_path / "tokenizer", "wordpiece"))


def test_vokens_are_those_of_each_line(folder):
    found = Vokens(folder)
    pieces = [line.split() for line in found.token_lines()]
    assert [len(line) for line in pieces] == np.diff(found.offsets).tolist()
    assert found.lines == 3 and found.tokens == sum(map(len, pieces)) and found.of_line(1).tolist() == []
    assert found.of_line(0).tolist() == [n % 5 for n in range(len(pieces[0]))]
    assert found.of_line(2).tolist() == [n % 5 for n in range(len(pieces[0]), found.tokens)]
    assert list(found.keys()) == [f"{n}.jpg" for n in range(5)]
    assert found.tokens_sha256 == sha256_of_lines(list(found.token_lines())) and found.scores is None
    assert f"--srcdict {folder}/dict.txt --trainpref {folder}/tokens.txt" in found.binarise
    found.check_range()
    for name in ("train", "valid", "test"):
        shutil.copytree(folder, folder.parent / f"v/{name}")
    meta = json.loads((folder.parent / "v/test/meta.json").read_text())
    (folder.parent / "v/test/meta.json").write_text(json.dumps({**meta, "tokenizer_sha256": "0" * 64}))
    both = (
        f"--trainpref {folder.parent}/v/train/tokens.txt --validpref {folder.parent}/v/valid/tokens.txt --destdir DIR"
    )
    for name in ("train", "valid"):  # a split that was cut by another tokenizer isn't among them
        assert Vokens(folder.parent / f"v/{name}").binarise.endswith(
            f"--srcdict {folder.parent}/v/{name}/dict.txt {both}"
        )
    assert "dict.txt --testpref " in Vokens(folder.parent / "v/test").binarise
    found.folder = Path("a b")
    assert "--srcdict 'a b/dict.txt' --trainpref 'a b/tokens.txt'" in found.binarise


@pytest.mark.parametrize("family", FAMILIES)
def test_vokens_keep_their_tokenizer(tmp_path, family):
    found = Vokens(write_vokens(tmp_path / "v", LINES, make_tokenizer(tmp_path / "t", family)))
    assert [found.bridge().line_of(n) for n in found.bridge().numbers_of(LINES)] == list(found.token_lines())


def test_vokens_of_another_tokenizer_are_refused(folder, tmp_path):
    make_tokenizer(folder / "tokenizer", "bytes")
    with pytest.raises(InputError, match=r"should be the tokenizer that cut the text, sha256 \w{8}…, but is another"):
        Vokens(folder).bridge()


@pytest.mark.parametrize("number", [5, -2])
def test_vokens_outside_the_candidates_are_refused(folder, number):
    path = folder / "vokens.npy"
    vokens = np.load(path)
    vokens[3] = number
    np.save(path, vokens)
    with pytest.raises(InputError, match=rf"its 5 candidates, 0\.\.4, or -1 for none, but has {number} at 3"):
        Vokens(folder).check_range()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda offsets: offsets + 1, r"from 0 to \d+, .* but they go from 1 to"),
        (lambda offsets: np.where(np.arange(4) == 1, offsets[-1] + 1, offsets), "fall in between"),
        (lambda offsets: offsets[:-1], r"int64 of shape \(4\)"),
    ],
)
def test_vokens_with_broken_offsets_are_refused(folder, changed, message):
    path = folder / "offsets.npy"
    np.save(path, changed(np.load(path)))
    with pytest.raises(InputError, match=message):
        Vokens(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a dog run\n", r"should have 3 lines and \d+ pieces in line 1, but has 3"),
        (None, r"should have 3 lines and 0 pieces in line 4, but goes on"),
        ("", r"3 lines and \d+ pieces in line 1, but ends before it"),
    ],
)
def test_vokens_without_their_tokens_are_refused(folder, text, message):
    path = folder / "tokens.txt"
    path.write_text(path.read_text() + "more\n" if text is None else text)
    with pytest.raises(InputError, match=message):
        list(Vokens(folder).token_lines())


def test_vokens_of_an_unknown_label_are_refused(tmp_path):
    made = write_vokens(tmp_path / "v", LINES, make_tokenizer(tmp_path / "t", "wordpiece"), label="word")
    with pytest.raises(InputError, match="should have vokens of token or sentence, but says 'word'"):
        Vokens(made)


def test_offsets_that_fall_where_two_parts_meet_are_refused(folder, monkeypatch):
    offsets = np.load(folder / "offsets.npy")
    np.save(folder / "offsets.npy", np.array([0, offsets[1], 0, offsets[3]]))
    monkeypatch.setattr(module, "_LOOKED_AT", 1)
    with pytest.raises(InputError, match="but they fall in between"):
        Vokens(folder)
