"""Is this the text that something was made for? Told from a few of its lines, however they are written.

A line is sketched by the smallest hashes of its groups of four letters: the share that two sketches have in common is
about the share of groups that the lines have in common (Broder 1997, *On the resemblance and containment of
documents*). Letters and digits alone count, so a text resembles itself tokenised, cut into pieces, lower-cased, or with
some of its words masked.
"""

import hashlib
import html
import unicodedata
from collections.abc import Callable, Iterable, Sequence

import numpy as np

LINES = 32
GROUP = 4  # letters
KEPT = 16  # hashes of a line
# Mean over 32 lines, 200 samples each of English, German and French captions: other lines of the same text are below
# 0.08 alike, the same lines with half of their words masked 0.17 or more.
UNLIKE = 0.12
# Of 4,000 lines each of German captions and English Wikipedia: beside the line behind it 66 % or more are below UNLIKE
# and 0.4 % above ALIKE; with 15 % of their words masked 2 % and 82 %; with 40 %, 65 % lie between. Of 600 lines of
# captions a missing one is told at 5 to 85 % of them in 38 of 40 samples or more, of Wikipedia, whose neighbours are of
# one topic, in 4 to 37; whole texts and masked ones in none of 1,620.
ALIKE = 0.5
_FEWEST = 3  # lines before a break, and behind it, that tell of it

_DIGITS = 6  # hexadecimal, of a hash
_BYTE_LEVEL_SPACE = "\u0120"  # Ġ, how byte-level pieces begin a word


def places(lines: int) -> list[int]:
    """Numbers of the lines that stand for a text, evenly spread.

    >>> places(3), places(1000)[:3], len(places(1000))
    ([0, 1, 2], [15, 46, 78], 32)
    """
    return list(range(lines)) if lines <= LINES else [(2 * place + 1) * lines // (2 * LINES) for place in range(LINES)]


def sketch(line: str) -> str:
    """The smallest hashes of a line's groups of letters, ascending; nothing of a line without letters.

    >>> sketch("Ein Hund &amp; ein Bär.") == sketch("ein h@@ und &amp; ein b@@ ar ."), sketch("!")
    (True, '')
    """
    plain = letters(_decoded(line).replace(_BYTE_LEVEL_SPACE, ""))
    groups = {plain[start : start + GROUP] for start in range(max(1, len(plain) - GROUP + 1))} - {""}
    return " ".join(sorted(map(_hash, groups))[:KEPT])


def _decoded(line: str) -> str:
    """A line of byte-level pieces as the text that it is of, where it is one with more than ASCII in it.

    >>> _decoded("ÐłÑĥ ÑģÑģÐºÐ¸Ð¹"), _decoded("Bär"), _decoded("a dog")
    ('Русский', 'Bär', 'a dog')
    """
    if line.isascii():
        return line
    content = bytes(_BYTES[letter] for letter in line.replace(" ", "") if letter in _BYTES)
    if len(content) < len(line.replace(" ", "")):
        return line
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return line  # letters of Latin-1 as they are


def _byte_level() -> dict[str, int]:
    """GPT-2's letters for bytes -> bytes: printable ones of Latin-1 stand for themselves, the others begin at 256."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_level()


def letters(text: str) -> str:
    """Letters and digits alone, without case and accents.

    >>> letters("Zwei Mädchen &quot; 2"), letters("Crème") == letters("creme")
    ('zweimadchen2', True)
    """
    plain = unicodedata.normalize("NFKD", html.unescape(text)).casefold()
    return "".join(letter for letter in plain if letter.isalnum())


def _hash(group: str) -> str:
    return hashlib.blake2b(group.encode("utf-8"), digest_size=_DIGITS // 2).hexdigest()


def shares_in_common(sketches: Iterable[str], candidates: Callable[[int], Iterable[str]]) -> list[float | None]:
    """How much each line resembles the one that was sketched, 0..1; None where one of both has no letters.

    Args:
        sketches: of the lines that `places` names.
        candidates: the number of that line among the sketches -> what might be it, such as source and target: the most
            alike counts. One of digits alone, such as the numbers of pieces, might be anything, and is left out.
    """
    found: list[float | None] = []
    for number, known in enumerate(sketches):
        written = [line for line in candidates(number) if any(letter.isalpha() for letter in line)]
        shares = [_in_common(known, other) for line in written if (other := sketch(line))]
        found.append(max(shares) if known and shares else None)
    return found


def mean_share(shares: Iterable[float | None]) -> float | None:
    """Their mean; None of none."""
    told = [share for share in shares if share is not None]
    return sum(told) / len(told) if told else None


def strangers(shares: Sequence[float | None]) -> list[int]:
    """Which lines are others, in a text that is the one that was sketched up to some line: one is missing there, say.

    Lines that are others here and there are none: of words that a dictionary doesn't know, for instance.

    >>> strangers([1.0, 1.0, 0.9, 0.0, 0.1, 0.0]), strangers([1.0, 0.0, 0.9, 0.0, 0.1, 1.0]), strangers([0.0] * 6)
    ([3, 4, 5], [], [])
    """
    told = [(number, share) for number, share in enumerate(shares) if share is not None]
    familiar = np.array([share >= ALIKE for _, share in told], dtype=float)
    strange = np.array([share < UNLIKE for _, share in told], dtype=float)
    best, found = 0.0, 0
    for cut in range(_FEWEST, len(told) - _FEWEST + 1):
        same = familiar[:cut].mean() >= 0.7 and strange[:cut].mean() <= 0.1
        others = strange[cut:].mean() >= 0.5 and strange[cut:].sum() >= _FEWEST and familiar[cut:].mean() <= 0.1
        fit = float(familiar[:cut].sum() + strange[cut:].sum())
        if same and others and fit > best:
            best, found = fit, cut
    return [number for (number, _), other in zip(told[found:], strange[found:]) if other] if found else []


def of_strangers(lines: Sequence[int]) -> str:
    """What to say of a text that is another in some lines.

    Args:
        lines: their numbers among those that were looked at, from 0.
    """
    return (
        f"from about line {lines[0] + 1} on lines have next to nothing in common with theirs, before it they are the "
        "same. Is a line missing there, or one too many?"
    )


def _in_common(one: str, other: str) -> float:
    first, second = set(one.split()), set(other.split())
    smallest = set(sorted(first | second)[:KEPT])
    return len(smallest & first & second) / len(smallest)
