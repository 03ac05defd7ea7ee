"""A folder of labelled examples, as `visual-grounding prepare` writes it for a task of understanding.

| file | a line for each example |
| --- | --- |
| `SPLIT.first`, `SPLIT.second` | the sentences, which images are found for; the second where there are two |
| `SPLIT.first.pieces`, `SPLIT.second.pieces` | the same in the pieces of a pretrained tokenizer |
| `SPLIT.answers` | a class's name, a number, or the tags of all words |
| `SPLIT.words` | where words are asked of: the number of each one's first piece, -1 where it has none |

`dict.txt` numbers the pieces, and `meta.json` says what is asked (`Asked`), of which tokenizer the pieces are, how many
examples each split has, and the sha256 of each of its files. All are plain text, and fairseq-preprocess isn't needed.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..storage.artefact import FORMAT_VERSION, META, check_fields, json_text, read_meta, sha256_of_file
from ..storage.lines import read_lines, sha256_of_lines
from ..storage.outside import reading
from ..storage.text_files import write_text_files
from .labelled_text import CLASSES, TAGS, VALUES, Example
from .spans import spans_of_encodings
from .tokenizer_bridge import BOS, EOS, TokenizerBridge
from .words import DICTIONARY, PAD, SPECIAL_SYMBOLS

FORMAT = "examples"
SIDES = ("first", "second")
PIECES, ANSWERS, WORDS = "pieces", "answers", "words"
_FILES = (*(ending for side in SIDES for ending in (side, f"{side}.{PIECES}")), WORDS, ANSWERS)  # of a split
NO_PIECE = -1
_AROUND = {SPECIAL_SYMBOLS[number] for number in (BOS, PAD, EOS)}
_CHUNK = 1000  # sentences given to the tokenizer at a time


@dataclass(frozen=True)
class Asked:
    """What is asked of every example of a folder.

    Attributes:
        answers: classes, values or tags.
        labels: names of the classes, or of the tags, in the order of their numbers; those of the training examples.
        sentences: 1 or 2.
        word: whether one word is asked of, not a whole sentence.
        separators: how often `</s>` stands between two sentences, as the tokenizer has it.
        tokenizer_sha256: of whom the pieces are.
    """

    answers: str
    labels: tuple[str, ...]
    sentences: int
    word: bool
    separators: int
    tokenizer_sha256: str = ""


def asked_of(answers: str, training: Sequence[Example], bridge: TokenizerBridge) -> Asked:
    """What training examples ask.

    Raises:
        InputError: they are told apart by nothing, or the tokenizer has no way to tell two sentences apart.
    """
    labels: set[str] = set() if answers == VALUES else {label for each in training for label in each.answer}
    if answers == TAGS:
        # Whatever begins may go on, and the other way round, though no example to train on has it.
        kinds = {label.partition("-")[2] for label in labels} - {""}
        labels |= {f"{prefix}-{kind}" for kind in kinds for prefix in "BI"}
    if answers == CLASSES and len(labels) < 2:
        raise InputError(f"examples to train on should be of two classes at least, but all are {labels.pop()!r}.")
    sentences = len(training[0].texts)
    word = answers != TAGS and bool(training[0].words)
    separators = separators_of(bridge) if sentences > 1 else 0
    return Asked(answers, tuple(in_order(labels)), sentences, word, separators, bridge.sha256)


def in_order(labels: set[str]) -> list[str]:
    """Labels in the order of their numbers: numbers by size, all else by the alphabet.

    >>> in_order({"10", "9", "09"}), in_order({"neutral", "entailment"})
    (['09', '9', '10'], ['entailment', 'neutral'])
    """
    if not all(label.isascii() and label.isdecimal() for label in labels):
        return sorted(labels)
    # Of any length, which `int` isn't, and with a place for 1 and 01 each.
    return sorted(labels, key=lambda label: (len(label.lstrip("0")), label.lstrip("0"), label))


def separators_of(bridge: TokenizerBridge) -> int:
    """How often `</s>` stands between two sentences: once for a BERT, twice for a RoBERTa.

    Raises:
        InputError: something else does, or nothing.
    """
    between = bridge.between
    if not between or set(between) != {EOS}:
        found = [bridge.symbols[number] for number in between]
        raise InputError(
            f"tokenizer {bridge.name!r} should tell two sentences apart by the symbol that ends one, but has {found} "
            "between them. Take another pretrained model."
        )
    return len(between)


def write_examples(
    folder: Path,
    splits: Mapping[str, Sequence[Example]],
    asked: Asked,
    bridge: TokenizerBridge,
    made: str,
    kept: Callable[[], Mapping[str, Any]],
    taken: Callable[[int], object],
) -> int:
    """Write splits into a folder, beside those of earlier runs.

    Args:
        made: the signature.
        kept: what `meta.json` says of splits that stay; also asked when all else is written and the folder locked.
        taken: is told how many sentences were cut into pieces.

    Returns:
        how many sentences name the tokenizer's own first, last or padding symbol.

    Raises:
        InputError: it can't be written.
    """
    named: Counter[str] = Counter()
    files: dict[str, Any] = {}
    described: dict[str, dict[str, Any]] = {}
    for split, examples in splits.items():
        digests: dict[str, str] = {}
        described[split] = {"examples": len(examples), "sha256": digest_of_examples(examples), "files": digests}
        for number, side in enumerate(SIDES[: asked.sentences]):
            texts = [each.texts[number] for each in examples]
            words = [each.words for each in examples] if not number and examples[0].words else None
            places: list[str] = []
            pieces = _pieces(texts, bridge, words, places, taken, named)
            found: dict[str, Any] = {side: texts, f"{side}.{PIECES}": pieces}
            if words is not None:
                found[WORDS] = places  # filled by the file before
            files |= {f"{split}.{name}": _noted(lines, digests, name) for name, lines in found.items()}
        answers = (" ".join(each.answer) for each in examples)
        files[f"{split}.{ANSWERS}"] = _noted(answers, digests, ANSWERS)

    def description() -> Iterator[str]:
        meta = {"format": FORMAT, "version": FORMAT_VERSION, "signature": made, "splits": {**kept(), **described}}
        yield from json_text({**meta, **asdict(asked)}).splitlines()  # last but one: all digests are there

    write_text_files(
        folder,
        {**files, META: description(), DICTIONARY: bridge.dictionary_lines()},
        last=DICTIONARY,
        instead_of=files_of(splits),
        beside=lambda: [
            f"{split}.{name}" for split in kept() for name in _FILES if (folder / f"{split}.{name}").is_file()
        ],
    )
    return named.total()


def files_of(splits: Iterable[str]) -> list[str]:
    """Names that files of these splits have, where there are such."""
    return [f"{split}.{name}" for split in splits for name in _FILES]


def _noted(lines: Iterable[str], digests: dict[str, str], name: str) -> Iterator[str]:
    """Lines as they are, the digest of their file in `digests` when all were taken."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8") + b"\n")
        yield line
    digests[name] = digest.hexdigest()


def check_unchanged(folder: Path, split: str, of: Mapping[str, Any]) -> None:
    """Refuse a split one of whose files isn't what `prepare` wrote; folders of before don't say what that was.

    Args:
        of: what `meta.json` says of the split.

    Raises:
        InputError: one isn't, or can't be read.
    """
    for name in _FILES:
        digest = of.get("files", {}).get(name)
        if digest is None:
            continue
        path = folder / f"{split}.{name}"
        with reading(path, "a file of examples", "Make the folder again with: visual-grounding prepare …"):
            found = sha256_of_file(path)
        if found != digest:
            raise InputError(
                f"{path} should be as visual-grounding prepare wrote it, with the sha256 {digest!s:.64} that "
                f"{folder / META} says, but has {found}. Make the folder again, or another one of the files that are "
                "meant."
            )


def digest_of_examples(examples: Sequence[Example]) -> str:
    """sha256 of sentences and answers: the identity of a test set."""
    lines = ("\t".join([*each.texts, " ".join(each.answer), *map(str, each.words)]) for each in examples)
    return sha256_of_lines(list(lines))


def _pieces(
    texts: Sequence[str],
    bridge: TokenizerBridge,
    words: Sequence[tuple[tuple[int, int], ...]] | None,
    places: list[str],
    taken: Callable[[int], object],
    named: Counter[str],
) -> Iterator[str]:
    """Each text's pieces; where words are asked of, their first pieces go into `places`, own symbols into `named`."""
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        encodings = bridge.encodings_of(chunk)
        if words is not None:
            spans = spans_of_encodings(chunk, encodings).by_text()
            asked = words[start : start + _CHUNK]
            places += [" ".join(map(str, first_pieces(each, found))) for each, found in zip(asked, spans)]
        for line in bridge.lines_of(encodings):
            named.update({"sentences": not _AROUND.isdisjoint(line.split(" "))})
            yield line
        taken(len(chunk))


def first_pieces(words: Sequence[tuple[int, int]], pieces: Sequence[tuple[int, int]]) -> list[int]:
    """The number of each word's first piece; -1 where no piece has a character of it.

    >>> first_pieces([(0, 1), (2, 8)], [(0, 1), (2, 5), (5, 8)]), first_pieces([(0, 1)], [])
    ([0, 1], [-1])
    """
    starts, ends = (np.array([span[side] for span in pieces], dtype=np.int64) for side in (0, 1))
    ends = np.maximum.accumulate(ends) if len(ends) else ends
    found = []
    for start, end in words:
        place = int(np.searchsorted(ends, start, side="right"))
        found.append(place if place < len(starts) and starts[place] < end else NO_PIECE)
    return found


def read_column(folder: Path, split: str, name: str, lines: int) -> list[str]:
    """A file of a split: a line for each example.

    Raises:
        InputError: it can't be read, or has another number of lines.
    """
    found = read_lines(folder / f"{split}.{name}", pipes=False)
    if len(found) != lines:
        raise InputError(
            f"{folder / split}.{name} should have {lines} lines, one for each example, but has {len(found)}. Make the "
            "folder again with: visual-grounding prepare …"
        )
    return found


def read_asked(folder: Path) -> tuple[Asked, dict[str, Any]]:
    """What is asked, and all that `meta.json` says.

    Raises:
        InputError: it isn't such a folder.
    """
    meta = read_meta(
        folder,
        FORMAT,
        signature=str,
        tokenizer_sha256=str,
        splits=dict,
        answers=str,
        labels=list,
        sentences=int,
        separators=int,
    )
    if not all(isinstance(label, str) for label in meta["labels"]):
        raise InputError(f"{folder / META} should have names as labels, but has others. Make the folder again.")
    choices: dict[str, tuple[object, ...]] = {"answers": (CLASSES, VALUES, TAGS), "sentences": (1, len(SIDES))}
    for name, known in choices.items():
        if meta[name] not in known:
            wanted = " or ".join(map(str, known))
            raise InputError(
                f"{folder / META} should have {wanted} as {name!r}, but has {meta[name]!r:.80}. Make the folder again."
            )
    for split, of in meta["splits"].items():
        if not isinstance(of, dict):
            raise InputError(f"{folder / META} should have a table as split {split!r:.80}, but has {of!r:.80}.")
        check_fields(folder / META, of, {"examples": int, "sha256": str, **({"files": dict} if "files" in of else {})})
    return Asked(
        meta["answers"],
        tuple(meta["labels"]),
        meta["sentences"],
        bool(meta.get("word")),
        meta["separators"],
        meta["tokenizer_sha256"],
    ), meta
