"""One fixed mask for each line of a text, the queries that it leaves, and how a table of image ids keeps it (GS §2.4).

Whoever finds images beforehand for a model that learns to say hidden words has to hide the same words from the finder:
the mask stands in the table, and training uses it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..modules.masking import generator_of
from ..text.masked_words import WordsOfPieces
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import digest_of_symbols

MOST_PIECES = 1024  # of a line that the mask has room for: one very long line mustn't make the table as wide


class MaskedQueries(NamedTuple):
    """Lines without what a mask touches.

    Attributes:
        queries: the lines.
        pieces: how many each line has.
        mask: a bit for each, most significant first; those behind the last piece are 0.
        made_by: JSON-ready; what decides the mask.

    Shapes:
        pieces: (S,) int32;  mask: (S, W) uint8
    """

    queries: list[str]
    pieces: np.ndarray
    mask: np.ndarray
    made_by: dict[str, Any]


def mask_queries(bridge: TokenizerBridge, lines: Sequence[str], probability: float, seed: int) -> MaskedQueries:
    """Hide pieces of every line, each with the same probability, and take the words that they touch out of it.

    Of a very long line the first `MOST_PIECES` alone may be hidden: models read no more.

    Args:
        bridge: the tokenizer of the model that will learn.
        probability: that a piece is hidden.
        seed: of the mask, which depends on it, on the line's place, and on nothing else.

    Raises:
        InputError: the probability isn't between 0 and 1, the seed is negative, or as `WordsOfPieces`.
    """
    if not 0 < probability < 1:
        raise InputError(f"the share of hidden pieces should be between 0 and 1, but is {probability}.", "mask_prob")
    if seed < 0:
        raise InputError(f"a seed should be 0 or more, but is {seed}.", "mask_seed")
    words = WordsOfPieces(bridge)
    queries, pieces, masks = [], [], []
    for place, numbers in enumerate(bridge.numbers_of(lines)):
        hidden = generator_of(seed, place).random(len(numbers)) < probability
        hidden[MOST_PIECES:] = False
        queries.append(words.without(np.array(numbers, dtype=np.int64), hidden))
        pieces.append(len(numbers))
        masks.append(np.packbits(hidden[:MOST_PIECES]))
    mask = np.zeros((len(masks), max([1, *map(len, masks)])), dtype=np.uint8)
    for row, packed in zip(mask, masks):
        row[: len(packed)] = packed
    made_by = {
        "mask_prob": float(probability),
        "mask_seed": seed,
        "tokenizer_sha256": bridge.sha256,
        "symbols_sha256": digest_of_symbols(bridge.symbols),
    }
    return MaskedQueries(queries, np.array(pieces, dtype=np.int32), mask, made_by)
