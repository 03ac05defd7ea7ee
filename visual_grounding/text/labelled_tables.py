"""Labelled sentences in tables: SNLI, SICK, RTE and the rest of GLUE, JOCI, PDTB, or any table whose columns are named.

A table is TSV without quotes, as GLUE's are; CSV where its name ends in .csv; a JSON object a line where it ends in
.jsonl. Its first row names the columns; where columns are asked for by number there is no such row.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, in_short
from ..storage.lines import iterate_lines
from ..storage.outside import parse_json
from .labelled_text import Example, LabelledText, one_line

_SHOWN = 12  # columns that a message names


@dataclass(frozen=True)
class TableFormat:
    """How the tables of a task are called.

    Attributes:
        first, second, answer: names that the column has, in one release or another.
        single: whether there are tables of one sentence, too.
        values: names of columns whose answers are numbers.
        without: answers of rows that have none, such as SNLI's "-".
        names: other names of classes -> their own.
        least, most: of numbers; others are left out.
    """

    first: Sequence[str]
    second: Sequence[str]
    answer: Sequence[str]
    single: bool = False
    values: Sequence[str] = ()
    without: Sequence[str] = ("",)
    names: Mapping[str, str] = field(default_factory=dict)
    least: float = -math.inf
    most: float = math.inf


FORMATS = {
    "snli": TableFormat(
        ("sentence1", "premise", "text_a"),
        ("sentence2", "hypothesis", "text_b"),
        ("gold_label", "label"),
        without=("-", "-1", ""),
        names={"0": "entailment", "1": "neutral", "2": "contradiction"},
    ),
    "sick": TableFormat(
        ("sentence_A",),
        ("sentence_B",),
        ("entailment_label", "entailment_judgment"),
        values=("relatedness_score",),
    ),
    "rte": TableFormat(
        ("sentence1", "premise", "text_a"),
        ("sentence2", "hypothesis", "text_b"),
        ("label",),
        without=("-1", ""),
        names={"0": "entailment", "1": "not_entailment"},
    ),
    "glue": TableFormat(
        ("sentence1", "question1", "question", "premise", "text_a", "#1 String", "sentence"),
        ("sentence2", "question2", "sentence", "hypothesis", "text_b", "#2 String"),
        ("gold_label", "label", "is_duplicate", "Quality", "score"),
        single=True,
        values=("score",),
        without=("-", "-1", ""),
    ),
    "joci": TableFormat(("CONTEXT",), ("HYPOTHESIS",), ("LABEL",), values=("LABEL",), least=1, most=5),
    "pdtb": TableFormat(
        ("arg1", "Arg1", "Arg1_RawText"),
        ("arg2", "Arg2", "Arg2_RawText"),
        ("sense", "Sense", "ConnHeadSemClass1", "majoritylabel_sampled", "majoritylabel_sampled_qa"),
    ),
}


_NAMES = {name for of in FORMATS.values() for name in (*of.first, *of.second, *of.answer)}


@dataclass(frozen=True)
class TableChoices:
    """What was asked for of a table.

    Attributes:
        columns: of the sentences and, at the end, of the answer; none for the format's own.
        values: whether answers are numbers; None where the column says it.
        only: column -> the value that rows must have.
        level: of answers such as `Comparison.Contrast`, how many parts are kept; None for all.
    """

    columns: Sequence[str] = ()
    values: bool | None = None
    only: Mapping[str, str] = field(default_factory=dict)
    level: int | None = None


def read_table(path: Path, task: str, choices: TableChoices) -> tuple[LabelledText, bool]:
    """A table's examples, and whether their answers are numbers.

    Raises:
        InputError: it can't be read, lacks a column, or has an answer that should be a number but isn't; or no row has
            an example.
    """
    of = FORMATS[task]
    found = LabelledText()
    rows = _rows(path, choices.columns)
    header, _ = next(rows, ([], 0))
    columns = _columns(path, of, header, choices)
    unread = [name for name in header if name not in columns and name not in choices.only]
    found.columns = f"{', '.join(columns[:-1])} -> {columns[-1]}" + (
        f"; not read: {', '.join(unread)}" if unread else ""
    )
    values = choices.values
    if values is None:
        values = columns[-1] in of.values
    # What stands for "no answer", or for a class, in a task's own column is a number, or a name, in another.
    any_table = task == "glue" and bool(choices.columns)  # whose "-1" may be a class
    own = not values and columns[-1] in of.answer and not any_table
    without, classes = (of.without, of.names) if own else (("",), {})
    only = {name: _place(path, header, (name,)) for name in choices.only}
    others: dict[str, str] = {}  # what a row has that wasn't asked for
    for row, number in rows:
        found.rows += 1
        if len(row) != len(header):
            found.remarks[f"of {path} are left out, as they have not as many columns as the first."] += 1
            continue
        if any(row[place] != choices.only[name] for name, place in only.items()):
            others.update({name: row[place] for name, place in only.items() if name not in others})
            found.remarks[f"of {path} are left out, as they weren't asked for."] += 1
            continue
        *texts, answer = (_text(row[header.index(name)], f"{path}:{number}", name) for name in columns)
        if answer in without:
            found.remarks[f"of {path} are left out, as they have no answer."] += 1
            continue
        if values and not of.least <= _number(answer, f"{path}:{number}", columns[-1]) <= of.most:
            found.remarks[
                f"of {path} are left out, as their answer isn't from {of.least:g} to {of.most:g}: {columns[-1]}."
            ] += 1
            continue
        if not values:
            answer = classes.get(answer, answer)
            answer = ".".join(answer.split(".")[: choices.level])
        found.examples.append(Example(tuple(texts), (answer,)))
    if not found.examples and found.remarks[f"of {path} are left out, as they weren't asked for."] == found.rows > 0:
        wanted, has = (", ".join(f"{name}={of[name]}" for name in only) for of in (choices.only, others))
        raise InputError(
            f"{path} should have rows with {wanted}, but none of its {found.rows} has: one has {has}.", "only"
        )
    if not found.examples:
        raise InputError(f"{path} should have rows with sentences and an answer, but none of its {found.rows} has.")
    return found, values


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[list[Any], int]]:
    """The names of the columns, then each row; with the number of its line. What JSON has as lists stays so."""
    lines = iterate_lines(path)
    suffix = Path(path.stem).suffix if path.suffix in (".gz", ".zst") else path.suffix
    if suffix == ".jsonl":
        yield from _objects(path, lines)
        return
    style = {} if suffix == ".csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    reader = csv.reader((f"{line}\n" for line in lines), strict=True, **style)  # type: ignore[arg-type]
    csv.field_size_limit(2**31 - 1)  # parse trees are long
    try:
        for place, row in enumerate(reader):
            if not place and columns and all(name.isdecimal() for name in columns):
                named = [name for name in row if name in _NAMES]
                if named:
                    raise InputError(
                        f"{path} should have no names of columns in its first row, as they are chosen by number, but "
                        f"has {', '.join(named)}. Name them instead.",
                        "columns",
                    )
                yield [str(number) for number in range(1, len(row) + 1)], 0
            if row:
                yield row, reader.line_num
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num} should be a row of a table, but isn't: {error}.") from error


def _objects(path: Path, lines: Iterator[str]) -> Iterator[tuple[list[Any], int]]:
    names: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            read = parse_json(line)
        except ValueError as error:
            raise InputError(f"{path}:{number} should be a JSON object, but isn't: {in_short(error)}.") from error
        if not isinstance(read, dict):
            raise InputError(f"{path}:{number} should be a JSON object, but is {line[:80]}.")
        if not names:
            names = list(read)
            yield names, 0
        yield [_written(read[name]) for name in names if name in read], number


def _written(value: Any) -> Any:
    """A value of JSON as a table has it; lists and objects, which none has, as they are."""
    if isinstance(value, list | dict):
        return value
    return "" if value is None else str(value)


def _text(value: Any, place: str, column: str) -> str:
    if not isinstance(value, str):
        kind = "a list" if isinstance(value, list) else "an object"
        raise InputError(f"{place} should have text in column {column}, but has {kind}.", "columns")
    return one_line(value)


def _columns(path: Path, of: TableFormat, header: list[str], choices: TableChoices) -> list[str]:
    """The names of the columns of the sentences and of the answer."""
    if not header:
        raise InputError(f"{path} should be a table, but is empty.")
    if choices.columns:
        if len(set(choices.columns)) < len(choices.columns):
            raise InputError(
                f"columns of sentences and answer should differ, but are {', '.join(choices.columns)}.", "columns"
            )
        return [header[_place(path, header, (name,))] for name in choices.columns]
    first = _place(path, header, of.first)
    second = [name for name in of.second if name in header and header.index(name) != first]
    second = [header[_place(path, header, (name,))] for name in second[:1]]
    wanted = [header[first], *second, header[_place(path, header, of.answer)]]
    if not second and not of.single:
        _place(path, header, of.second)
    return wanted


def _place(path: Path, header: list[str], names: Sequence[str]) -> int:
    """Where the first of these columns is that there is.

    Raises:
        InputError: there is none of them, or two of it.
    """
    for name in names:
        if name in header:
            if header.count(name) > 1:
                raise InputError(
                    f"{path} should have one column {name}, but has {header.count(name)}. Rename the others."
                )
            return header.index(name)
    has = ", ".join(header[:_SHOWN]) + (", …" if len(header) > _SHOWN else "")
    raise InputError(f"{path} should have a column {' or '.join(names)}, but has {has}.", "columns")


def _number(answer: str, place: str, column: str) -> float:
    try:
        value = float(answer)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{place} should have a number in column {column}, but has {answer[:80]!r}.", "values")
    return value
