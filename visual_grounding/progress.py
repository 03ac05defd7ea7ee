"""Progress on standard error: a bar on a terminal, a line now and then in a log."""

import sys
from typing import Any, TextIO

from tqdm import tqdm

LOG_SECONDS = 30.0
_SAID = "{percentage:3.0f}%{bar_part} {n_fmt}/{total_fmt}{unit}, {rate_noinv_fmt}, {elapsed} so far, {remaining} left"

_SAID_OF_ANY = "{n_fmt}{unit}, {rate_noinv_fmt}, {elapsed} so far"  # where nobody knows how many there are
_shown = True


def show_progress(shown: bool) -> None:
    """Show bars from here on in this process, or none."""
    global _shown
    _shown = shown


def progress_is_shown() -> bool:
    """Whether bars are shown, for those of other libraries."""
    return _shown


class _Lines:
    """A log instead of a terminal: each state of the bar is a line of its own, without control characters."""

    def __init__(self, log: TextIO) -> None:
        self._log = log
        self._last = ""

    def write(self, text: str) -> None:
        """Write a state; what only moves a cursor, or says the same again, is dropped."""
        line = " ".join(text.split())
        if line and line != self._last:
            self._log.write(line + "\n")
            self._last = line

    def flush(self) -> None:
        """Let it be seen."""
        self._log.flush()


def progress_bar(total: int | None, done: int, unit: str, shown: bool = True, log_seconds: float = LOG_SECONDS) -> Any:
    """A progress bar that says percent, count, rate and time left; use it in a `with` and `update(n)` it.

    Args:
        total: of units; None where it isn't known.
        done: how many an earlier run has finished; they don't count for the rate.
        unit: the plural noun.
        shown: False for none.
        log_seconds: seconds between two lines where standard error is no terminal.
    """
    common = {"total": total, "initial": done, "unit": f" {unit}", "disable": not (shown and _shown), "smoothing": 0.1}
    said = _SAID_OF_ANY if total is None else _SAID
    if sys.stderr.isatty():
        return tqdm(bar_format=said.replace("{bar_part}", "|{bar}|"), dynamic_ncols=True, **common)
    said = said.replace("{bar_part}", "")
    # Both intervals, since tqdm's monitor would write after every ten seconds.
    return tqdm(bar_format=said, file=_Lines(sys.stderr), mininterval=log_seconds, maxinterval=log_seconds, **common)
