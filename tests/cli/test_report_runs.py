"""`visual-grounding report runs`: from folders of seeds to a table in four formats."""

import json
from pathlib import Path

import pytest
from analysis.test_runs import write_run

from visual_grounding.cli.main import main


def report(folder: Path, *words: str, seeds: int = 2) -> int:
    runs = [str(folder / f"seed{seed}") for seed in range(1, seeds + 1)]
    return main(["report", "runs", *runs, "--out", str(folder / "out"), *words])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two seeds of an evaluation with a twin, and of one without."""
    for seed, (ours, twin) in enumerate([(16.0, 15.0), (18.0, 15.5)], 1):
        write_run(tmp_path / f"seed{seed}/masked", [ours], [twin])
        write_run(tmp_path / f"seed{seed}/50 % off", [ours + 20])
    return tmp_path


def test_runs_are_shown_and_written_in_four_formats(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(folder) == 0
    out = capsys.readouterr().out
    assert out == (folder / "out/runs.txt").read_text()
    assert (
        "BLEU: higher is better; 2 seeds, mean ± standard deviation (median); two-sided t-test over seeds and sen"
        in out
    )
    row = next(line for line in out.splitlines() if line.startswith("masked"))
    found = json.loads((folder / "out/runs.json").read_text())
    masked = next(row for row in found["rows"] if row["name"] == "masked")
    test = masked["test"]
    assert " ".join(row.split()) == (
        f"masked 20 17.00 ± 1.41 (17.00) 15.25 ± 0.35 (15.25) +1.75 {test['low']:+.2f} … {test['high']:+.2f} "
        f"{test['p_value']:.4f} {masked['p_holm']:.4f} 2 of 2"
    )
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "50 % off 20 37.00 ± 1.41 (37.00) – – – – – –" in lines
    assert "seed1 seed2" in lines
    assert "masked 16.00 (+1.00) 18.00 (+2.50)" in lines
    assert "50 % off 36.00 38.00" in lines
    assert masked["hypothesis"] == {"mean": 17.0, "median": 17.0, "std": 2**0.5, "values": [16.0, 18.0]}
    assert masked["seeds"] == ["seed1", "seed2"]
    markdown = (folder / "out/runs.md").read_text()
    assert "| masked" in markdown and "|:----" in markdown
    latex = (folder / "out/runs.tex").read_text()
    assert r"50 \% off" in latex and r"\toprule" in latex and r"$\pm$ standard deviation" in latex


def test_fractions_are_shown_in_percent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"f1": {"label": "F1", "better": "higher", "percent": True}}
    for seed, value in ((1, 0.5), (2, 0.6)):
        write_run(tmp_path / f"seed{seed}/x", [value], [0.4], metric="f1", metrics=metrics)
    assert report(tmp_path) == 0
    out = capsys.readouterr().out
    assert out.startswith("F1, %: higher is better") and "55.00 ± 7.07 (55.00)" in out and "60.00 (+20.00)" in out
    (row,) = json.loads((tmp_path / "out/runs.json").read_text())["rows"]
    assert row["hypothesis"]["mean"] == pytest.approx(0.55)


def test_what_is_below_1_has_four_decimals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"region_loss": {"label": "region loss", "better": "lower", "percent": False}}
    for seed, value in ((1, 0.1345), (2, 0.1319)):
        write_run(tmp_path / f"seed{seed}/x", [value], [0.157], metric="region_loss", metrics=metrics)
    assert report(tmp_path) == 0
    out = capsys.readouterr().out
    assert "0.1332 ± 0.0018 (0.1332)" in out and "-0.0238" in out and "0.1345 (-0.0225)" in out
    (row,) = json.loads((tmp_path / "out/runs.json").read_text())["rows"]
    assert f"{row['test']['low']:+.4f} … {row['test']['high']:+.4f}" in out


def test_rows_and_metrics_are_chosen(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(folder, "--only", "mask*", "--metric", "bleu") == 0
    assert "% off" not in capsys.readouterr().out


def test_one_seed_is_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(folder, seeds=1) == 0
    captured = capsys.readouterr()
    assert "warning: there is one seed, whose spread is unknown" in captured.err
    assert "two-sided t-test over sentences" in captured.out and "±" not in captured.out.splitlines()[4]


def test_runs_that_cannot_be_compared_end_with_a_message_and_no_table(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(folder, seeds=3) == 2
    assert "seed3 should be the folder of a run, but there is no such folder." in capsys.readouterr().err
    write_run(folder / "seed3/masked", [1.0], [2.0])
    assert report(folder, seeds=3) == 2
    assert "lacks 1 of those of" in (said := capsys.readouterr().err) and "See --only." in said
    assert not (folder / "out").exists()
