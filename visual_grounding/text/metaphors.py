"""Metaphorical words of the VU Amsterdam corpus (VUA), as its shared task's files have them: is this word meant so?

Two kinds of CSV, told apart by their columns, in Latin-1 or UTF-8:

    sentence, verb_idx, label             one verb of a sentence (the paper's VUA)
    sentence, label_seq, pos_seq          every word of a sentence; those of one part of speech are asked (VUAN: NOUN)
"""

import ast
import csv
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError
from ..storage.lines import check_is_text
from ..storage.outside import open_file, open_text
from .labelled_text import Example, LabelledText, joined_words

_DIGITS = 18  # of a number; Python refuses to read thousands of them
NOUN, VERB = "NOUN", "VERB"


def read_metaphors(path: Path, part_of_speech: str | None = None) -> tuple[LabelledText, str]:
    """A file's examples: a sentence, one of its words, and whether that is a metaphor, "1" or "0".

    Args:
        part_of_speech: of the words that are asked of, where a file has all; None: verbs where each row names one,
            else nouns.

    Returns:
        the examples, and the part of speech of what is asked.

    Raises:
        InputError: it can't be read, or lacks a column; a row's lists don't fit its words; or it has no such word.
    """
    found = LabelledText()
    try:
        with open_text(path, _encoding(path), newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = reader.fieldnames or []
            read = _verb if "verb_idx" in names else _words
            part_of_speech = part_of_speech or (VERB if read is _verb else NOUN)
            if read is _verb and part_of_speech != VERB:
                raise InputError(
                    f"{path} names a verb in each row, so there is no {part_of_speech} to ask of.", "part_of_speech"
                )
            wanted = ("sentence", "verb_idx", "label") if read is _verb else ("sentence", "label_seq", "pos_seq")
            lacking = [name for name in wanted if name not in names]
            if lacking:
                raise InputError(
                    f"{path} should have columns {', '.join(wanted)}, but lacks {', '.join(lacking)}: it has "
                    f"{', '.join(names) or 'none'}."
                )
            for row in reader:
                place = f"{path}:{reader.line_num}"
                if any(row[name] is None for name in wanted):
                    raise InputError(f"{place} should have {len(names)} columns, but has fewer.")
                asked = list(read(row, place, part_of_speech))
                found.rows += 1
                text, spans = joined_words(row["sentence"].split())
                found.examples += [Example((text,), (label,), (spans[number],)) for number, label in asked]
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num} should be a row of a table, but isn't: {error}.") from error
    if not found.examples:
        wanted_word = "a verb" if read is _verb else f"a word of part of speech {part_of_speech}"
        raise InputError(
            f"{path} should have words to ask of, but none of its {found.rows} sentences has {wanted_word}."
        )
    return found, str(part_of_speech)


def _encoding(path: Path) -> str:
    """The shared task's files are in Latin-1, whose every byte is a letter; what is UTF-8 hardly happens to be both.

    Raises:
        InputError: it is a file of another kind.
    """
    with open_file(path) as beginning:
        check_is_text(path, beginning.read(8))
    try:
        with open_text(path) as file:
            for _ in file:
                pass
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8-sig"


def _verb(row: dict[str, str], place: str, part_of_speech: str) -> Iterator[tuple[int, str]]:
    """Which word of a row is asked of, and what is right."""
    words = row["sentence"].split()
    number = row["verb_idx"]
    if not number.isdecimal() or len(number) > _DIGITS or int(number) >= len(words):
        raise InputError(
            f"{place} should have one of the {len(words)} words of its sentence, counted from 0, in column verb_idx, "
            f"but has {number}."
        )
    yield int(number), _checked(row["label"], place)


def _words(row: dict[str, str], place: str, part_of_speech: str) -> Iterator[tuple[int, str]]:
    """Which words of a row are asked of, and what is right."""
    words = row["sentence"].split()
    try:
        labels, parts = ast.literal_eval(row["label_seq"]), ast.literal_eval(row["pos_seq"])
        counts = len(labels), len(parts)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise InputError(f"{place} should have lists in columns label_seq and pos_seq, but one is none.") from error
    if counts != (len(words), len(words)):
        raise InputError(
            f"{place} should have a label and a part of speech for each of its {len(words)} words, but has {counts[0]} "
            f"and {counts[1]}."
        )
    for number, (label, part) in enumerate(zip(labels, parts)):
        if part == part_of_speech:
            yield number, _checked(label, place)


def _checked(label: object, place: str) -> str:
    if label not in (0, 1, "0", "1"):
        # Python writes no number of thousands of digits, nor a list that holds one.
        short = isinstance(label, str) or (isinstance(label, int) and abs(label) < 10**9)
        said = (
            f"{label!r:.80}" if short else "a larger number" if isinstance(label, int) else f"a {type(label).__name__}"
        )
        raise InputError(f"{place} should say 1 of a metaphor and 0 of other words, but says {said}.")
    return str(int(label))  # type: ignore[call-overload]
