"""Rows of Multi30k with the photos of Flickr8k, and the positions of their nouns: what several recipes read."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from visual_grounding.errors import InputError
from visual_grounding.storage.lines import read_lines

# Development and test rows that have a photo: none is trained on.
WITH_PHOTOS = {
    "train": ["multi30k_with_images/train"],
    "valid": ["multi30k_with_images/val", "multi30k_with_images/val_extra"],
    "test": ["multi30k_with_images/test"],
}


class Row(NamedTuple):
    """One line of Multi30k: where it stands in the published files, its photo here (empty: none), both sentences."""

    split: str
    line: int
    photo: str
    source: str
    target: str


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a TSV file with a header."""
    header, *lines = read_lines(path)
    names = header.split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]


def read_rows(prefix: Path, language: str) -> list[Row]:
    """Rows of `prefix.{en,LANGUAGE,index.tsv}`.

    Raises:
        InputError: the files differ in length.
    """
    index = read_table(prefix.with_name(prefix.name + ".index.tsv"))
    source, target = (read_lines(f"{prefix}.{side}") for side in ("en", language))
    if not len(index) == len(source) == len(target):
        raise InputError(
            f"{prefix}: index.tsv has {len(index)} rows, but .en has {len(source)} lines and .{language} {len(target)}."
        )
    return [
        Row(
            row["multi30k_split"],
            int(row["multi30k_line"]),
            "" if row["flickr8k_image"] == "-" else row["flickr8k_image"],
            *pair,
        )
        for row, pair in zip(index, zip(source, target))
    ]


def read_noun_positions(path: Path) -> list[tuple[list[str], list[int]]]:
    """For each line of `<split>.masks.tsv` its tokens and the 0-based positions of its nouns, singular and plural."""
    found = []
    for row in read_table(path):
        positions = {int(place) for kind in ("noun", "nouns") for place in row[kind].split(",") if place != "-"}
        found.append((row["tokens"].split(), sorted(positions)))
    return found


def mask_nouns(sentence: str, tokens: list[str], positions: Iterable[int], mask: str) -> str:
    """Replace the words at `positions` by `mask`.

    >>> mask_nouns("a dog runs .", ["a", "dog", "runs", "."], [1], "[MASK]")
    'a [MASK] runs .'

    Raises:
        InputError: the positions were counted on another tokenisation.
    """
    words = sentence.split()
    if len(words) != len(tokens):
        raise InputError(
            f"noun positions are for the {len(tokens)} words {' '.join(tokens)!r}, but the sentence has {len(words)}: "
            f"{sentence!r}."
        )
    for position in positions:
        words[position] = mask
    return " ".join(words)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """One line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def write_rows(prefix: Path, rows: list[Row], language: str) -> None:
    """`prefix.en`, `prefix.LANGUAGE` and `prefix.keys`."""
    for ending, lines in (
        ("en", (row.source for row in rows)),
        (language, (row.target for row in rows)),
        ("keys", (row.photo for row in rows)),
    ):
        write_lines(prefix.with_name(f"{prefix.name}.{ending}"), lines)
