"""Plain words from what is ready for a translation model's dictionary."""

_SENTENCEPIECE_SPACE = "\u2581"  # ▁
_SUBWORD_CONTINUES = "@@"


def join_pieces(line: str) -> str:
    """A sentence whose subword pieces are joined again; one without pieces stays as it is.

    Pieces are known by their marks: `@@` at the end of one that goes on (subword-nmt), `▁` at the start of a word
    (sentencepiece).

    >>> join_pieces("ein Schl@@ ä@@ ger ."), join_pieces("▁ein ▁Schl ä ger ."), join_pieces("ein Schläger")
    ('ein Schläger .', 'ein Schläger.', 'ein Schläger')
    """
    if _SENTENCEPIECE_SPACE in line:
        return line.replace(" ", "").replace(_SENTENCEPIECE_SPACE, " ").strip()
    return f"{line} ".replace(f"{_SUBWORD_CONTINUES} ", "").rstrip()
