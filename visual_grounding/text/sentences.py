"""Where the sentences of a text begin, by the rules of `sentencex`: no model, no download, any language."""

from itertools import accumulate

from sentencex import segment


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
