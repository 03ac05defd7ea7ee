"""Findings: what a check has to say, and what to do about it."""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from ..errors import InputError


class Level(Enum):
    """How bad it is. Only `WRONG` makes a set-up unfit."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


class Finding(NamedTuple):
    """One sentence or two about one thing.

    Attributes:
        remedy: the command to type next, where there is one.
        choices: arguments that it is about, as an `InputError` has them.
    """

    level: Level
    text: str
    remedy: str = ""
    choices: tuple[str, ...] = ()


def ok(text: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, text)


def note(text: str, remedy: str = "") -> Finding:
    """Worth knowing, but no fault."""
    return Finding(Level.NOTE, text, remedy)


def wrong(text: str, remedy: str = "") -> Finding:
    """A fault."""
    return Finding(Level.WRONG, text, remedy)


def findings_of(check: Callable[[], Iterable[Finding]], subject: str) -> Iterator[Finding]:
    """Run one check to its end; whatever stops it is a finding, too, so that the next check still runs.

    >>> def check():
    ...     yield ok("one")
    ...     raise InputError("two is broken.")
    >>> [finding.text for finding in findings_of(check, "numbers")]
    ['one', 'two is broken.']
    """
    try:
        yield from check()
    except InputError as error:
        yield Finding(Level.WRONG, str(error), choices=error.choices)
    except Exception as error:  # broken packages and files fail in many ways, and the other checks are still wanted
        reason = " ".join(str(error).split())[:300] or "no reason given"
        yield wrong(f"{subject} can't be checked: {type(error).__name__}: {reason}")
