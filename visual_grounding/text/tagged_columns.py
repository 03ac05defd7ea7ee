"""Words with tags in columns, as CoNLL-2003's.

A word a line, its tag in one of the columns, a blank line between sentences, `-DOCSTART-` between documents. Tags of
whichever scheme become BIO.
"""

from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..storage.lines import iterate_lines
from .labelled_text import Example, LabelledText, joined_words

_DOCUMENT = "-DOCSTART-"
OUTSIDE = "O"
# Of BIOES and BILOU: a single word's tag, and the last word's.
_OTHER_SCHEMES = {"S": "B", "U": "B", "E": "I", "L": "I"}
_ENDING = frozenset(_OTHER_SCHEMES)


def read_tagged(path: Path, column: int = 0) -> LabelledText:
    """A file's sentences, each with a tag for every word.

    Args:
        column: of the tag, counted from 1; 0 for the last.

    Raises:
        InputError: it can't be read, or a line has no such column or no tag; or there is no sentence.
    """
    found = LabelledText()
    words: list[str] = []
    tags: list[str] = []

    def sentence() -> None:
        if not words:
            return
        found.rows += 1
        bio = to_bio(tags)
        if bio != tags:
            found.remarks[f"of {path} had other tags than BIO has (IOB1 or another scheme), which are changed."] += 1
        text, spans = joined_words(words)
        found.examples.append(Example((text,), tuple(bio), spans))
        words.clear()
        tags.clear()

    for number, line in enumerate(iterate_lines(path), 1):
        fields = line.split()
        if not fields or fields[0] == _DOCUMENT:
            sentence()
            continue
        if len(fields) < max(2, column):
            where = f"column {column}" if column else "the last column"
            raise InputError(
                f"{path}:{number} should have a word and, in {where}, its tag, but is {line!r}.",
                "column",
            )
        words.append(fields[0])
        tags.append(_checked(fields[column - 1], f"{path}:{number}"))
    sentence()
    if not found.examples:
        raise InputError(f"{path} should hold words with tags, but has none.")
    return found


def _checked(tag: str, place: str) -> str:
    prefix, dash, kind = tag.partition("-")
    if tag != OUTSIDE and not (dash and kind and prefix in {"B", "I", *_OTHER_SCHEMES}):
        raise InputError(f"{place} should have a tag such as O, B-PER or I-PER, but has {tag!r}.", "column")
    return tag


def to_bio(tags: Sequence[str]) -> list[str]:
    """Tags of a sentence in BIO: the first word of everything that is named has a B.

    In IOB1 it has one only where it follows another thing of its kind. Things are those that conlleval sees.

    >>> to_bio(["I-PER", "I-PER", "B-PER", "O", "I-ORG", "I-LOC"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-ORG', 'B-LOC']
    >>> to_bio(["S-PER", "B-ORG", "I-ORG", "E-ORG"])
    ['B-PER', 'B-ORG', 'I-ORG', 'I-ORG']
    """
    found: list[str] = []
    ended = True  # by a tag that says so: the last word of a thing, or a single one
    for tag in tags:
        given, _, kind = tag.partition("-")
        prefix = _OTHER_SCHEMES.get(given, given)
        if prefix == "I" and (ended or found[-1].partition("-")[2] != kind):
            prefix = "B"
        found.append(f"{prefix}-{kind}" if kind else tag)
        ended = given in _ENDING
    return found
