"""Ctrl-C while `visual-grounding` is still importing: one line, as later, and no traceback."""

import sys
from types import TracebackType

COMMAND = "visual-grounding"


def _say_it_in_a_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print(f"{COMMAND}: interrupted", file=sys.stderr)  # Python then ends by the signal, which a shell counts as 130
    else:
        sys.__excepthook__(kind, error, trace)


# Of this command alone: in other programs Ctrl-C is theirs.
if getattr(sys, "argv", [""])[0].rpartition("/")[2] == COMMAND:
    sys.excepthook = _say_it_in_a_line
