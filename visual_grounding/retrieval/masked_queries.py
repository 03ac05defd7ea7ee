"""One fixed mask for each line of a text, the queries that it leaves, and how a table of image ids keeps it (GS §2.4).

Whoever finds images beforehand for a model that learns to say hidden words has to hide the same words from the finder:
the mask stands in the table, and training uses it.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..modules.masking import generator_of
from ..text.masked_words import WordsOfPieces
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import digest_of_symbols
from .image_ids import AROUND

MAX_PIECES = 64  # of `--task grounded_lm`
_TOGETHER = 1000  # lines: what the tokenizer makes of them takes many times their memory, and is let go


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


def mask_queries(
    bridge: TokenizerBridge, lines: Sequence[str], probability: float, seed: int, max_pieces: int = MAX_PIECES
) -> MaskedQueries:
    """Hide pieces of every line, each with the same probability, and take the words that they touch out of it.

    What a model doesn't read of a long line is in no query either: a hidden word may stand there again.

    Args:
        bridge: the tokenizer of the model that will learn.
        probability: that a piece is hidden.
        seed: of the mask, which depends on it, on the line's place, and on nothing else.
        max_pieces: that the model reads of a line, the symbols around it included.

    Raises:
        InputError: the probability isn't between 0 and 1, the seed is negative, no piece is read, or as
            `WordsOfPieces`.
    """
    if not 0 < probability < 1:
        raise InputError(f"the share of hidden pieces should be between 0 and 1, but is {probability}.", "mask_prob")
    if seed < 0:
        raise InputError(f"a seed should be 0 or more, but is {seed}.", "mask_seed")
    if max_pieces <= AROUND:
        raise InputError(
            f"pieces of a line should be at least {AROUND + 1}, for one between two symbols, but are {max_pieces}.",
            "mask_max_pieces",
        )
    words = WordsOfPieces(bridge)
    queries, pieces, masks = [], [], []
    cut = (bridge.numbers_of(lines[start : start + _TOGETHER]) for start in range(0, len(lines), _TOGETHER))
    for place, numbers in enumerate(chain.from_iterable(cut)):
        pieces.append(len(numbers))
        read = np.array(numbers[: max_pieces - AROUND], dtype=np.int64)
        hidden = generator_of(seed, place).random(len(read)) < probability
        queries.append(words.without(read, hidden))
        masks.append(np.packbits(hidden))
    mask = np.zeros((len(masks), max([1, *map(len, masks)])), dtype=np.uint8)
    for row, packed in zip(mask, masks):
        row[: len(packed)] = packed
    made_by = {
        "mask_prob": float(probability),
        "mask_seed": seed,
        "mask_max_pieces": max_pieces,
        "tokenizer_sha256": bridge.sha256,
        "symbols_sha256": digest_of_symbols(bridge.symbols),
    }
    return MaskedQueries(queries, np.array(pieces, dtype=np.int32), mask, made_by)
