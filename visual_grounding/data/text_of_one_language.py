"""Text of one language as `fairseq-preprocess --only-source` writes it, and its dictionary: read, or refused."""

import glob
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.data.indexed_dataset import _code_to_dtype as DTYPES

from ..errors import InputError, in_short
from ..shares import MANY_UNKNOWN, warn_of
from ..storage.outside import open_file, reading
from ..text.tokenizer_bridge import MASK

_LOOKED_AT = 2_000
# Of an index: what it begins with, version, kind of number, lines; behind it the lines' sizes and places.
_HEADER, _MAGIC = struct.Struct("<9sQBQ"), MMapIndexedDataset.Index._HDR_MAGIC


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


def check_same_dictionaries(folders: Sequence[str], names: Iterable[str]) -> None:
    """Refuse text in several folders, one an epoch, that isn't numbered alike: only the first one's dictionary is read.

    Args:
        folders: of binarised text.
        names: of dictionaries in each; a folder without one has nothing to compare.

    Raises:
        InputError: two dictionaries of one name differ, or one can't be read.
    """
    for name in names:
        first, *others = [os.path.join(folder, name) for folder in folders]
        for path in filter(os.path.isfile, others):
            if read_dictionary(path).symbols != read_dictionary(first).symbols:
                raise InputError(
                    f"{path} should have the symbols of {first}, in their order, but hasn't: each epoch would number "
                    f"its words otherwise. Binarise all folders with one dictionary: fairseq-preprocess --srcdict "
                    f"{first} …"
                )


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


def pairs_in(folder: str) -> list[str]:
    """Pairs of languages in the names of a folder's files: `train.en-de.en.idx` is of en-de."""
    if not os.path.isdir(folder):
        return []
    parts = [name.split(".") for name in os.listdir(folder)]
    pairs = {tuple(each[1].split("-")) for each in parts if len(each) > 2 and each[2] in each[1].split("-")}
    # Text of one language is of en-None.
    return sorted("-".join(pair) for pair in pairs if len(pair) == 2 and "None" not in pair)


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
    check_binarised(place)
    try:
        return data_utils.load_indexed_dataset(place, dictionary, None)
    except Exception as error:  # a broken file fails in many ways
        raise InputError(
            f"{place}.idx should be binarised text, but reading failed: {in_short(error)}. Binarise the text anew."
        ) from error


def check_binarised(place: str) -> None:
    """Refuse binarised lines that were cut short or changed: fairseq finds out when it asks for one of them.

    What fairseq keeps in an older form than its present one isn't looked at.

    Args:
        place: their file's name without its ending.

    Raises:
        InputError: the index can't be read, or isn't of as much text as there is.
    """
    index, text, again = f"{place}.idx", f"{place}.bin", "Binarise the text anew."
    with reading(text, "binarised text", again):
        held = os.path.getsize(text)
    with reading(index, "the index of binarised text", again), open_file(index) as file:
        magic, version, code, count = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
        if magic[:8] != _MAGIC[:8]:
            return
        if magic != _MAGIC or version != 1 or code not in DTYPES:
            raise InputError(f"{index} should be the index of binarised text, but its header is broken. {again}")
        if os.path.getsize(index) != _HEADER.size + 12 * count:  # before memory is asked for
            raise InputError(f"{index} should have {count:,} lines, as it says, but is of another size. {again}")
        sizes = np.frombuffer(file.read(4 * count), "<i4").astype(np.int64) * np.dtype(DTYPES[code]).itemsize
        starts = np.frombuffer(file.read(8 * count), "<i8")
        ends = np.cumsum(sizes)
        if (sizes < 0).any() or not np.array_equal(starts, ends - sizes):
            raise InputError(f"{index} should have lines one behind another, but hasn't. {again}")
    wanted = int(ends[-1]) if count else 0
    if held != wanted:
        raise InputError(f"{text} should have {wanted:,} bytes, as {index} says, but has {held:,}. {again}")


def check_binarised_pair(folder: str, split: str, source: str, target: str, combine: bool) -> None:
    """The same of both languages of a split, in whichever direction it was binarised; of those files that are there.

    Raises:
        InputError: as `check_binarised`.
    """
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        number = 0
        while True:
            places = [os.path.join(folder, f"{split}{number or ''}.{pair}.{name}") for name in (source, target)]
            found = [place for place in places if os.path.isfile(f"{place}.idx")]
            for place in found:
                check_binarised(place)
            if not found or not combine:
                break
            number += 1


def warn_of_unknown(lines: Any, dictionary: Dictionary, place: str) -> Iterator[str]:
    """What to say where a dictionary knows few of a text's words: it is another text's, or this isn't cut as it should.

    Args:
        lines: binarised, (T,) each; of many, 2,000 are looked at.
        place: where they are.
    """
    if getattr(lines, "supports_prefetch", False):
        return  # fairseq's older forms, of which lines can't be read before a batch is
    looked_at = range(0, len(lines), -(-len(lines) // _LOOKED_AT) or 1)
    numbers = np.concatenate([np.zeros(0, np.int64), *(np.asarray(lines[line]) for line in looked_at)])
    words = int((numbers != dictionary.eos()).sum())
    unknown = int((numbers == dictionary.unk()).sum())
    if unknown > MANY_UNKNOWN * words:
        where = f"{'a sample of ' if len(looked_at) < len(lines) else ''}{place}"
        said = (
            f"in {where} are {dictionary.unk_word}: the dictionary doesn't have them. Is the text cut into other "
            "pieces than the dictionary's, or not at all, or binarised with another text's dictionary?"
        )
        yield from warn_of(unknown, words, said, "words")


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
