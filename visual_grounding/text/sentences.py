"""Where the sentences of a text begin, by the rules of `sentencex`: no model, no download, any language."""

import re
from itertools import accumulate

from sentencex import segment

from ..errors import InputError


def check_language(language: str) -> None:
    """Refuse what is no code of a language: `sentencex` would take the rules that many share, in silence.

    Raises:
        InputError: it is a name, such as german, or anything else.
    """
    if not re.fullmatch("[a-z]{2,3}([-_][A-Za-z]+)?", language):
        raise InputError(f"the language should be an ISO 639 code, such as de, but is {language!r}.", "language")


def sentence_starts(text: str, language: str = "en") -> list[int]:
    """First character of each sentence, 0 first; white space after a sentence belongs to it. None of an empty text.

    Args:
        language: ISO 639 code, which decides what abbreviations are; one that `sentencex` doesn't know is read by rules
            that many languages share.

    >>> sentence_starts("Dr. Smith left. It rained.")
    [0, 16]
    """
    lengths = [len(sentence) for sentence in segment(language, text)]
    return [0, *accumulate(lengths[:-1])] if lengths else []
