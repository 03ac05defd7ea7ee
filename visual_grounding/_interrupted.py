"""Ctrl-C while `visual-grounding` is still importing: one line, as later, and no traceback."""

import sys
from types import TracebackType

COMMAND = "visual-grounding"


def _say_it_in_a_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print(f"{COMMAND}: interrupted", file=sys.stderr)  # Python then ends by the signal, which a shell counts as 130
    else:
        sys.__excepthook__(kind, error, trace)


def _is_this_command() -> bool:
    """Whether this process runs our command, as a console script or by `python -m visual_grounding`."""
    program = getattr(sys, "argv", [""])[0]
    if program == "-m":  # what it is while Python looks for the module
        words = sys.orig_argv
        return words[words.index("-m") + 1 :][:1] == ["visual_grounding"]
    return program.rpartition("/")[2] == COMMAND


if _is_this_command():  # in other programs Ctrl-C is theirs
    sys.excepthook = _say_it_in_a_line
