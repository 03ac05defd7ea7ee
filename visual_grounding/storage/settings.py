"""Settings that others publish beside their weights: each is what it should be, or its file is refused.

Libraries take them as they come. What is of another type fails somewhere inside; a deviation of zeros, NaN or pictures
of a billion pixels don't fail at all, or only when the memory is full.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError


class SettingError(InputError):
    """A setting isn't what it should be; whoever knows of which file it is may say so, if this doesn't."""


class Wanted(NamedTuple):
    """What a setting should be.

    Attributes:
        words: for a message.
        holds: whether a value, as JSON gives it, is that.
    """

    words: str
    holds: Callable[[Any], bool]


def number(low: float, high: float) -> Wanted:
    """A number within bounds; NaN isn't.

    >>> number(0, 1).holds(0.5), number(0, 1).holds(float("nan")), number(0, 1).holds(True)
    (True, False, False)
    """
    return Wanted(f"a number from {low} to {high}", lambda value: _is_number(value) and low <= value <= high)


def whole_number(low: int, high: int) -> Wanted:
    """A whole number within bounds."""
    return Wanted(
        f"a whole number from {low} to {high}",
        lambda value: _is_number(value) and isinstance(value, int) and low <= value <= high,
    )


def one_of(*names: str) -> Wanted:
    """One of some names."""
    return Wanted(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


def listed(words: str, *parts: Wanted) -> Wanted:
    """A list of just these.

    >>> listed("a pair", number(0, 1), one_of("a")).holds([1, "a"]), listed("one", number(0, 1)).holds([1, 1])
    (True, False)
    """

    def holds(value: Any) -> bool:
        fits = isinstance(value, list | tuple) and len(value) == len(parts)
        return fits and all(part.holds(each) for part, each in zip(parts, value))

    return Wanted(words, holds)


TEXT = Wanted("text", lambda value: isinstance(value, str))
SWITCH = Wanted("true or false", lambda value: isinstance(value, bool))
TABLE = Wanted("a table", lambda value: isinstance(value, Mapping))


def check_settings(place: str | Path, settings: Any, wanted: Mapping[str, Wanted]) -> None:
    """Refuse settings that aren't what they should be; those that are missing have a default elsewhere.

    Args:
        place: the file that they are from.
        settings: name -> value, as JSON gives them.
        wanted: name -> what it should be.

    Raises:
        SettingError: they are no table, or the first setting isn't what it should be.
    """
    if not TABLE.holds(settings):
        raise SettingError(f"{place} should be a table of settings, but is {settings!r:.80}.")
    for name, (words, holds) in wanted.items():
        if name in settings and not holds(settings[name]):
            raise SettingError(f"{place} should have {words} as {name!r}, but has {settings[name]!r:.80}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
