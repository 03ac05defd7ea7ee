"""Labelled examples as `visual-grounding prepare` writes them (`text/example_files.py`), and batches of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from ..errors import InputError
from ..storage.lines import iterate_lines
from ..text.example_files import ANSWERS, NO_PIECE, PIECES, SIDES, WORDS, Asked
from ..text.labelled_text import TAGS, VALUES
from .by_length import ByLength

# In targets: a label that no training example has, one of these that goes on, as I-X; no word.
NO_LABEL, NO_LABEL_INSIDE, NO_WORD = -1, -2, -3
PREDICTIONS = "predictions"  # under which a criterion hands over what it predicted


class Ragged(NamedTuple):
    """Rows of numbers of different lengths, flat.

    Shapes:
        numbers: (total,) int32;  ends: (S + 1,) int64, the first is 0
    """

    numbers: np.ndarray
    ends: np.ndarray

    def __getitem__(self, row: Any) -> Any:
        """(length of the row,)"""
        return self.numbers[self.ends[row] : self.ends[row + 1]]

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(S,)"""
        return np.diff(self.ends)


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Rows, flattened."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Ragged(np.fromiter((number for row in rows for number in row), np.int32, int(ends[-1])), ends)


@dataclass(frozen=True)
class Examples:
    """A split in numbers.

    Attributes:
        pieces: of each side.
        targets: (S,) class numbers or (S,) float values; of tags a row for each example.
        positions: of the words asked of, the number of the first piece of each, -1 for none; None for whole sentences.
    """

    pieces: Sequence[Ragged]
    targets: Any
    positions: Optional[Ragged]

    def __len__(self) -> int:
        return len(self.pieces[0])


def read_examples(folder: Path, split: str, asked: Asked, dictionary: Dictionary) -> Examples:
    """Read a split.

    Raises:
        InputError: a file is missing, is shorter than the others, or holds what isn't in the dictionary.
    """
    stem = folder / split
    numbers = dictionary.indices
    pieces = []
    for side in SIDES[: asked.sentences]:
        path = Path(f"{stem}.{side}.{PIECES}")
        rows = []
        for line, text in enumerate(iterate_lines(path, pipes=False), 1):
            try:
                rows.append([numbers[piece] for piece in text.split()])
            except KeyError as error:
                raise InputError(
                    f"{path}:{line} should hold pieces of dict.txt beside it, but has {error.args[0]!r}. Make the "
                    "folder again with: visual-grounding prepare …"
                ) from error
        pieces.append(ragged(rows))
    answers = list(iterate_lines(f"{stem}.{ANSWERS}", pipes=False))
    positions = None
    if asked.word or asked.answers == TAGS:
        path = Path(f"{stem}.{WORDS}")
        try:
            positions = ragged([[int(number) for number in line.split()] for line in iterate_lines(path, pipes=False)])
        except (ValueError, OverflowError) as error:
            raise InputError(f"{path} should hold numbers, but: {error}.") from error
    lines = {f"{side}.{PIECES}": len(rows) for side, rows in zip(SIDES, pieces)} | {ANSWERS: len(answers)}
    if positions is not None:
        lines[WORDS] = len(positions)
    for name, count in lines.items():
        if count != len(pieces[0]):
            raise InputError(
                f"{stem}.{name} should have {len(pieces[0])} lines, as {stem}.{SIDES[0]}.{PIECES} has, but has "
                f"{count}. Make the folder again with: visual-grounding prepare …"
            )
    if positions is not None:
        _check_positions(path, positions, pieces[0], asked)
    return Examples(pieces, _targets(f"{stem}.{ANSWERS}", answers, asked, positions), positions)


def _check_positions(path: Path, positions: Ragged, pieces: Ragged, asked: Asked) -> None:
    """Every word's first piece is one of its sentence's; where a word is judged, it is one."""
    last = np.repeat(pieces.lengths, positions.lengths)
    wrong = np.flatnonzero((positions.numbers >= last) | (positions.numbers < NO_PIECE))
    other = np.flatnonzero(positions.lengths != 1) if asked.word else wrong[:0]
    if len(wrong) or len(other):
        line = int(np.searchsorted(positions.ends, wrong[0], side="right")) if len(wrong) else int(other[0]) + 1
        raise InputError(
            f"{path}:{line} should hold {'the number of a piece' if asked.word else 'numbers of pieces'} of the "
            "sentence beside it, but doesn't. Make the folder again with: visual-grounding prepare …"
        )


def _targets(path: str, answers: list[str], asked: Asked, positions: Optional[Ragged]) -> Any:
    if asked.answers == VALUES:
        return answers_as_numbers(path, answers)
    labels = {label: number for number, label in enumerate(asked.labels)}
    if asked.answers == TAGS:
        unknown = {True: NO_LABEL_INSIDE, False: NO_LABEL}
        found = ragged([[labels.get(tag, unknown[tag[:1] == "I"]) for tag in answer.split()] for answer in answers])
        if positions is not None and (found.ends != positions.ends).any():
            raise InputError(f"{path} should have a tag for each word, but hasn't. Make the folder again.")
        return found
    return np.array([labels.get(answer, NO_LABEL) for answer in answers], dtype=np.int64)


def answers_as_numbers(path: str, answers: Sequence[str]) -> np.ndarray:
    """Answers that are numbers.

    Args:
        path: their file, for messages.

    Shapes:
        returns: (S,) float32

    Raises:
        InputError: one isn't, or isn't finite.
    """
    try:
        values = np.array([float(answer) for answer in answers], dtype=np.float32)
    except ValueError as error:
        raise InputError(f"{path} should hold numbers, but: {error}.") from error
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise InputError(f"{path}:{wrong[0] + 1} should hold a number, but has {answers[wrong[0]]:.80}.")
    return values


class ExampleBatches(ByLength):
    """Batches of labelled examples.

    Two sentences stand in one row, `</s>` between them as often as the tokenizer has it. What is longer than there is
    room for is cut: the longer of two sentences first, a sentence of which a word is asked around that word; tagged
    words behind the cut have no piece any more.

    Batch keys:
        id: (B,);  nsentences, ntokens
        net_input: src_tokens (B, T), padded on the right; src_lengths (B,); where words are asked of, word_positions,
            numbers of columns of src_tokens: (B,), or (B, W) of all words, -1 for none
        target: (B,) class numbers or float values, or (B, W) of tags; -1 for one that no training example has, -2 for
            such a tag that goes on, -3 where there is no word
    """

    def __init__(
        self, examples: Examples, asked: Asked, dictionary: Dictionary, max_positions: int, shuffle: bool
    ) -> None:
        self.examples = examples
        self.asked = asked
        self.dictionary = dictionary
        self.shuffle = shuffle
        edges = asked.separators + 1 if asked.sentences > 1 else 1
        self.room = max_positions - edges
        self.whole_sizes = sum(side.lengths for side in examples.pieces) + edges
        self.sizes = np.minimum(self.whole_sizes, max_positions)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = int(index)
        rows = [side[index] for side in self.examples.pieces]
        positions = self.examples.positions[index] if self.examples.positions is not None else None
        rows, positions = self._cut(rows, positions)
        eos = self.dictionary.eos()
        parts = [rows[0]]
        for row in rows[1:]:
            parts += [np.full(self.asked.separators, eos), row]
        parts.append(np.full(1, eos))
        item: dict[str, Any] = {"id": index, "tokens": torch.from_numpy(np.concatenate(parts).astype(np.int64))}
        target = self.examples.targets[index]
        if positions is not None:
            item["positions"] = torch.from_numpy(positions.astype(np.int64))
        item["target"] = torch.as_tensor(target.astype(np.int64) if self.asked.answers == TAGS else target)
        return item

    def _cut(
        self, rows: list[np.ndarray], positions: Optional[np.ndarray]
    ) -> tuple[list[np.ndarray], Optional[np.ndarray]]:
        """What there is room for."""
        if sum(map(len, rows)) <= self.room:
            return rows, positions
        if len(rows) > 1:
            first, second = cut_pair(len(rows[0]), len(rows[1]), self.room)
            return [rows[0][:first], rows[1][:second]], positions
        start = 0
        if self.asked.word and positions is not None:
            start = int(np.clip(positions[0] - self.room // 2, 0, len(rows[0]) - self.room))
        if positions is not None:
            inside = (positions >= start) & (positions < start + self.room)
            positions = np.where(inside, positions - start, NO_PIECE)
        return [rows[0][start : start + self.room]], positions

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """A batch, in the order of the items."""
        if not samples:
            return {}
        lengths = torch.tensor([len(sample["tokens"]) for sample in samples])
        tokens = data_utils.collate_tokens([sample["tokens"] for sample in samples], self.dictionary.pad())
        net_input = {"src_tokens": tokens, "src_lengths": lengths}
        if self.examples.positions is not None:
            positions = _filled([sample["positions"] for sample in samples], NO_PIECE)
            net_input["word_positions"] = positions[:, 0] if self.asked.word else positions
        targets = [sample["target"] for sample in samples]
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": net_input,
            "target": _filled(targets, NO_WORD) if self.asked.answers == TAGS else torch.stack(targets),
        }


def _filled(rows: Sequence[Tensor], filling: int) -> Tensor:
    """(B, longest), the shorter ones filled up."""
    width = max(1, *(len(row) for row in rows)) if rows else 1
    found = torch.full((len(rows), width), filling, dtype=torch.long)
    for place, row in zip(found, rows):
        place[: len(row)] = row
    return found


def cut_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths of two sentences that fit, the longer one cut first.

    >>> cut_pair(10, 4, 12), cut_pair(10, 9, 12), cut_pair(2, 10, 7), cut_pair(3, 4, 12)
    ((8, 4), (6, 6), (2, 5), (3, 4))
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= room - half:
        return room - second, second
    return half, room - half
