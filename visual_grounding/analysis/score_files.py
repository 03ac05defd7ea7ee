"""The folder that `evaluate` leaves for one test set, which `report runs` reads: `scores.json` and `resampled.npz`.

`scores.json` has, whatever was evaluated:

| key | |
| --- | --- |
| `sentences`, `test_set` | how many, and the file and sha256 of what is right |
| `metrics` | name -> `label`, `better` ("higher" or "lower"), `percent` (kept as a fraction, shown in percent) |
| `systems` | `hypothesis` and `twin` or None: `files`, one a seed, and of each metric the `values`, or None |
| `resampling` | `samples` and `seed` of the draws of sentences; None where there is no twin |

`resampled.npz` has each metric on each of these draws, an array (seeds, K) called `SYSTEM.METRIC`. Draws depend on
their seed and the number of sentences alone, so those of other runs on the same test set are the same draws: what
varies with the sentences can be told from what varies with the seed (`seeds.py`), for any metric, from numbers alone.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, in_short
from ..storage.artefact import json_text
from ..storage.file_set import write_file_set
from ..storage.outside import check_archive, open_file, read_json

SCORES, RESAMPLED = "scores.json", "resampled.npz"
_AGAIN = "Make it again: visual-grounding evaluate … --out {}"


class ScoreFiles(NamedTuple):
    """What one folder holds.

    Attributes:
        folder: where it is.
        scores: `scores.json`.
        resampled: `SYSTEM.METRIC` -> (seeds, K); empty without a twin.
    """

    folder: Path
    scores: dict[str, Any]
    resampled: dict[str, np.ndarray]


def described_metric(label: str, *, better: str = "higher", percent: bool = False) -> dict[str, Any]:
    """An entry of `metrics`."""
    return {"label": label, "better": better, "percent": percent}


def write_score_files(
    folder: Path,
    scores: dict[str, Any],
    resampled: Mapping[str, np.ndarray],
    others: Mapping[str, Callable[[Path], object]] | None = None,
) -> None:
    """Write both files, or `scores.json` alone where nothing was resampled; together they are of one run.

    Args:
        others: as `write_file_set`: what else belongs to this run.

    Raises:
        InputError: the folder can't be written.
    """
    files: dict[str, Any] = dict(others or {})
    files[SCORES] = lambda path: path.write_text(json_text(scores), encoding="utf-8")
    if resampled:
        files[RESAMPLED] = lambda path: _write_arrays(path, resampled)
    write_file_set(folder, files, SCORES, [RESAMPLED])


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with open(path, "wb") as file:  # numpy would add a suffix to a name
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_score_files(folder: Path) -> ScoreFiles:
    """Read what `write_score_files` wrote.

    Raises:
        InputError: it isn't there, can't be read, or was written by an earlier version.
    """
    path = folder / SCORES
    again = _AGAIN.format(folder)
    try:
        scores = read_json(path)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}. {again}") from error
    except ValueError as error:
        raise InputError(f"{path} should be JSON, but isn't: {in_short(error)}. {again}") from error
    wanted = ("sentences", "test_set", "metrics", "systems", "resampling")
    missing = [key for key in wanted if not isinstance(scores, dict) or key not in scores]
    if missing:
        raise InputError(
            f"{path} should have {', '.join(wanted)}, as `evaluate` writes them, but {', '.join(missing)} is missing: "
            f"it is of an earlier version or another program. {again}"
        )
    wrong = next(_wrong_in(scores), None)
    if wrong is not None:
        raise InputError(f"{path} should be as `evaluate` writes it, but {wrong}. {again}")
    resampled: dict[str, np.ndarray] = {}
    if scores["resampling"]:
        try:
            with open_file(folder / RESAMPLED) as file, np.load(file, allow_pickle=False) as arrays:
                check_archive(arrays)
                resampled = {name: arrays[name] for name in arrays.files}
        except OSError as error:
            raise InputError(f"{folder / RESAMPLED} can't be read: {error.strerror or error}. {again}") from error
        except Exception as error:  # numpy, zipfile and zlib fail in many ways on a broken file
            raise InputError(f"{folder / RESAMPLED} should be arrays, but isn't: {in_short(error)}. {again}") from error
    _check_shapes(folder, scores, resampled)
    return ScoreFiles(folder, scores, resampled)


def _wrong_in(scores: dict[str, Any]) -> Iterator[str]:
    """What is of another form than the module's table says."""

    def is_table(value: Any) -> bool:
        return isinstance(value, dict)

    def is_count(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300  # NaN is none

    if not is_count(scores["sentences"]):
        yield f"has {scores['sentences']!r:.80} as sentences"
    for name in ("test_set", "metrics", "systems", "conventions", "meta"):
        if not is_table(scores.get(name, {})):
            yield f"has {scores[name]!r:.80} as {name}"
    if not isinstance(scores["test_set"].get("sha256"), str):
        yield "has no sha256 of the test set"
    digests = scores.get("meta", {}).get("sha256", {})
    if not is_table(digests) or not all(isinstance(digest, str) for digest in digests.values()):
        yield "has no sha256 by file"
    for name, metric in scores["metrics"].items():
        if not is_table(metric) or not isinstance(metric.get("label"), str) or "percent" not in metric:
            yield f"describes the metric {name!r:.80} in another way"
        elif metric.get("better") not in ("higher", "lower"):
            yield f"says {metric.get('better')!r:.80} of what is better in {name!r:.80}"
    if not is_table(scores["systems"].get("hypothesis")):
        yield "has no hypothesis among its systems"
    for name, system in scores["systems"].items():
        if system is None:
            continue
        files = system.get("files") if is_table(system) else None
        if not isinstance(files, list) or not files or not all(isinstance(file, str) for file in files):
            yield f"has no list of files of {name!r:.80}"
            continue
        for metric in scores["metrics"]:
            found = system.get(metric)
            values = found.get("values") if is_table(found) else None
            if found is not None and not (isinstance(values, list) and all(map(is_number, values))):
                yield f"has no list of numbers as the values of {metric!r:.80}"
    draws = scores["resampling"]
    if draws is not None and not (is_table(draws) and is_count(draws.get("samples"))):
        yield f"has {draws!r:.80} as resampling"


def _check_shapes(folder: Path, scores: dict[str, Any], resampled: Mapping[str, np.ndarray]) -> None:
    """Every metric of every system has as many values as the system has files, and as many rows of draws."""
    for system, described in scores["systems"].items():
        for metric in scores["metrics"] if described else ():
            if described.get(metric) is None:
                continue
            seeds, values = len(described["files"]), len(described[metric]["values"])
            drawn = resampled.get(f"{system}.{metric}")
            rows = None if drawn is None else drawn.shape
            if drawn is not None and drawn.dtype.kind not in "iuf":
                raise InputError(
                    f"{folder / RESAMPLED} should hold numbers, but {system}.{metric} is of type {drawn.dtype}. "
                    f"{_AGAIN.format(folder)}"
                )
            if drawn is not None and not np.isfinite(drawn).all():
                raise InputError(
                    f"{folder / RESAMPLED} should hold numbers, but {system}.{metric} holds NaN or infinity. "
                    f"{_AGAIN.format(folder)}"
                )
            if values != seeds or (resampled and rows and rows != (seeds, scores["resampling"]["samples"])):
                raise InputError(
                    f"{folder} should have a value of {metric} and a row of draws for each of the {seeds} files of "
                    f"{system}, but has {values} values and draws {rows}. {_AGAIN.format(folder)}"
                )
