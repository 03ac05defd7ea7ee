"""Flags of a command line, each read by its whole name: an abbreviation would be taken for whatever begins like it."""

import argparse
import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from .errors import InputError

MOST = 2**31 - 1  # of whatever is counted: rows of a store and pieces of a text are such numbers
_MOST_OF_SEED = 2**63 - 1
_LETTERS = 100  # of a number


class FlagParser(argparse.ArgumentParser):
    """argparse's parser without abbreviations, which says of an unknown flag which ones are close to it.

    With abbreviations, `-n` given with two dashes would be `--nprobe`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; a mistake ends in `error`."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            close = [flag for word in unknown for flag in close_flags(word, self.shown_flags())]
            hint = f"; close to that: {', '.join(dict.fromkeys(close))}" if close else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """As argparse's, but no number beyond any use comes through: each verb would fail over it in its own way.

        Raises:
            InputError: NaN, infinity, more than anybody can count, or a seed below 0.
        """
        if action.type not in (int, float):
            return super()._get_value(action, arg_string)  # type: ignore[misc]
        flag = action.option_strings[-1] if action.option_strings else action.dest
        if len(arg_string) > _LETTERS:
            raise InputError(f"{flag} should be a number, but has {len(arg_string)} letters.")
        value = super()._get_value(action, arg_string)  # type: ignore[misc]
        seed = action.dest.endswith("seed")
        most = _MOST_OF_SEED if seed else MOST
        if not math.isfinite(value):
            raise InputError(f"{flag} should be a number, but is {arg_string}.")
        if abs(value) > most:
            raise InputError(f"{flag} should be {most} at most, but is {arg_string}.")
        if seed and value < 0:
            raise InputError(f"{flag} should be 0 or more, but is {arg_string}.")
        return value

    def shown_flags(self) -> list[str]:
        """Flags that the help shows."""
        return [flag for flag, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]


def see(flags: Sequence[str]) -> str:
    """Where a message's reader looks next; nothing without flags.

    >>> see(["--boxes", "--box-format", "--box-sizes"]), see(["--out"]), see([])
    (' See --boxes, --box-format and --box-sizes.', ' See --out.', '')
    """
    first, last = ", ".join(flags[:-1]), "".join(flags[-1:])
    return f" See {first} and {last}." if first else f" See {last}." if last else ""


def close_flags(word: str, flags: Sequence[str]) -> list[str]:
    """Flags that may be meant by a word: those that begin with it, and those that are spelled nearly so.

    >>> close_flags("--text=F", ["--text-encoder", "--out"]), close_flags("-text", ["--text"])
    (['--text-encoder'], ['--text'])
    >>> close_flags("3", ["-3"])
    []
    """
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return []
    begun = [flag for flag in flags if name.startswith("--") and flag.startswith(name)]
    return list(dict.fromkeys([*begun, *get_close_matches(name, flags, cutoff=0.75)]))
