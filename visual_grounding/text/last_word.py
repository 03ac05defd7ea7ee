"""The last word of a sentence in pieces, after the punctuation that closes it.

Words are told by the marks of their pieces: `@@` at the end of one that goes on (subword-nmt), `▁` at the beginning of
a word (sentencepiece), `##` at the beginning of what goes on (WordPiece); without any mark each piece is a word.
"""

import html
from collections.abc import Sequence

_BEGINS = "\u2581"  # ▁
_CONTINUES = "@@"
_GOES_ON = "##"
BYTE_LEVEL = "\u0120"  # Ġ: a mark of byte-level pieces, and a letter of Maltese


def last_word(pieces: Sequence[str]) -> slice | None:
    """Where the last word is, so that `pieces[:word.stop]` is the sentence without what closes it; None without a word.

    Words without any letter or digit are taken off the end, and closing marks that stand in the word itself, as
    sentencepiece leaves them there.

    >>> last_word("two dogs pl@@ ay . \\"".split()), last_word("▁two ▁do gs . ▁!".split()), last_word(["?", "!"])
    (slice(2, 4, None), slice(1, 3, None), None)
    """
    starts = [place for place in range(len(pieces)) if _begins_word(pieces, place)]
    stop = len(pieces)
    while stop:
        start = max(place for place in starts if place < stop)
        if _has_letter("".join(piece.removesuffix(_CONTINUES) for piece in pieces[start:stop])):
            break
        stop = start
    else:
        return None
    while not _has_letter(pieces[stop - 1]) and not _belongs(pieces, stop - 1):
        stop -= 1
    return slice(start, stop)


def _begins_word(pieces: Sequence[str], place: int) -> bool:
    if place == 0:
        return True
    if any(piece.startswith(_BEGINS) for piece in pieces):
        return pieces[place].startswith(_BEGINS)
    return not _belongs(pieces, place)


def _belongs(pieces: Sequence[str], place: int) -> bool:
    """Whether a piece goes on with the one before it, by a mark of its own or of that one."""
    goes_on = len(pieces[place]) > len(_GOES_ON) and pieces[place].startswith(_GOES_ON)
    return goes_on or (place > 0 and pieces[place - 1].endswith(_CONTINUES))


def _has_letter(word: str) -> bool:
    return any(letter.isalnum() for letter in html.unescape(word))  # &quot; as the Moses tokenizer writes it
