"""Ctrl-C while `visual-grounding` is still importing: one line, as later, and no traceback.

An exception wouldn't do: raised while a module is loaded or an object deleted it may be caught or only be printed, and
the command would go on. So the process ends at once, as by the signal; nothing has been written yet. What comes still
earlier, while Python itself starts, is Python's to say.
"""

import os
import signal
import sys
from contextlib import suppress

COMMAND = "visual-grounding"


def _end(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    with suppress(OSError):  # nobody reads it
        os.write(2, f"{COMMAND}: interrupted\n".encode())
    os.kill(os.getpid(), number)  # so that a shell counts it as 130, and ends its loop


def imported() -> None:
    """From here on Ctrl-C is an exception again, and the verb says what becomes of its work."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_this_command() -> bool:
    """Whether this process runs our command, as a console script or by `python -m visual_grounding`."""
    program = getattr(sys, "argv", [""])[0]
    words = sys.orig_argv
    if any(word.startswith("from multiprocessing") for word in words):
        return False  # a worker of it: the command speaks for all
    if program == "-m":  # what it is while Python looks for the module
        return words[words.index("-m") + 1 :][:1] == ["visual_grounding"]
    return program.rpartition("/")[2] == COMMAND


# In other programs Ctrl-C is theirs, and so it is where a shell started this one to ignore it.
if _is_this_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
