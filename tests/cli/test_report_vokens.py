"""`report vokens`: a page and a PNG for each line; and all verbs of this family where there is no fairseq."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_tokenizers import make_tokenizer
from small_vokens import write_vokens

from visual_grounding.cli.main import main
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

LINES = ["A dog runs.", "", "a <dog>", "runs"]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Vokens of four lines; the last candidate, 4.jpg, is no picture."""
    tokenizer = make_tokenizer(tmp_path / "gpt", "gpt2")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "photos").mkdir()
    for number in range(4):
        Image.new("RGB", (20, 10), (40 * number, 0, 0)).save(tmp_path / f"photos/{number}.jpg")
    lengths = [len(numbers) for numbers in TokenizerBridge(str(tokenizer)).numbers_of(LINES)]
    vokens = [[0, 1, -1, 2, 2, 0], [], [n % 4 for n in range(lengths[2])], [1] * lengths[3]]
    write_vokens(tmp_path / "vokens", LINES, tokenizer, 5, vokens)
    return tmp_path


def run(world: Path, *flags: object) -> int:
    common = ["--vokens", world / "vokens", "--images", world / "photos", "--out", world / "out"]
    return main(["report", "vokens", *map(str, [*common, *flags])])


def page(world: Path) -> str:
    return (world / "out/report.html").read_text()


def test_first_lines_with_pieces_are_shown(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(world, "--first", 2) == 0
    shown = page(world)
    assert sorted(path.name for path in (world / "out").iterdir()) == ["line-0.png", "line-2.png", "report.html"]
    assert "line 0<" in shown and "line 2<" in shown and "line 3<" not in shown and "http" not in shown
    for text in ("<b>run</b>", "<figure><b>og</b></figure>", "<b>&lt;</b>", "a &lt;dog&gt;<", "vokenize|by:hand"):
        assert text in shown
    assert shown.count("src='data:image/jpeg;base64,") == shown.count("<img") and "<figcaption>" not in shown
    with Image.open(world / "out/line-0.png") as picture:
        assert picture.size == (8 + 6 * 104, 132)
    out = capsys.readouterr().out
    assert "report.html and line-0.png, line-2.png show" in out and "have no voken." in out


def test_lines_are_chosen_and_scores_shown(world: Path) -> None:
    total = len(np.load(world / "vokens/vokens.npy"))
    np.save(world / "vokens/scores.npy", np.linspace(0, 1, total).astype(np.float16))
    assert run(world, "--lines", 3, 1, 3, "--title", "a & b") == 0
    shown = page(world)
    assert shown.index("line 3<") < shown.index("line 1<") and shown.count("<div class=row>") == 2
    assert "<figcaption>1.00</figcaption>" in shown and "a &amp; b" in shown and "no pieces" in shown
    assert sorted(path.name for path in (world / "out").glob("*.png")) == ["line-1.png", "line-3.png"]
    assert run(world, "--lines", 0) == 0  # pictures are those of the page
    assert [path.name for path in (world / "out").glob("*.png")] == ["line-0.png"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lines", 0, 4], "--lines should lie in 0..3, the lines of"),
        (["--lines", -1], "--lines should lie in 0..3, the lines of"),
        (["--first", 0], "first should be at least 1, but is 0. See --first."),
        (["--images", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    world: Path, capsys: pytest.CaptureFixture[str], flags: list[object], message: str
) -> None:
    assert run(world, *flags) == 2
    assert message in capsys.readouterr().err and not (world / "out").exists()


def test_other_pictures_are_warned_of_or_refused(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (world / "photos/2.jpg").write_bytes(b"x")
    (world / "photos/1.jpg").unlink()
    assert run(world, "--lines", 0) == 0
    said = capsys.readouterr().err
    assert "2 of 3 pictures can't be shown: 1 aren't in" in said and "1 are unreadable, such as 2.jpg" in said
    assert run(world, "--lines", 3) == 2
    assert "1 of 1 pictures can't be shown" in capsys.readouterr().err


def test_vokens_without_a_piece_are_refused(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_vokens(world / "none", ["", ""], world / "gpt")
    assert run(world, "--vokens", world / "none") == 2
    assert "none should have a line with pieces, to be shown, but has none." in capsys.readouterr().err


def test_no_verb_of_vokens_that_are_there_needs_fairseq(world: Path) -> None:
    script = """
import sys
sys.modules["fairseq"] = None
from visual_grounding.cli.main import main
text, vokens, tokenizer, photos, out = sys.argv[1:]
done = [
    main(["revokenize", "--vokens", vokens, "--text", text, "--tokenizer", tokenizer, "--out", out]),
    main(["report", "vokens", "--vokens", out, "--images", photos, "--out", out + ".report"]),
    main(["stats", "--text", "a=" + text, "--tokenizer", tokenizer]),
]
sys.exit(max(done))
"""
    tokenizer = make_tokenizer(world / "other", "wordpiece")
    paths = [world / "text", world / "vokens", tokenizer, world / "photos", world / "revokenized"]
    done = subprocess.run([sys.executable, "-c", script, *map(str, paths)], capture_output=True, text=True)
    assert done.returncode == 0 and (world / "revokenized.report/line-0.png").is_file(), done.stderr
