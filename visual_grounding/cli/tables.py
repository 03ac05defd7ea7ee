"""Tables that a verb prints and writes: the same numbers as text, Markdown, LaTeX and JSON."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import printable

NONE = "–"  # in a cell without a number
_FORMATS = {"txt": "simple", "md": "pipe", "tex": "latex_booktabs"}  # of tabulate


def table_as(cells: Sequence[Sequence[str]], form: str) -> str:
    """A table in one of the formats; the first row has the heads, the first column names the rows."""
    from tabulate import tabulate

    cells = [[_in_cell(cell, form) for cell in row] for row in cells]
    sides = ("left", *["right"] * (len(cells[0]) - 1))
    return tabulate(cells[1:], cells[0], tablefmt=form, colalign=sides, disable_numparse=True)


def _in_cell(text: str, form: str) -> str:
    shown = printable(text)
    return shown.replace("|", r"\|") if form == "pipe" else shown


def in_form(text: str, form: str) -> str:
    r"""A line of text as a format needs it.

    >>> in_form("a_b: 5 % ± 1", "latex_booktabs"), in_form("a_b: 5 %", "pipe")
    ('a\\_b: 5 \\% $\\pm$ 1', 'a_b: 5 %')
    """
    if not form.startswith("latex"):
        return text
    return re.sub(r"([%&#_$])", r"\\\1", text).replace("±", r"$\pm$")


def write_tables(
    folder: Path | None, stem: str, text_of: Callable[[str], str], content: Callable[[], dict[str, Any]]
) -> str:
    """Write STEM.txt, STEM.md, STEM.tex and STEM.json; the last is there only with all others.

    Args:
        folder: where; None for nowhere.
        text_of: all tables in a format.
        content: everything, for programs.

    Returns:
        what to print.

    Raises:
        InputError: they can't be written.
    """
    from ..storage.artefact import json_text
    from ..storage.file_set import write_file_set

    texts = {f"{stem}.{ending}": text_of(form) for ending, form in _FORMATS.items()}
    if folder is not None:
        last = f"{stem}.json"
        files = {**texts, last: json_text(content())}
        writers = {name: partial(Path.write_text, data=text, encoding="utf-8") for name, text in files.items()}
        write_file_set(folder, writers, last)
    return texts[f"{stem}.txt"]
