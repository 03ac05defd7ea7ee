"""`stats`: Table 1 of small corpora, in four formats, and its refusals."""

import json
from pathlib import Path

import pytest
from small_tokenizers import make_tokenizer

from visual_grounding.cli.main import main


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Captions of 4 words and 2 sentences, text in two files, and nothing."""
    (tmp_path / "captions").write_text("A dog. A dog\na dog\n")
    (tmp_path / "one").write_text("A dog sleeps. Nothing 100 %\n")
    (tmp_path / "two").write_text("\na dog\n")
    (tmp_path / "empty").write_text("")
    return tmp_path


def run(world: Path, *flags: object) -> int:
    texts = [f"c={world / 'captions'}", f"x_y={world / 'one'}", f"x_y={world / 'two'}", f"none={world / 'empty'}"]
    return main(["stats", "--text", *texts, *map(str, flags)])


def test_table_is_printed_and_written_in_four_formats(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--reference", "c", "--captions", "c", "--grounded-above", 2, "--by-line", "c", "--out", world / "out"]
    assert run(world, *flags) == 0
    out = capsys.readouterr().out
    assert out == (world / "out/statistics.txt").read_text()
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[4:]}
    found = json.loads((world / "out/statistics.json").read_text())
    _, other, _ = found["corpora"]
    assert rows["c"] == ["7", "2", "0", "3.5", "0.000", "0.000", "42.9", "%"]  # a dog . a dog; a dog: dog 3 of 7
    divergences = [f"{other['divergence_1']:.3f}", f"{other['divergence_2']:.3f}"]
    assert rows["x_y"] == ["9", "3", "0", "3.0", *divergences, "22.2", "%"]  # a dog sleeps . | nothing 100 % | a dog
    assert rows["none"] == ["0", "0", "0", "–", "–", "–", "–"]
    assert "tokens: words; sentences: by the rules of sentencex (en), of c the lines; vocabulary: types" in out
    assert "JSD: Jensen–Shannon divergence to c, in bits; grounded: 1 types with more than 2 occurrences in c" in out
    assert (
        (other["name"], other["grounding_ratio"]) == ("x_y", 2 / 9)
        and found["grounded"] == ["dog"]
        and other["lines"] == 3
    )
    assert "| x_y" in (world / "out/statistics.md").read_text()
    latex = (world / "out/statistics.tex").read_text()
    assert r"x\_y" in latex and r"22.2 \%" in latex and r"\toprule" in latex


def test_table_without_reference_and_captions_is_only_printed(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(world, "--tokenizer", make_tokenizer(world / "bert", "wordpiece")) == 0
    out = capsys.readouterr().out
    assert "tokens: pieces of" in out and "JSD:" not in out and "grounded:" not in out
    assert out.splitlines()[4].split() == ["c", "7", "3", "0", "2.3", "–", "–", "–"]
    assert not (world / "out").exists()


def test_captions_without_a_frequent_word_are_warned_of(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(world, "--captions", "c") == 0
    captured = capsys.readouterr()
    assert "warning: no word of c occurs more than 100 times, so none is grounded" in captured.err
    assert captured.out.splitlines()[4].split()[-2:] == ["0.0", "%"]


def test_an_empty_corpus_is_warned_of_and_names_are_shown_as_they_can_be(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = f"a|b\x1b[2J={world / 'one'}"
    assert run(world, "--text", strange, "--reference", "a|b\x1b[2J", "--out", world / "out") == 0
    captured = capsys.readouterr()
    assert captured.err.count("warning: ") == 1 and "warning: there isn't a word in none." in captured.err
    written = "".join((world / f"out/statistics.{form}").read_text() for form in ("txt", "md", "tex"))
    assert "\x1b" not in captured.out + written and r"| a\|b\x1b[2J |" in (world / "out/statistics.md").read_text()


def test_stop_words_are_chosen(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (world / "stop").write_text("dog\n")
    assert (
        run(world, "--captions", "c", "--grounded-above", 2, "--stop-words", world / "stop", "--out", world / "o") == 0
    )
    assert json.loads((world / "o/statistics.json").read_text())["grounded"] == ["a"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--reference", "wiki"], "--reference should be a name of --text (c, x_y, none), but is wiki."),
        (["--captions", "wiki"], "--captions should be a name of --text (c, x_y, none), but is wiki."),
        (["--by-line", "c", "wiki"], "--by-line should be a name of --text (c, x_y, none), but is wiki."),
        (["--grounded-above", "0"], "grounded above should be at least 1, but is 0. See --grounded-above."),
        (["--text", "captions"], "--text should be NAME=FILE, but is 'captions'."),
        (["--text", "wiki=nowhere"], "nowhere can't be read: No such file or directory."),
        (["--stop-words", "xx"], "but there is no xx."),
        (["--grounded-above", "5"], "what counts as grounded is told by captions: name them. See --captions."),
        (["--stop-words", "de"], "what counts as grounded is told by captions: name them. See --captions."),
    ],
)
def test_what_cannot_be_counted_is_refused(
    world: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert run(world, *flags) == 2
    assert message in capsys.readouterr().err
