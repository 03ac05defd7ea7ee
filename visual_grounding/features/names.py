"""Lists of what numbers of labels stand for."""

from pathlib import Path

from ..errors import InputError, in_short
from ..storage.lines import read_lines
from ..storage.outside import parse_json


def read_names(path: str | Path) -> list[str]:
    """One a line, the first is number 0; or JSON of {"0": name, "1": name, …}, as VTLM's.

    Raises:
        InputError: it can't be read, there is no name, or numbers aren't 0, 1, 2 …
    """
    path = Path(path)
    lines = read_lines(path)
    names = _of_json(path, lines) if path.suffix == ".json" else lines
    if not names:
        raise InputError(f"{path} should have names, but is empty.")
    return names


def _of_json(path: Path, lines: list[str]) -> list[str]:
    try:
        content = parse_json("\n".join(lines))
    except ValueError as error:
        raise InputError(f"{path} should be JSON, but isn't: {in_short(error)}.") from error
    if isinstance(content, dict):
        numbers = [str(number) for number in range(len(content))]
        missing = next((number for number in numbers if number not in content), None)
        if missing is not None:
            raise InputError(
                f"{path} should have the names of the numbers 0 to {len(content) - 1}, but has none of {missing}."
            )
        content = [content[number] for number in numbers]
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise InputError(f"{path} should be {{number: name}} or a list of names, but isn't.")
    return content
