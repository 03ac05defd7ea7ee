"""Which image a record is of: ids as a file has them -> image keys, and which of them are wanted."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np

from ...errors import InputError
from ...images.keys import check_keys
from ...storage.lines import read_lines
from ...storage.outside import read_bytes
from ..array_files import TORCH_SUFFIXES, UnreadableArray
from .safe_pickle import load_numbers

AS_IT_IS = "{id}"
_MOST_DIGITS = 100  # of an id


class KeyFormat:
    """How the key of an image is made of its id.

    >>> KeyFormat("COCO_train2014_{id:012d}.jpg").key(b"9")
    'COCO_train2014_000000000009.jpg'

    Raises:
        InputError: it isn't text with one {id} or {id:012d} in it.
    """

    def __init__(self, text: str = AS_IT_IS) -> None:
        self.text = text
        try:
            fields = [(name, form, how) for _, name, form, how in Formatter().parse(text) if name is not None]
        except ValueError:
            fields = []
        # Only these forms: format can look into attributes of what it is given.
        if len(fields) != 1 or fields[0][0] != "id" or fields[0][2] or not _is_width(fields[0][1] or ""):
            raise InputError(
                f"the format of keys should be text with one {{id}} in it, or {{id:012d}} for an id filled up with "
                f"zeros to 12 digits, but is {text!r}.",
                "key_format",
            )
        self._digits = bool(fields[0][1])

    def key(self, identity: Any) -> str:
        """The key of an image.

        Raises:
            InputError: the id should be a number, but isn't.
        """
        if isinstance(identity, int) and abs(identity) >= 10**_MOST_DIGITS:  # Python writes no number of any length
            raise InputError(f"ids should have at most {_MOST_DIGITS} digits, but one has more.")
        name = identity.decode("utf-8", "replace") if isinstance(identity, bytes) else str(identity)
        if not self._digits:
            return self.text.format(id=name)
        if not name.isdecimal() or len(name) > _MOST_DIGITS:
            raise InputError(
                f"ids should be numbers of at most {_MOST_DIGITS} digits, since keys are made as {self.text}, but one "
                f"is {name!r:.80}.",
                "key_format",
            )
        return self.text.format(id=int(name))


def _is_width(form: str) -> bool:
    return not form or (form.endswith("d") and len(form) < 5 and (form[:-1].isdecimal() or form == "d"))


def read_key_file(path: str | Path, key_format: KeyFormat) -> list[str]:
    """Image keys, one a line; or a pickle of {id: row}, as many HDF5 files have beside them, whose ids become keys.

    Raises:
        InputError: it is empty, broken, has a key twice, or isn't a row for each of as many ids.
    """
    path = Path(path)
    if not _is_pickle(path):
        keys = read_lines(path)
    else:
        try:
            rows = load_numbers(read_bytes(path), str(path))
        except (OSError, UnreadableArray) as error:
            raise InputError(f"{path} should be a pickle of ids and their rows, but can't be read: {error}.") from error
        if not isinstance(rows, dict) or not _are_rows(list(rows.values())):
            raise InputError(
                f"{path} should say of each id which row it is, as {{id: row}}, and of each row once, but doesn't."
            )
        keys = [key_format.key(identity) for identity, _ in sorted(rows.items(), key=lambda item: item[1])]
    if not keys:
        raise InputError(f"{path} should have one image key a line, but is empty.")
    check_keys(keys, path)
    return keys


def is_key_list(arrays: str | Path, keys: str | Path | None) -> bool:
    """Whether keys are lines beside one array for the collection, rather than made of ids."""
    return keys is not None and not _is_pickle(keys) and Path(arrays).suffix in (".npy", *TORCH_SUFFIXES)


def _is_pickle(keys: str | Path) -> bool:
    return Path(keys).suffix in (".pkl", ".pickle")


def _are_rows(numbers: list[Any]) -> bool:
    """Whether they are whole numbers, each of 0 to their count once; "10" as text would be sorted before "2"."""
    return all(isinstance(number, int | np.integer) for number in numbers) and sorted(numbers) == [*range(len(numbers))]


def keys_of(ids: Iterable[Any], key_format: KeyFormat, path: Path) -> list[str]:
    """Keys of the images of a file.

    Raises:
        InputError: there is none, one is there twice or can't be a key.
    """
    found = [key_format.key(identity) for identity in ids]
    if not found:
        raise InputError(f"{path} should hold features of images, but holds none.")
    check_keys(found, path)
    return found


def find_wanted(found: Sequence[str], wanted: list[str] | None, path: Path) -> tuple[list[str], list[int | None]]:
    """Which records are wanted, in which order.

    Args:
        found: keys of the records of a file.
        wanted: keys that are asked for; None for all.

    Returns:
        the keys wanted, and for each the number of its record, or None where there is none.

    Raises:
        InputError: none is there.
    """
    if wanted is None:
        return list(found), list(range(len(found)))
    place_of = {key: place for place, key in enumerate(found)}
    places = [place_of.get(key) for key in wanted]
    if all(place is None for place in places):
        raise InputError(
            f"{path} should hold features of the images that are asked for, but holds none of these {len(wanted)}. A "
            f"key there is {found[0]!r}, the first that is asked for is {wanted[0]!r}.",
            "keys",
            "key_format",
        )
    return wanted, places
