"""Runs of several seeds put together: the numbers by hand, and every way in which runs don't belong together."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visual_grounding.analysis.runs import OverSeeds, Row, doubts, find_evaluations, read_runs, tabulate_runs
from visual_grounding.analysis.score_files import RESAMPLED, described_metric, write_score_files
from visual_grounding.analysis.seeds import compare_over_seeds, holm
from visual_grounding.errors import InputError

SAMPLES = 6


def write_run(
    folder: Path,
    values: list[float],
    twins: list[float] | None = None,
    metric: str = "bleu",
    sentences: int = 20,
    better: str = "higher",
    **more: Any,
) -> Path:
    """What an evaluation of one metric leaves; draws are made up, and each seed's are its own."""
    files = [f"{folder}-{n}.txt" for n in range(len(values))]
    systems: dict[str, Any] = {"hypothesis": {"files": files, metric: {"values": values}}, "twin": None}
    draws = {}
    if twins:
        systems["twin"] = {"files": files, metric: {"values": twins}}
        for system, scores in (("hypothesis", values), ("twin", twins)):
            noise = np.random.default_rng([len(system), int(1000 * scores[0])]).normal(0, 0.1, (len(scores), SAMPLES))
            draws[f"{system}.{metric}"] = np.array(scores)[:, None] + noise
    scores_json = {
        "sentences": sentences,
        "test_set": {"file": "test.de", "sha256": "5f"},
        "metrics": {metric: described_metric(metric.upper(), better=better), "meteor": described_metric("METEOR")},
        "systems": systems,
        "resampling": {"samples": SAMPLES, "seed": 1} if twins else None,
        "meta": {"sha256": {path: hashlib.sha256(path.encode()).hexdigest() for path in files}},
        **more,
    }
    write_score_files(folder, scores_json, draws)
    return folder


def table(*runs: Path, only: tuple[str, ...] = (), metrics: tuple[str, ...] = ()) -> list[Row]:
    return tabulate_runs(runs, read_runs(runs, only), metrics)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Three seeds, each with two evaluations."""
    for seed, (ours, twin) in enumerate([(16.0, 15.0), (17.0, 14.5), (15.0, 15.5)], 1):
        write_run(tmp_path / f"seed{seed}/scores/masked", [ours], [twin])
        write_run(tmp_path / f"seed{seed}/scores/whole", [ours + 20], [twin + 20.1])
    return [tmp_path / f"seed{seed}" for seed in (1, 2, 3)]


def test_seeds_are_summarised_and_tested(runs: list[Path]) -> None:
    masked, whole = table(*runs)
    assert (masked.name, masked.metric, masked.label, masked.sentences) == ("scores/masked", "bleu", "BLEU", 20)
    assert masked.seeds == ["seed1", "seed2", "seed3"]
    assert masked.hypothesis == OverSeeds(16.0, 1.0, 16.0, [16.0, 17.0, 15.0])
    assert masked.twin == OverSeeds(15.0, 0.5, 15.0, [15.0, 14.5, 15.5])
    assert masked.better_seeds == 2
    draws = [
        files.resampled["hypothesis.bleu"] - files.resampled["twin.bleu"] for files in read_runs(runs)["scores/masked"]
    ]
    assert masked.test == compare_over_seeds(np.array([1.0, 2.5, -0.5]), np.concatenate(draws), 20)
    assert masked.test.deltas == [1.0, 2.5, -0.5]
    assert whole.test is not None
    assert [masked.p_holm, whole.p_holm] == holm([masked.test.p_value, whole.test.p_value])


def test_several_seeds_in_one_folder_are_the_same_as_in_several(tmp_path: Path) -> None:
    together = write_run(tmp_path / "all/x", [1.0, 2.0, 4.0], [0.5, 0.5, 0.7])
    apart = [
        write_run(tmp_path / f"s{n}/x", [v], [t]) for n, (v, t) in enumerate(zip((1.0, 2.0, 4.0), (0.5, 0.5, 0.7)))
    ]
    (one,), (several,) = table(together.parent), table(*(each.parent for each in apart))
    assert (one.hypothesis, one.twin, one.better_seeds) == (several.hypothesis, several.twin, several.better_seeds)
    assert one.seeds == ["all x-0.txt", "all x-1.txt", "all x-2.txt"]
    assert one.test and one.test.seeds == 3


def test_runs_in_folders_of_the_same_name_are_called_by_their_paths(tmp_path: Path) -> None:
    for seed in ("a", "b"):
        write_run(tmp_path / seed / "out/x", [float(ord(seed))])
    (row,) = table(tmp_path / "a/out", tmp_path / "b/out")
    assert row.seeds == [str(tmp_path / "a/out"), str(tmp_path / "b/out")]


def test_scores_and_draws_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "seed1/scores/all", [math.nan])
    with pytest.raises(InputError, match=r"scores\.json should be as .* but has no list of numbers as the values"):
        table(tmp_path / "seed1")
    run = write_run(tmp_path / "seed2/scores/all", [1.0], [2.0])
    with np.load(run / RESAMPLED) as arrays:
        draws = dict(arrays)
    draws["twin.bleu"][0, 3] = math.inf
    np.savez(run / RESAMPLED, **draws)
    with pytest.raises(InputError, match=r"should hold numbers, but twin\.bleu holds NaN or infinity"):
        table(tmp_path / "seed2")


def test_where_lower_is_better_lower_seeds_are_better(tmp_path: Path) -> None:
    for seed, value in enumerate((3.0, 9.0)):
        write_run(tmp_path / f"{seed}/rank", [value], [5.0 + seed], metric="rank", better="lower")
    (row,) = table(tmp_path / "0", tmp_path / "1")
    assert (row.better, row.better_seeds) == ("lower", 1)


def test_runs_without_a_twin_have_no_test(tmp_path: Path) -> None:
    write_run(tmp_path / "a/x", [1.0])
    write_run(tmp_path / "b/x", [2.0])
    (row,) = table(tmp_path / "a", tmp_path / "b")
    assert (row.hypothesis.mean, row.twin, row.test, row.p_holm, row.better_seeds) == (1.5, None, None, None, None)
    assert not list(doubts([row], read_runs([tmp_path / "a", tmp_path / "b"])))


def test_evaluations_are_chosen_by_pattern(runs: list[Path]) -> None:
    assert [row.name for row in table(*runs, only=("*/masked",))] == ["scores/masked"]
    (row,) = table(*runs, only=("*/masked",))
    assert row.test and row.p_holm == row.test.p_value
    for only in (("masked", "*/*"), ("*/*", "masked")):
        with pytest.raises(InputError, match=r"fits masked, but has scores/masked, scores/whole\."):
            table(*runs, only=only)


def test_one_seed_and_copies_are_doubted(runs: list[Path], tmp_path: Path) -> None:
    assert not list(doubts(table(*runs), read_runs(runs)))
    (said,) = doubts(table(runs[0]), read_runs(runs[:1]))
    assert said.startswith(
        "there is one seed, whose spread is unknown: intervals and p-values are of the sentences alone"
    )
    write_run(tmp_path / "copy/scores/masked", [16.0], [15.0])
    write_run(tmp_path / "copy/scores/whole", [30.0], [31.0])
    copied = [runs[0], tmp_path / "copy"]
    ours, twin = doubts(table(*copied), read_runs(copied))
    assert ours.startswith(
        "1 of 2 evaluations have the same numbers for two seeds of the hypothesis, the first is scores/m"
    )
    assert "of the twin" in twin


def test_folders_that_are_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere should be the folder of a run, but there is no such folder"):
        find_evaluations(tmp_path / "nowhere")
    with pytest.raises(
        InputError, match=r"has no scores.json in it\. Make one: visual-grounding evaluate … --out .*/NAME"
    ):
        find_evaluations(tmp_path)


def test_a_run_that_is_given_twice_or_copied_is_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"each run should be given once, but .*seed2 is given twice"):
        table(runs[0], runs[1], runs[1] / "." / "")
    write_run(
        tmp_path / "seed4/scores/masked",
        [16.1],
        [15.0],
        meta={"sha256": {str(tmp_path / "seed4/scores/masked-0.txt"): "aa" * 32}},
    )
    write_run(
        tmp_path / "seed5/scores/masked",
        [16.2],
        [15.0],
        meta={"sha256": {str(tmp_path / "seed5/scores/masked-0.txt"): "aa" * 32}},
    )
    with pytest.raises(
        InputError, match=r"seed5/scores/masked was made from the same file as .*masked-0.txt \(sha256 aaaa"
    ):
        table(tmp_path / "seed4", tmp_path / "seed5")


def test_a_missing_evaluation_is_refused(runs: list[Path], tmp_path: Path) -> None:
    write_run(tmp_path / "seed4/scores/whole", [1.0], [2.0])
    expected = (
        r"but .*/seed4 lacks 1 of those of .*/seed1: scores/masked\. Evaluate .*/seed4 to its end, leave it out, or"
    )
    with pytest.raises(InputError, match=expected):
        table(*runs, tmp_path / "seed4")
    assert len(table(*runs, tmp_path / "seed4", only=("scores/whole",))) == 1


def test_a_missing_metric_is_refused_when_it_is_asked_for(runs: list[Path], tmp_path: Path) -> None:
    for name in ("masked", "whole"):
        write_run(tmp_path / f"seed4/scores/{name}", [0.5], [0.4], metric="f1")
    with pytest.raises(
        InputError, match=r"of scores/masked should have bleu, but .*seed4/scores/masked doesn't\. .* has bleu"
    ):
        table(*runs, tmp_path / "seed4", metrics=("bleu",))
    with pytest.raises(InputError, match=r"no metric is in all runs; the files have bleu, f1, meteor\."):
        table(*runs, tmp_path / "seed4")
    for metric in ("meteor", "files"):
        with pytest.raises(InputError, match=rf"should have {metric}, but .*seed1/scores/masked doesn't"):
            table(*runs, metrics=(metric,))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"test_set": {"file": "test.de", "sha256": "77"}}, r"test set \(sha256\) for bleu, but .* has 5f and .* 77"),
        ({"sentences": 21}, r"same number of sentences for bleu, but .* has 20 and .*seed4/scores/masked has 21"),
        ({"better": "lower"}, "same metric for bleu, but .*'higher'.* and .*'lower'"),
        ({"resampling": {"samples": SAMPLES, "seed": 2}}, "resampling for bleu, but .*'seed': 1.* and .*'seed': 2"),
        ({"twins": None}, "same resampling for bleu, but"),
        ({"twins": None, "resampling": {"samples": SAMPLES, "seed": 1}}, "same twin, or none, for bleu"),
    ],
)  # fmt: skip
def test_runs_that_were_not_evaluated_alike_are_refused(
    runs: list[Path], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    folder = write_run(tmp_path / "seed4/scores/masked", **{"values": [16.5], "twins": [15.0], **change})
    if "twins" in change and "resampling" in change:
        np.savez(folder / "resampled.npz", other=np.zeros(1))
    with pytest.raises(InputError, match=said):
        table(runs[0], tmp_path / "seed4", only=("scores/masked",))


def test_runs_of_another_convention_are_refused_where_they_say_it(tmp_path: Path) -> None:
    """Scores of before a metric had a convention don't."""
    seeds = []
    for number, convention in enumerate(("tok:13a", None, "tok:none"), 1):
        change = {"conventions": {"bleu": convention}} if convention else {}
        write_run(tmp_path / f"seed{number}/masked", [15.0 + number], [14.0], **change)
        seeds.append(tmp_path / f"seed{number}")
    assert table(*seeds[:2]) and table(*seeds[1:])
    with pytest.raises(InputError, match=r"same convention for bleu, but .*seed1/masked has tok:13a and .* tok:none"):
        table(*seeds)


def test_runs_whose_models_saw_other_images_are_refused(tmp_path: Path) -> None:
    def write(name: str, hypothesis: str | None, twin: str | None) -> Path:
        folder = write_run(tmp_path / name / "snli", [float(len(name))], [15.0])
        scores = json.loads((folder / "scores.json").read_text())
        for system, images in (("hypothesis", hypothesis), ("twin", twin)):
            scores["systems"][system] |= {"images": images} if images else {}
        (folder / "scores.json").write_text(json.dumps(scores))
        return tmp_path / name

    one = write("one", "congruent", "none")
    assert table(one, write("three", "congruent", "none"))
    for name, hypothesis, twin in (("changed", "none", "congruent"), ("shuffled", "shuffled", "none")):
        said = rf"same images, .* but .*one/snli has \('congruent', 'none'\) and .*{name}/snli has \('{hypothesis}'"
        with pytest.raises(InputError, match=said):
            table(one, write(name, hypothesis, twin))


def test_as_many_twins_as_seeds_are_needed(tmp_path: Path) -> None:
    systems = {
        "hypothesis": {"files": ["a", "b"], "bleu": {"values": [1.0, 2.0]}},
        "twin": {"files": ["c"], "bleu": {"values": [1.0]}},
    }
    write_run(tmp_path / "run/x", [1.0], systems=systems)
    with pytest.raises(InputError, match="run/x should have as many seeds of the twin as of the hypothesis"):
        table(tmp_path / "run")


def test_an_evaluation_that_was_killed_while_it_was_written_is_none(tmp_path: Path) -> None:
    write_run(tmp_path / "seed1/scores/x", [30.0])
    write_run(tmp_path / "seed1/scores/y.being-written", [30.0])
    assert list(find_evaluations(tmp_path / "seed1")) == ["scores/x"]
