"""One line that says how an output was made, as sacreBLEU does for scores."""

from .._version import __version__


def signature(stage: str, **choices: object) -> str:
    """Join what decides the result, in the order given.

    >>> signature("retrieve", method="dense", n=8).rsplit("|", 1)[0]
    'retrieve|method:dense|n:8'
    """
    fields = [f"{name}:{str(value).replace('|', '/')}" for name, value in choices.items()]
    return "|".join([stage, *fields, f"version:{__version__}"])
