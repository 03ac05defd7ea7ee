"""`revokenize`: what it says, and its refusals in one line."""

import shutil
from pathlib import Path

import pytest
from small_tokenizers import make_tokenizer
from small_vokens import write_vokens

from visual_grounding.cli.main import main
from visual_grounding.vokenization.vokens import Vokens

LINES = ["A dog  runs.", "", "Two birds"]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Vokens of a text, and another tokenizer. One piece of twenty has none."""
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES))
    vokens = [[-1, 1, 2, 3, 4], [], [n % 5 for n in range(8)]]
    write_vokens(tmp_path / "source", LINES, make_tokenizer(tmp_path / "bert", "wordpiece"), vokens=vokens)
    make_tokenizer(tmp_path / "gpt", "gpt2")
    return tmp_path


def run(world: Path, **flags: object) -> int:
    flags = {"vokens": "source", "text": "text", "tokenizer": "gpt", "out": "out", **flags}
    words = [word for name, value in flags.items() for word in (f"--{name}", str(world / str(value)))]
    return main(["revokenize", *words])


def test_vokens_are_made_and_described(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(world) == 0
    made = Vokens(world / "out")
    assert list(made.token_lines()) == ["A Ġd og Ġ Ġrun s .", "", "Tw o Ġbirds"]
    assert made.of_line(0).tolist() == [-1, 1, 1, -1, 2, 3, 4]
    said = capsys.readouterr()
    out = said.out
    assert f"{world / 'out'}: 3 lines, 13 pieces -> 10 pieces\nrevokenize|tokenizer:" in out
    assert "1 of 10 pieces (10.0 %) overlap none, as white space does, and have no voken." in out
    assert "warning: 1 of 10 pieces (10.0 %) overlap one that has no voken, and have none." in said.err
    assert f"fairseq-preprocess --only-source --srcdict {world / 'out/dict.txt'} --trainpref" in out


def test_the_same_tokenizer_is_warned_of(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(world, tokenizer="bert") == 0
    assert "is the tokenizer that" in capsys.readouterr().err
    assert (world / "out/vokens.npy").read_bytes() == (world / "source/vokens.npy").read_bytes()


def test_what_does_not_belong_together_ends_with_a_message(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (world / "other").write_text("A dog  runs.\n")
    assert run(world, text="other") == 2
    said = capsys.readouterr().err
    assert "the vokens of, 3 lines with sha256" in said and "but has 1 lines and sha256" in said
    assert said.endswith("See --text.\n") and not (world / "out").exists()
    assert run(world, vokens="nothing") == 2
    assert "should hold vokens, but there is no" in capsys.readouterr().err
    (world / "empty").mkdir()
    assert run(world, tokenizer="empty") == 2
    assert "should be a folder with a pretrained model" in capsys.readouterr().err
    shutil.copytree(world / "gpt", world / "source/tokenizer", dirs_exist_ok=True)
    assert run(world) == 2
    assert "should be the tokenizer that cut the text, sha256" in capsys.readouterr().err
