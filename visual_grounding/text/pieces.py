"""Plain words from what is ready for a translation model's dictionary."""

import re

_SENTENCEPIECE_SPACE = "\u2581"  # ▁
_SUBWORD_CONTINUES = "@@"
_WORDPIECE_GOES_ON = re.compile(r" ##(?=\S)")


def join_pieces(line: str) -> str:
    """A sentence whose subword pieces are joined again; one without pieces stays as it is.

    Pieces are known by their marks: `@@` at the end of one that goes on (subword-nmt), `▁` at the start of a word
    (sentencepiece), `##` at the start of what goes on (WordPiece). The mark of byte-level pieces is a letter of
    Maltese, so only their own tokenizer can join them (`TokenizerBridge.text_of`).

    >>> join_pieces("ein Schl@@ ä@@ ger ."), join_pieces("▁ein ▁Schl ä ger ."), join_pieces("ein Schläger")
    ('ein Schläger .', 'ein Schläger.', 'ein Schläger')
    >>> join_pieces("tennis ##y ball"), join_pieces("## a heading")
    ('tennisy ball', '## a heading')
    """
    if _SENTENCEPIECE_SPACE in line:
        return line.replace(" ", "").replace(_SENTENCEPIECE_SPACE, " ").strip()
    return _WORDPIECE_GOES_ON.sub("", f"{line} ".replace(f"{_SUBWORD_CONTINUES} ", "").rstrip())
