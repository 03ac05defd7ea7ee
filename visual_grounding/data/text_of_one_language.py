"""Text of one language as `fairseq-preprocess --only-source` writes it, and its dictionary: read, or refused."""

import glob
import os
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, data_utils

from ..errors import InputError, in_short
from ..storage.outside import reading
from ..text.tokenizer_bridge import MASK


def load_dictionary(folder: str) -> tuple[Dictionary, str]:
    """The dictionary of a folder of binarised text, and its file.

    Raises:
        InputError: it isn't there, or can't be read.
    """
    path = os.path.join(folder, "dict.txt")
    if not os.path.isfile(path):
        raise InputError(
            f"{path} should be the dictionary of the text, as fairseq-preprocess --only-source writes it, but it isn't "
            "there."
        )
    return read_dictionary(path), path


def read_dictionary(path: str) -> Dictionary:
    """A dictionary of fairseq's.

    Raises:
        InputError: it can't be read as one.
    """
    with reading(path, "a dictionary of fairseq, a symbol and a count in each line,"):
        return Dictionary.load(path)


def number_of_mask(dictionary: Dictionary, path: str) -> int:
    """The number of `<mask>`.

    Args:
        path: the dictionary's file.

    Raises:
        InputError: the dictionary has none.
    """
    number: int = dictionary.indices.get(MASK, -1)
    if number < 0:
        raise InputError(
            f"{path} should have a symbol {MASK} to hide words with, but has none. visual-grounding prepare pieces "
            f"and vokenize make a dictionary that has it; to one of plain words add the line '{MASK} 1', and binarise "
            "anew."
        )
    return number


def parts_of_split(folder: str, split: str, combine: bool) -> list[str]:
    """A split's name; with `combine` those of its further parts, too: train, train1, train2 …"""
    names = [split]
    while combine and os.path.isfile(os.path.join(folder, f"{split}{len(names)}.idx")):
        names.append(f"{split}{len(names)}")
    return names


def splits_there(folder: str, *endings: str) -> str:
    """A sentence that says which splits a folder has, for a message about one that isn't there.

    Args:
        endings: of a split's file, behind its name; more than one where it may have either.
    """
    found = (path.name.removesuffix(end) for end in endings for path in Path(folder).glob(f"*{glob.escape(end)}"))
    return f"It has {', '.join(sorted(set(found))) or 'none'}."


def load_text(folder: str, name: str, dictionary: Dictionary) -> Any:
    """The binarised lines of a part.

    Raises:
        InputError: there are none, or they can't be read.
    """
    place = os.path.join(folder, name)
    if not os.path.isfile(f"{place}.idx"):
        raise InputError(
            f"{folder} should hold {name}.idx, text binarised by fairseq-preprocess --only-source, but it isn't there. "
            f"{splits_there(folder, '.idx')}"
        )
    return open_text(place, dictionary)


def open_text(place: str, dictionary: Dictionary) -> Any:
    """Binarised lines by their file's name without its ending.

    Raises:
        InputError: they can't be read.
    """
    try:
        return data_utils.load_indexed_dataset(place, dictionary, None)
    except Exception as error:  # a broken file fails in many ways
        raise InputError(
            f"{place}.idx should be binarised text, but reading failed: {in_short(error)}. Binarise the text anew."
        ) from error


def check_positions(model: Any, max_pieces: int) -> None:
    """Refuse a line's length that a model has no positions for.

    Args:
        max_pieces: `--max-pieces`, what stands before a line included.

    Raises:
        InputError: it hasn't.
    """
    longest = model.max_positions()
    if isinstance(longest, int) and longest < max_pieces - 1:
        raise InputError(f"--max-pieces is {max_pieces}, but the encoder has positions for {longest + 1}: give fewer.")
