"""How many of how many, as messages say it."""

from collections.abc import Iterator

MANY_UNKNOWN = 0.25  # of a text's words: from here on it is another than the words are of


def share(count: int, total: int, things: str) -> str:
    """A count beside the whole.

    >>> share(412, 29000, "sentences")
    '412 of 29000 sentences (1.4 %)'
    """
    return f"{count} of {total} {things} ({percent(count / max(total, 1))})"


def percent(fraction: float) -> str:
    """A fraction for a person.

    >>> percent(1 / 3)
    '33.3 %'
    """
    return f"{100 * fraction:.1f} %"


def warn_of(count: int, total: int, what: str, things: str = "sentences") -> Iterator[str]:
    """One warning where there is something to count, else none.

    >>> list(warn_of(1, 3, "are empty.")), list(warn_of(0, 3, "are empty."))
    (['1 of 3 sentences (33.3 %) are empty.'], [])
    """
    if count:
        yield f"{share(count, total, things)} {what}"
