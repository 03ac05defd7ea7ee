"""Flags of a command line, each read by its whole name: an abbreviation would be taken for whatever begins like it."""

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any


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
