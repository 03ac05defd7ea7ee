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

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, in_short
from ..storage.artefact import json_text
from ..storage.file_set import write_file_set

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


def write_score_files(folder: Path, scores: dict[str, Any], resampled: Mapping[str, np.ndarray]) -> None:
    """Write both files, or `scores.json` alone where nothing was resampled; together they are of one run.

    Raises:
        InputError: the folder can't be written.
    """
    files: dict[str, Any] = {SCORES: lambda path: path.write_text(json_text(scores), encoding="utf-8")}
    if resampled:
        files[RESAMPLED] = lambda path: _write_arrays(path, resampled)
    write_file_set(folder, files, SCORES)
    if not resampled:
        (folder / RESAMPLED).unlink(missing_ok=True)


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
        scores = json.loads(path.read_text(encoding="utf-8"))
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
    resampled: dict[str, np.ndarray] = {}
    if scores["resampling"]:
        try:
            with open(folder / RESAMPLED, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                resampled = {name: arrays[name] for name in arrays.files}
        except OSError as error:
            raise InputError(f"{folder / RESAMPLED} can't be read: {error.strerror or error}. {again}") from error
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{folder / RESAMPLED} should be arrays, but isn't: {in_short(error)}. {again}") from error
    _check_shapes(folder, scores, resampled)
    return ScoreFiles(folder, scores, resampled)


def _check_shapes(folder: Path, scores: dict[str, Any], resampled: Mapping[str, np.ndarray]) -> None:
    """Every metric of every system has as many values as the system has files, and as many rows of draws."""
    for system, described in scores["systems"].items():
        for metric in scores["metrics"] if described else ():
            if described.get(metric) is None:
                continue
            seeds, values = len(described["files"]), len(described[metric]["values"])
            rows = resampled[f"{system}.{metric}"].shape if f"{system}.{metric}" in resampled else None
            if values != seeds or (resampled and rows and rows != (seeds, scores["resampling"]["samples"])):
                raise InputError(
                    f"{folder} should have a value of {metric} and a row of draws for each of the {seeds} files of "
                    f"{system}, but has {values} values and draws {rows}. {_AGAIN.format(folder)}"
                )
