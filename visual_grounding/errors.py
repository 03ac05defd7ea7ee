"""What users meet: the one exception, by which their input is wrong and how to mend it, and warnings; both in short."""

import math
import os
import re
import sys
import traceback
from unicodedata import category

_NUMBERED = re.compile(r"\[Errno -?\d+\] ")  # before what an OSError says
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control and format characters, halves of characters, ends of lines


class InputError(ValueError):
    """What must hold, the expected value and its origin, the actual value, the place, the next command.

    The command line, and fairseq's commands running this plugin, print the message alone and exit with status 2.

    Args:
        message: speaks of things ("the batch size should be …"), since the rooms below the command line know no flags.
        choices: the arguments that it is about, such as "batch_size"; the command line adds their flags.
    """

    def __init__(self, message: str, *choices: str) -> None:
        super().__init__(printable(_NUMBERED.sub("", message)))
        self.choices = choices


_MOST_WORKERS = 4096
MOST_WEIGHT = 1e6
_LETTERS = 1600  # of a whole message, beside the end that says what to do


def printable(message: str, letters: int = 400) -> str:
    """A message that a terminal can show: what a file brought into it is escaped, and shortened where it has no end.

    >>> printable("should be a name, but is 'a\\x1b[2Jb'"), len(printable("x" * 10**6)) < 450
    ("should be a name, but is 'a\\\\x1b[2Jb'", True)
    """
    if len(message) > 100 * letters:  # a file of a megabyte, say: nobody reads what is between
        message = f"{message[: 50 * letters]}…{message[-50 * letters :]}"
    shown = "".join(ascii(letter)[1:-1] if category(letter) in _UNSEEN else letter for letter in message)
    shown = re.sub(rf"\S{{{letters},}}", lambda word: f"{word[0][: letters // 2]}…{word[0][-letters // 4 :]}", shown)
    return shown if len(shown) <= _LETTERS + letters else f"{shown[:_LETTERS]}…{shown[-letters:]}"


def warn(message: str) -> None:
    """Tell a person on stderr of what they may not have meant, as the message of an `InputError` is told."""
    print(f"warning: {printable(message)}", file=sys.stderr)


def first_line(error: BaseException) -> str:
    """What a library's error says, in short, for a message of our own."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:200]


def in_short(error: BaseException, letters: int = 200) -> str:
    """All that a library's error says, on one line and without a full stop; as `first_line` where one line tells all.

    >>> in_short(OSError("no such    column."))
    'no such column'
    """
    return (" ".join(str(error).split())[:letters] or type(error).__name__).rstrip(".")


def where_it_failed(error: BaseException) -> str:
    """As `in_short`, and the line of code that said so: what fails on somebody's settings may be ours to mend.

    >>> try: {}["a"]
    ... except KeyError as error: where_it_failed(error).partition(" (")[0]
    "'a'"
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{in_short(error)}{place}"


def is_of_memory(error: BaseException) -> bool:
    """Whether there wasn't enough of it, which says nothing of what was read.

    >>> is_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to")), is_of_memory(KeyError())
    (True, False)
    """
    said = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(words in str(error) for words in said)


def check_workers(workers: int) -> None:
    """Refuse more workers than any machine has use for, before they are started one by one.

    Raises:
        InputError: there are.
    """
    if workers > _MOST_WORKERS:
        raise InputError(f"workers should be at most {_MOST_WORKERS}, but are {workers}.", "workers")


def check_weight(flag: str, weight: float) -> None:
    """Refuse a weight or margin of a loss that none has: with more, its gradients would end in infinity.

    Raises:
        InputError: it isn't a number from 0 to a million.
    """
    if not 0 <= weight <= MOST_WEIGHT:
        least = f"at most {MOST_WEIGHT:,.0f}" if MOST_WEIGHT < weight < math.inf else "a number of at least 0"
        raise InputError(f"{flag} should be {least}, but is {weight}.")


def check_at_least_one(**counts: int) -> None:
    """Refuse a count below 1.

    Raises:
        InputError: the first such count.
    """
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"{name.replace('_', ' ')} should be at least 1, but is {value}.", name)
