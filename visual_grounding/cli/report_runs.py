"""Several runs, one a seed, in one table: mean, spread and median, each seed's difference to its twin, and one test.

    visual-grounding report runs seed1 seed2 seed3 --out table

A run's folder has in it, at any depth, folders that `evaluate` (or `evaluate contrastive`) wrote; those at the same
place in each run are seeds of the same system. Runs of other test sets, or scored in another way, are refused. The test
is over seeds and sentences, two-sided, and `p, Holm` is corrected for the number of rows of a metric: choose those that
you make a claim of with --only before you look. docs/evaluation.md says how.

DIR/runs.txt, runs.md, runs.tex and runs.json have the same numbers.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import warn
from .scoring import small_p
from .tables import NONE, in_form, table_as, write_tables

if TYPE_CHECKING:
    from ..analysis.runs import OverSeeds, Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and what to show of them."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of one run, with what evaluate wrote")
    parser.add_argument("--metric", nargs="+", default=[], metavar="NAME", help="metrics (default: all that all have)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PATTERN", help="evaluations, such as 'masked.*' (default: all)"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the tables")


def run(args: argparse.Namespace) -> None:
    """Read all runs, test, print the table, write it in four formats.

    Raises:
        InputError: runs that can't be compared, or an output that can't be written.
    """
    from ..analysis.runs import doubts, read_runs, tabulate_runs

    evaluations = read_runs(args.runs, args.only)
    rows = tabulate_runs(args.runs, evaluations, args.metric)
    for warning in doubts(rows, evaluations):
        warn(warning)
    print(write_tables(args.out, "runs", lambda form: _text(rows, form), lambda: _as_json(args, rows)), end="")


def _as_json(args: argparse.Namespace, rows: Sequence["Row"]) -> dict[str, Any]:
    """Everything, for programs; fractions stay fractions."""
    from .._version import __version__

    described = []
    for row in rows:
        entry = row._asdict()
        for name in ("hypothesis", "twin", "test"):
            entry[name] = entry[name] and entry[name]._asdict()
        described.append(entry)
    return {
        "runs": [str(path) for path in args.runs],
        "only": args.only,
        "rows": described,
        "test": "t-test over seeds and sentences, two-sided; p_holm is corrected for the rows of a metric",
        "versions": {"visual_grounding": __version__},
    }


def _text(rows: Sequence["Row"], form: str) -> str:
    """Two tables for each metric: over the seeds, and seed by seed."""
    parts = []
    for metric in dict.fromkeys(row.metric for row in rows):
        of_metric = [row for row in rows if row.metric == metric]
        parts += [_heading(of_metric, form), table_as(_over_seeds(of_metric), form)]
        parts += [table_as(table, form) for table in _seed_by_seed(of_metric)]
    return "\n\n".join(parts) + "\n"


def _heading(rows: Sequence["Row"], form: str) -> str:
    """What the tables below it show."""
    unit = ", %" if rows[0].percent and "%" not in rows[0].label else ""
    seeds = sorted({len(row.seeds) for row in rows})
    count = " or ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")
    tests = sum(row.test is not None for row in rows)
    heading = f"{rows[0].label}{unit}: {rows[0].better} is better; {count}, mean ± standard deviation (median)"
    if tests:
        over = "sentences" if seeds == [1] else "seeds and sentences"
        heading += f"; two-sided t-test over {over}" + (f", Holm over {tests} rows" if tests > 1 else "")
    return in_form(heading, form)


def _over_seeds(rows: Sequence["Row"]) -> list[list[str]]:
    columns = ["", "sentences", "hypothesis", "twin", "difference", "95 % interval", "p", "p, Holm", "better in"]
    table, number = [columns], _format_of(rows)
    for row in rows:
        cells = [_name(row), str(row.sentences), _spread(row.hypothesis, number), *[NONE] * 6]
        if row.twin:
            cells[3] = _spread(row.twin, number)
            cells[4] = number(row.hypothesis.mean - row.twin.mean, "+")
            cells[8] = f"{row.better_seeds} of {len(row.seeds)}"
        if row.test:
            cells[5] = f"{number(row.test.low, '+')} … {number(row.test.high, '+')}"
            cells[6] = _p(row.test.p_value)
            cells[7] = _p(row.p_holm)
        table.append(cells)
    return table


def _seed_by_seed(rows: Sequence["Row"]) -> list[list[list[str]]]:
    """Each seed's value, and in brackets its difference to its twin; rows with the same seeds share a table."""
    tables, number = [], _format_of(rows)
    for seeds in dict.fromkeys(tuple(row.seeds) for row in rows):
        table = [["", *seeds]]
        for row in rows:
            if tuple(row.seeds) == seeds:
                table.append([_name(row), *(_value(row, place, number) for place in range(len(seeds)))])
        tables.append(table)
    return tables


def _format_of(rows: Sequence["Row"]) -> Callable[..., str]:
    """How numbers of a metric are written: with two decimals, in percent or not; with four where all are below 1."""
    scale = 100 if rows[0].percent else 1
    highest = max(abs(value) for row in rows for value in row.hypothesis.values)
    decimals = 4 if scale * highest < 1 else 2
    return lambda value, sign="": f"{scale * value:{sign}.{decimals}f}"


def _value(row: "Row", place: int, number: Callable[..., str]) -> str:
    value = row.hypothesis.values[place]
    if row.twin is None:
        return number(value)
    return f"{number(value)} ({number(value - row.twin.values[place], '+')})"


def _name(row: "Row") -> str:
    return "all" if row.name == "." else row.name


def _spread(scores: "OverSeeds", number: Callable[..., str]) -> str:
    if scores.std is None:
        return number(scores.mean)
    return f"{number(scores.mean)} ± {number(scores.std)} ({number(scores.median)})"


def _p(value: float | None) -> str:
    return NONE if value is None else small_p(value)
