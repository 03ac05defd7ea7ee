"""Several runs, one a seed, in one table: what `evaluate` and its kind left in their folders, put together and tested.

An evaluation is a folder with `scores.json` (`score_files.py`); its place inside a run's folder is its name, so that
`seed1/scores/masked` and `seed2/scores/masked`, found under `seed1` and `seed2`, are two seeds of `scores/masked`.
Which metrics there are, and whether higher is better, the files say. What would make two values incomparable is
refused; the test is that of `seeds.py`, and p is corrected by Holm's method for the number of evaluations in the
table, each metric by itself.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..storage.whole_folder import BESIDE
from .score_files import SCORES, ScoreFiles, read_score_files
from .seeds import SeedsTest, compare_over_seeds, holm

SYSTEMS = ("hypothesis", "twin")
_SAME_TEXT = "Evaluate all runs on the same files, with the same flags, or name them apart."


class OverSeeds(NamedTuple):
    """One metric of one system over n seeds; no deviation (n - 1) for a single one."""

    mean: float
    std: float | None
    median: float
    values: list[float]


class Row(NamedTuple):
    """One metric of one evaluation over all runs.

    Attributes:
        name: the evaluation's folder inside a run's.
        metric: its name in the files.
        label: its name for readers.
        better: "higher" or "lower".
        percent: the values are fractions, which readers see in percent.
        sentences: size of the test set.
        seeds: what each value is of: the run, and the file where a run has several.
        hypothesis: the system's values.
        twin: those of what it is compared with, if there is such.
        test: of the difference, if there is a twin.
        p_holm: `test.p_value`, corrected for the number of rows that have this metric and a test.
        better_seeds: in how many seeds the system is better than its twin.
    """

    name: str
    metric: str
    label: str
    better: str
    percent: bool
    sentences: int
    seeds: list[str]
    hypothesis: OverSeeds
    twin: OverSeeds | None
    test: SeedsTest | None
    p_holm: float | None
    better_seeds: int | None


def find_evaluations(run: Path, only: Sequence[str] = ()) -> dict[str, Path]:
    """The folders with scores in a run's folder, by their place in it.

    Args:
        run: the folder.
        only: patterns such as `masked.*`, one of which a name has to fit; all names without any.

    Raises:
        InputError: there is no folder, or no such evaluation in it.
    """
    if not run.is_dir():
        raise InputError(f"{run} should be the folder of a run, but there is no such folder.")
    folders = [path.parent for path in sorted(run.rglob(SCORES))]
    # One that is being written, or was when it was killed, is none yet.
    found = {folder.relative_to(run).as_posix(): folder for folder in folders if not folder.name.endswith(BESIDE)}
    if not found:
        raise InputError(
            f"{run} should have folders that `evaluate` wrote, but has no {SCORES} in it. Make one: "
            f"visual-grounding evaluate … --out {run}/NAME"
        )
    chosen = {name: path for name, path in found.items() if not only or any(fnmatch(name, each) for each in only)}
    unfit = [each for each in only if not any(fnmatch(name, each) for name in found)]
    if unfit:
        raise InputError(f"{run} should have an evaluation that fits {unfit[0]}, but has {', '.join(found)}.", "only")
    return chosen


def read_runs(runs: Sequence[Path], only: Sequence[str] = ()) -> dict[str, list[ScoreFiles]]:
    """Every evaluation of all runs: name -> what each run has of it, in the order of the runs.

    Raises:
        InputError: as `find_evaluations` and `read_score_files`; a run is given twice, or lacks what others have.
    """
    places = [run.resolve() for run in runs]
    twice = next((run for place, run in zip(places, runs) if places.count(place) > 1), None)
    if twice is not None:
        raise InputError(f"each run should be given once, but {twice} is given twice.")
    found = [find_evaluations(run, only) for run in runs]
    for run, names in zip(runs, found):
        for other, others in zip(runs, found):
            missing = [name for name in others if name not in names]
            if missing:
                raise InputError(
                    f"all runs should have the same evaluations, but {run} lacks {len(missing)} of those of {other}: "
                    f"{', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}. Evaluate {run} to its end, leave it "
                    "out, or choose the evaluations that all have.",
                    "only",
                )
    return {name: [read_score_files(names[name]) for names in found] for name in found[0]}


def tabulate_runs(
    runs: Sequence[Path], evaluations: Mapping[str, Sequence[ScoreFiles]], metrics: Sequence[str] = ()
) -> list[Row]:
    """A row for each metric and evaluation, metric by metric.

    Args:
        runs: the folders, in the order of what each evaluation has.
        evaluations: as `read_runs` returns them.
        metrics: which; without any, all that every run of an evaluation has.

    Raises:
        InputError: runs of one evaluation can't be compared, or lack a metric that is asked for.
    """
    known = sorted({metric for files in evaluations.values() for each in files for metric in each.scores["metrics"]})
    rows = []
    for metric in metrics or known:
        of_metric = []
        for name, files in evaluations.items():
            if not metrics and not all(_values(each, "hypothesis", metric) for each in files):
                continue
            of_metric.append(_row(name, metric, runs, files))
        corrected = iter(holm([row.test.p_value for row in of_metric if row.test]))
        rows += [row._replace(p_holm=next(corrected)) if row.test else row for row in of_metric]
    if not rows:
        raise InputError(f"no metric is in all runs; the files have {', '.join(known)}.", "metric")
    return rows


def _values(files: ScoreFiles, system: str, metric: str) -> list[float] | None:
    """A system's values of a metric, if they are there."""
    if metric not in files.scores["metrics"]:
        return None
    described = (files.scores["systems"].get(system) or {}).get(metric)
    return described["values"] if described else None


def _row(name: str, metric: str, runs: Sequence[Path], files: Sequence[ScoreFiles]) -> Row:
    _check_comparable(name, metric, files)
    described = files[0].scores["metrics"][metric]
    values = {system: [value for each in files for value in _values(each, system, metric) or ()] for system in SYSTEMS}
    seeds = []
    for run, each in zip(_names(runs), files):
        several = len(_values(each, "hypothesis", metric) or ()) > 1
        seeds += [f"{run} {Path(path).name}" if several else run for path in _files(each, metric)]
    test = better_seeds = None
    if values["twin"]:
        deltas = np.subtract(values["hypothesis"], values["twin"])
        better_seeds = int(np.count_nonzero(deltas > 0 if described["better"] == "higher" else deltas < 0))
        drawn = [
            each.resampled[f"hypothesis.{metric}"] - each.resampled[f"twin.{metric}"]
            for each in files
            if f"hypothesis.{metric}" in each.resampled and f"twin.{metric}" in each.resampled
        ]
        if len(drawn) == len(files) and files[0].scores["resampling"]["samples"] > 1:
            test = compare_over_seeds(deltas, np.concatenate(drawn), files[0].scores["sentences"])
    return Row(
        name,
        metric,
        described["label"],
        described["better"],
        bool(described["percent"]),
        files[0].scores["sentences"],
        seeds,
        _over_seeds(values["hypothesis"]),
        _over_seeds(values["twin"]) if values["twin"] else None,
        test,
        None,
        better_seeds,
    )


def _names(runs: Sequence[Path]) -> list[str]:
    """What tables call the runs: their folders' own names, or the whole paths where these don't tell them apart."""
    names = [run.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def _files(files: ScoreFiles, metric: str) -> list[str]:
    return files.scores["systems"]["hypothesis"]["files"] if _values(files, "hypothesis", metric) else []


def _over_seeds(values: list[float]) -> OverSeeds:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return OverSeeds(statistics.fmean(values), deviation, statistics.median(values), values)


def _check_comparable(name: str, metric: str, files: Sequence[ScoreFiles]) -> None:
    """Insist that all runs of an evaluation have the metric, on the same test set, computed alike, of other files."""
    without = [each.folder for each in files if not _values(each, "hypothesis", metric)]
    if without:
        have = ", ".join(key for key in files[0].scores["metrics"] if _values(files[0], "hypothesis", key))
        raise InputError(
            f"all runs of {name} should have {metric}, but {without[0]} doesn't. {files[0].folder} has {have}.",
            "metric",
        )
    for what, look in (
        ("test set (sha256)", lambda each: each.scores["test_set"]["sha256"]),
        ("number of sentences", lambda each: each.scores["sentences"]),
        ("metric", lambda each: each.scores["metrics"][metric]),
        ("convention", lambda each: each.scores.get("conventions", {}).get(metric)),
        ("resampling", lambda each: each.scores["resampling"]),
        ("images, hypothesis and twin,", _images),
        ("twin, or none,", lambda each: bool(_values(each, "twin", metric))),
    ):
        # Scores of before a metric had a convention don't say it.
        said = [each for each in files if what != "convention" or look(each) is not None]
        for each in said[1:]:
            if look(each) != look(said[0]):
                raise InputError(
                    f"all runs of {name} should have the same {what} for {metric}, but {said[0].folder} has "
                    f"{look(said[0])} and {each.folder} has {look(each)}. {_SAME_TEXT}"
                )
    for each in files:
        if each.scores["systems"].get("twin") and len(_values(each, "twin", metric) or ()) not in (
            0,
            len(_values(each, "hypothesis", metric) or ()),
        ):
            raise InputError(f"{each.folder} should have as many seeds of the twin as of the hypothesis. {_SAME_TEXT}")
    _refuse_copies(name, files)


def _images(files: ScoreFiles) -> tuple[Any, ...]:
    """Which images each system saw, as an evaluation of models says; None of what isn't said."""
    return tuple((files.scores["systems"].get(system) or {}).get("images") for system in ("hypothesis", "twin"))


def _refuse_copies(name: str, files: Sequence[ScoreFiles]) -> None:
    """The same file of translations in two runs is one seed, counted twice."""
    seen: dict[str, Path] = {}
    for each in files:
        digests = each.scores.get("meta", {}).get("sha256", {})
        for path in each.scores["systems"]["hypothesis"]["files"]:
            digest = digests.get(path)
            if digest in seen:
                raise InputError(
                    f"each run of {name} should have outputs of its own, but {each.folder} was made from the same file "
                    f"as {seen[digest]}: {path} (sha256 {digest[:8]}). Evaluate each seed's own."
                )
            if digest:
                seen[digest] = each.folder


def doubts(rows: Sequence[Row], evaluations: Mapping[str, Sequence[ScoreFiles]]) -> Iterator[str]:
    """Warnings: a single seed; seeds that don't differ at all, as copies of one run don't."""
    if any(len(row.seeds) == 1 for row in rows):
        yield (
            "there is one seed, whose spread is unknown: intervals and p-values are of the sentences alone, and "
            "another seed may turn them. Give several runs."
        )
    for system in SYSTEMS:
        still = [name for name, files in evaluations.items() if _repeats(system, files)]
        if still:
            yield (
                f"{len(still)} of {len(evaluations)} evaluations have the same numbers for two seeds of the {system}, "
                f"the first is {still[0]}. If these are copies of one run, they are one seed, counted twice."
            )


def _repeats(system: str, files: Sequence[ScoreFiles]) -> bool:
    """Whether two seeds have the same value of every metric on every draw."""
    seeds: list[Any] = []
    for each in files:
        names = sorted(name for name in each.resampled if name.startswith(f"{system}."))
        if names:
            seeds += [
                b"".join(rows.tobytes() for rows in together) for together in zip(*map(each.resampled.get, names))
            ]
    return len(set(seeds)) < len(seeds)
