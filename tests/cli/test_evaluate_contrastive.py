"""`visual-grounding evaluate contrastive`: one report from real files, and the mistakes that a user can make."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis.test_contrastive import printed

from visual_grounding.analysis.score_files import read_score_files
from visual_grounding.cli.main import main

CORRECT = ["tableau", "conseil", "la rive", "la banque", "chiffre", "figure"]
INCORRECT = ["conseil", "tableau", "la banque", "la rive", "figure", "chiffre"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A model that is right on five of six, one that doesn't look, and the translations."""
    sources = ["board", "board", "bank", "bank", "figure", "figure"]
    looking = ([-1, -1, -1, -1, -1, -3], [-2] * 6)
    blind = ([-1, -2] * 3, [-2, -1] * 3)
    for name, (correct, incorrect) in {"": looking, "blind.": blind}.items():
        for side, targets, scores in (("correct", CORRECT, correct), ("incorrect", INCORRECT, incorrect)):
            examples = [(s, t, [float(score)] * 3) for s, t, score in zip(sources, targets, scores)]
            (tmp_path / f"{name}{side}.out").write_text(printed(*examples))
    (tmp_path / "correct.fr").write_text("\n".join(CORRECT) + "\n")
    paths = {name: str(tmp_path / name) for name in ("correct.out", "incorrect.out", "correct.fr", "out")}
    twin = [
        word for side in ("correct", "incorrect") for word in (f"--twin-{side}", str(tmp_path / f"blind.{side}.out"))
    ]
    return {**paths, "twin": twin}


def contrastive(files: dict[str, Any], *more: str, **others: str) -> int:
    chosen = {"correct": files["correct.out"], "incorrect": files["incorrect.out"], "reference": files["correct.fr"]}
    words = [word for name, value in {**chosen, **others}.items() for word in (f"--{name}", value)]
    return main(["evaluate", "contrastive", *words, "--out", files["out"], *more])


def test_contrastive_evaluation_reports_accuracy_chance_and_interval(
    files: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert contrastive(files) == 0
    report = json.loads(Path(files["out"], "scores.json").read_text())
    ours = report["systems"]["hypothesis"]
    assert (ours["right"], ours["examples"], ours["ties"], report["chance"]) == (5, 6, 0, 0.5)
    assert ours["verdicts"] == [1, 1, 1, 1, 1, 0]
    assert (ours["low"], ours["high"]) == pytest.approx((0.4365, 0.9699), abs=1e-4)
    assert ours["p_value"] == pytest.approx(2 * (1 + 6) / 2**6)
    assert (report["systems"]["twin"], report["comparison"], report["resampling"]) == (None, None, None)
    out = capsys.readouterr().out
    assert "6 examples; chance is 50 %; preferred: lower perplexity" in out
    row = next(line for line in out.splitlines() if line.startswith("hypothesis"))
    assert " ".join(row.split()) == "hypothesis 5 of 6 83.3 % 43.6 … 97.0 % 0.2188 0 83.3 %"


def test_contrastive_evaluation_compares_two_models_in_pairs(
    files: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert contrastive(files, *files["twin"], "--bootstrap-samples", "40") == 0
    found = read_score_files(Path(files["out"]))
    test = found.scores["comparison"]
    assert (test["only_first"], test["only_second"], test["p_value"]) == (2, 0, 0.5)
    assert found.scores["systems"]["twin"]["accuracy"] == 0.5
    drawn = found.resampled["hypothesis.contrastive_accuracy"]
    assert drawn.shape == (1, 40) and drawn.std() > 0
    assert np.isin(np.round(drawn * 6, 6), range(7)).all()
    assert (
        "hypothesis - twin: +33.3 points; right alone: 2 and 0 examples; p 0.5000 (McNemar" in capsys.readouterr().out
    )


def test_runs_that_changed_places_are_noticed(files: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert contrastive(files, correct=files["incorrect.out"], incorrect=files["correct.out"]) == 2
    said = capsys.readouterr().err
    assert "--correct and --incorrect look exchanged: " in said
    assert f"{files['correct.out']} has the targets of {files['correct.fr']}, {files['incorrect.out']} hasn't." in said
    Path(files["correct.fr"]).write_text("autre\n" * 6)  # neither's
    assert contrastive(files) == 2
    assert "of the targets that fairseq-generate wrote beside them (T- lines) 6 of 6 are other sentences" in (
        capsys.readouterr().err
    )
    assert not Path(files["out"]).exists()


def test_one_run_that_is_given_twice_is_refused(files: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert contrastive(files, incorrect=files["correct.out"]) == 2
    assert "should score two translations of each sentence, but are the same." in capsys.readouterr().err


def test_a_run_that_is_not_there_or_no_file_is_refused(
    files: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, message in ((tmp_path / "gone", "No such file"), (tmp_path, "Is a directory"), ("/dev/zero", "a device")):
        assert contrastive(files, incorrect=str(path)) == 2
        assert message in capsys.readouterr().err


def test_a_twin_that_scored_other_translations_is_noticed(
    files: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(files["twin"][3])
    path.write_text(path.read_text().replace("la banque", "la rivière"))
    assert contrastive(files, *files["twin"]) == 2
    expected = (
        f"{files['incorrect.out']} and {path} should have the same translations, but 1 of 6 differ, the first is T-2"
    )
    assert expected in capsys.readouterr().err
    assert not Path(files["out"]).exists()


def test_contrastive_evaluation_is_refused_when_flags_do_not_fit(
    files: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for more, said in (
        (files["twin"][:2], "--twin-correct and --twin-incorrect should be given together, but one is missing."),
        (["--bootstrap-samples", "0"], "bootstrap samples should be at least 1, but is 0. See --bootstrap-samples."),
        (["--seed", "-1"], "--seed should be 0 or more, but is -1."),
    ):
        assert contrastive(files, *more) == 2
        assert said in capsys.readouterr().err
    Path(files["correct.fr"]).write_text("tableau\n")
    assert contrastive(files) == 2
    assert f"{files['correct.fr']} has 1 sentences, but {files['correct.out']} has 6" in capsys.readouterr().err


def test_pairs_that_the_vocabulary_cannot_tell_apart_are_counted(
    files: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("correct.out", "incorrect.out"):
        path = Path(files[name])
        lines = [
            line.replace("tableau", "<<unk>>").replace("conseil", "<<unk>>") for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join(line.replace("<<unk>>", "<unk>") if line[0] in "HD" else line for line in lines))
    assert contrastive(files) == 0
    captured = capsys.readouterr()
    assert "warning: 2 of 6 pairs of translations in" in captured.err
    report = json.loads(Path(files["out"], "scores.json").read_text())
    assert (report["systems"]["hypothesis"]["ties"], report["systems"]["hypothesis"]["right"]) == (2, 3)
