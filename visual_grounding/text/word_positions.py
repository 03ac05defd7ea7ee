"""Which words of a sentence are meant, given by their numbers, and which of its pieces make up each word.

Words are what stands between spaces in a text, and are counted from 0. A translation model reads that text in pieces
(subword-nmt, sentencepiece, WordPiece), of which some may be unknown to its dictionary. Where a word's pieces are is
told by their letters, so it needs no mark at their ends: the pieces, joined, are the sentence without its spaces.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ..errors import InputError
from ..storage.lines import read_lines

NO_WORD = -1  # of a token that belongs to no word, such as the end of a sentence
UNKNOWN_PIECE = "<unk>"
_NONE = {"", "-", "-1"}
_MOST_DIGITS = 9  # of a word's number; Python refuses to read thousands
_SPACE = "\x1f"  # what can't be in a word
_MARKS = re.compile(r"^\u2581|^##(?=.)|@@$")


def read_positions(path: str | Path) -> list[frozenset[int]]:
    """Numbers of words, one line a sentence, apart by spaces or commas; `-1`, `-` or nothing: none.

    Raises:
        InputError: the file can't be read, or a line holds anything else.
    """
    found = []
    for number, line in enumerate(read_lines(path), 1):
        said = line.replace(",", " ").split()
        if " ".join(said) in _NONE:
            said = []
        if not all(word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS for word in said):
            raise InputError(
                f"{path}:{number} should be numbers of words, counted from 0, with spaces between them, or -1 for "
                f"none, but is {line[:80]!r}.",
                "positions",
            )
        found.append(frozenset(map(int, said)))
    return found


def check_positions(positions: Sequence[Collection[int]], lines: Sequence[str], path: str, text: str) -> None:
    """Insist that every number is one of a word.

    Args:
        positions: one collection for each line.
        lines: the sentences.
        path: where the numbers were read, for the message.
        text: where the sentences were.

    Raises:
        InputError: there are more lines of one than of the other, or a sentence has fewer words.
    """
    if len(positions) != len(lines):
        raise InputError(
            f"{path} should have one line of positions for each sentence of {text}, but has {len(positions)} for "
            f"{len(lines)}.",
            "positions",
            "text",
        )
    beyond = [
        number for number, (each, line) in enumerate(zip(positions, lines)) if max(each, default=-1) >= _words(line)
    ]
    if beyond:
        first = beyond[0]
        words = _words(lines[first])
        raise InputError(
            f"{path}:{first + 1} should have numbers of the {words} words of that sentence (0 to {words - 1}), but has "
            f"{max(positions[first])}; so have {len(beyond)} of {len(lines)} lines. Line {first + 1} of {text} is "
            f"{lines[first][:60]!r}. Words are what stands between spaces: give the text, tokenised, that the "
            "positions were made for.",
            "positions",
            "text",
        )


def _words(line: str) -> int:
    return len(line.split())


def words_of_pieces(pieces: Sequence[str], line: str) -> list[int] | None:
    """The number of the word that each piece belongs to; None where the pieces aren't those of this line.

    Letters are compared without case and accents, as a tokenizer may have changed these. An unknown piece stands for
    one or more letters of one word.

    Args:
        pieces: of a sentence, without its end.
        line: the sentence.

    >>> words_of_pieces("a tenn@@ is ball .".split(), "A tennis ball .")
    [0, 1, 1, 2, 3]
    >>> words_of_pieces("▁a ▁ tenn is ▁ball .".split(), "a tennis ball.")
    [0, 1, 1, 1, 2, 2]
    >>> words_of_pieces("a tenn@@ <unk> ball .".split(), "a tennis ball ."), words_of_pieces(["a", "dog"], "a cat")
    ([0, 1, 1, 2, 3], None)
    """
    text = _SPACE.join(_plain(word) for word in line.split())
    before: list[dict[int, int]] = []  # of each piece: where the next one may begin -> where it began itself
    places = {0}
    for piece in pieces:
        # The latest beginning counts: a mark by itself (▁) belongs to the word behind it.
        before.append({place: at for at in sorted(places) for place in _behind(piece, text, at)})
        places = set(before[-1])
    if len(text) not in places:
        return None
    at, words = len(text), []
    for known in reversed(before):
        at = known[at]
        words.append(text.count(_SPACE, 0, at))
    return words[::-1]


def _behind(piece: str, text: str, at: int) -> Iterator[int]:
    """Where the next piece may begin, if this one begins here: right behind it, or in the next word."""
    if piece == UNKNOWN_PIECE:
        stop = text.find(_SPACE, at)
        ends = range(at + 1, (len(text) if stop < 0 else stop) + 1)
    else:
        letters = _plain(piece)
        ends = range(at + len(letters), at + len(letters) + text.startswith(letters, at))
    for end in ends:
        yield end
        if text.startswith(_SPACE, end):
            yield end + 1


def _plain(piece: str) -> str:
    """Letters of a piece without its marks, and of a word likewise."""
    decomposed = unicodedata.normalize("NFKD", _MARKS.sub("", piece)).casefold()
    return "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn" and not letter.isspace())


def words_of_spans(spans: Sequence[tuple[int, int]], line: str) -> list[int]:
    """The number of the word that each piece belongs to, given where in the line its letters are.

    >>> words_of_spans([(0, 1), (2, 6), (6, 8), (8, 9)], "a tennis.")
    [0, 1, 1, 1]
    """
    ends = [match.end() for match in re.finditer(r"\S+", line)]
    return [sum(end <= start for end in ends[:-1]) for start, _ in spans]


def mask_words(tokens: Sequence[int], words: Sequence[int], masked: Collection[int], mask: int | None) -> list[int]:
    """Put one mask in the place of each of some words, however many pieces it has; without a mask, take them out.

    Args:
        tokens: of a sentence.
        words: the number of the word that each belongs to, `NO_WORD` for none.
        masked: numbers of words.
        mask: the mask's token.

    >>> tokens, words = [5, 6, 7, 8, 2], [0, 1, 1, 2, NO_WORD]
    >>> mask_words(tokens, words, {1}, mask=9), mask_words(tokens, words, {1}, mask=None)
    ([5, 9, 8, 2], [5, 8, 2])
    """
    kept: list[int] = []
    previous = NO_WORD
    for token, word in zip(tokens, words, strict=True):
        if word not in masked:
            kept.append(token)
        elif word != previous and mask is not None:
            kept.append(mask)
        previous = word
    return kept
