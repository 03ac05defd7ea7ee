"""A text without the words that a mask touches: what images are found for where a model learns to say them (GS §2.4).

A mask hides pieces; a word of which one piece is hidden leaves the query as a whole, since the rest of it would tell.
So a query doesn't change when what is hidden is replaced by other pieces of the same kind, beginnings of words by
beginnings and what continues them by what does.
"""

import json
from typing import Any

import numpy as np

from ..errors import InputError
from .tokenizer_bridge import TokenizerBridge
from .words import SPECIAL_SYMBOLS

_SPACE_OF_BYTES = ("Ġ", "Ċ", "ĉ", "č")  # how byte-level pieces spell a space, line ends and a tab


class WordsOfPieces:
    """Which pieces of a tokenizer make a word.

    # Assumption: of byte-level and sentencepiece tokenizers a word is what stands between spaces, with its punctuation.
    # Of WordPiece it is what the tokenizer splits into pieces: punctuation stands alone, so where a mask touches one
    # part of `snow-covered` the other one stays in the query.

    Args:
        bridge: the tokenizer.

    Raises:
        InputError: its pieces don't tell where words begin.
    """

    def __init__(self, bridge: TokenizerBridge) -> None:
        self.bridge = bridge
        begins, ends = _marks(bridge)
        self._begins = np.array([begins(symbol) for symbol in bridge.symbols], dtype=bool)
        self._ends = np.array([ends(symbol) for symbol in bridge.symbols], dtype=bool)

    def words(self, numbers: np.ndarray) -> np.ndarray:
        """The word that each piece belongs to, counted from 0.

        Args:
            numbers: fairseq's, of a text's pieces.

        Shapes:
            numbers: (T,);  returns: (T,) int64
        """
        starts = self._begins[numbers]
        starts[1:] |= self._ends[numbers[:-1]]
        starts[:1] = True
        return starts.cumsum() - 1

    def without(self, numbers: np.ndarray, hidden: np.ndarray) -> str:
        """The text without the words that are hidden in part or as a whole; unknown pieces are left out, too.

        Shapes:
            numbers: (T,);  hidden: (T,) bool
        """
        word = self.words(numbers)
        kept = ~np.isin(word, word[hidden]) & (numbers >= len(SPECIAL_SYMBOLS))
        return self.bridge.text_of(self.bridge.line_of(numbers[kept].tolist()))


def _marks(bridge: TokenizerBridge) -> tuple[Any, Any]:
    """Whether a piece begins a word; whether a word ends with it."""
    settings = json.loads(bridge.tokenizer.backend_tokenizer.to_str())
    model = settings["model"]
    kinds = {part["type"] for name in ("pre_tokenizer", "decoder") for part in _parts(settings.get(name))}

    def never(symbol: str) -> bool:
        return False

    if model.get("type") == "WordPiece":
        prefix = model["continuing_subword_prefix"]
        return lambda symbol: not symbol.startswith(prefix), never
    if model.get("end_of_word_suffix"):
        return never, lambda symbol: symbol.endswith(model["end_of_word_suffix"])
    if "Metaspace" in kinds:
        return lambda symbol: symbol.startswith("▁"), never
    if "ByteLevel" in kinds:
        return lambda symbol: symbol.startswith(_SPACE_OF_BYTES), never
    raise InputError(
        f"tokenizer {bridge.name!r} should mark where words begin (as WordPiece, sentencepiece and byte-level "
        f"tokenizers do), but is a {model.get('type')} with {', '.join(sorted(kinds)) or 'nothing'} around it: words "
        "that are hidden in part couldn't be left out of queries."
    )


def _parts(setting: Any) -> list[dict[str, Any]]:
    """A step of a tokenizer, or the steps of a sequence of them."""
    if not setting:
        return []
    for name in ("pretokenizers", "decoders"):
        if name in setting:
            return [part for step in setting[name] for part in _parts(step)]
    return [setting]
