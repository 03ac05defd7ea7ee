"""What a model has to beat that tells vokens: the commonest one of all, and the commonest one of each piece."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..storage.artefact import check_array_whole
from .vokens import NO_VOKEN, Vokens

_AT_ONCE = 2**22  # pieces that are counted together


class CommonestShares(NamedTuple):
    """Shares of a text's vokens that are told without looking at what is around a piece, 0..1.

    Attributes:
        overall: by the commonest voken of all: what is known of a masked piece.
        of_piece: by the commonest voken of that piece: what is known of one that is seen. A piece that never had one
            counts as any.
        counted: vokens of the text.
    """

    overall: float
    of_piece: float
    counted: int


def commonest_vokens(train: Vokens, valid: Vokens) -> CommonestShares:
    """Count vokens in one text, and look how many of another are the commonest ones; of equals the least number is.

    Memory is taken by the pairs of a piece and a voken that occur, 16 bytes each, not by the text.

    Args:
        train: where the commonest are counted.
        valid: of the same candidates, of another text.

    Raises:
        InputError: they are of other candidates or of another tokenizer, were changed, or one has no voken at all.
    """
    for name, own, other in (
        ("images", valid.keys_sha256, train.keys_sha256),
        ("pieces", valid.tokenizer_sha256, train.tokenizer_sha256),
    ):
        if own != other:
            raise InputError(
                f"vokens in {valid.folder} should be of the same {name} as those in {train.folder}, but are of others: "
                f"sha256 {own[:8]}… ≠ {other[:8]}…."
            )
    for each in (train, valid):
        each.check_range()
        each.check_arrays()
    numbers: dict[str, int] = {}
    pairs, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for pieces, vokens in _counted(train, numbers):
        found, times = np.unique(pieces * train.size + vokens, return_counts=True)
        both = np.concatenate([pairs, found])
        pairs, places = np.unique(both, return_inverse=True)
        counts = np.bincount(places, weights=np.concatenate([counts, times]), minlength=len(pairs)).astype(np.int64)
    if not len(pairs):
        raise InputError(f"{train.folder} should have vokens to count, but none of its {train.tokens} pieces has one.")
    overall = int(np.bincount(pairs % train.size, weights=counts).argmax())
    order = np.lexsort((pairs, -counts, pairs // train.size))  # of each piece its commonest first
    first = order[np.unique((pairs // train.size)[order], return_index=True)[1]]
    of_piece = np.full(len(numbers), overall, np.int64)
    of_piece[pairs[first] // train.size] = pairs[first] % train.size
    hits, hits_of_piece, total, known = 0, 0, 0, len(numbers)
    for pieces, vokens in _counted(valid, numbers):
        guesses = np.where(pieces < known, of_piece[np.minimum(pieces, known - 1)], overall)
        hits += int((vokens == overall).sum())
        hits_of_piece += int((vokens == guesses).sum())
        total += len(vokens)
    if not total:
        raise InputError(f"{valid.folder} should have vokens to tell, but none of its {valid.tokens} pieces has one.")
    return CommonestShares(hits / total, hits_of_piece / total, total)


def _counted(vokens: Vokens, numbers: dict[str, int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of pieces, given in the order in which they come, and their vokens; pieces without one are left out."""
    pieces: list[int] = []
    done = 0

    def part() -> tuple[np.ndarray, np.ndarray]:
        check_array_whole(vokens.vokens)
        own = np.asarray(vokens.vokens[done : done + len(pieces)], dtype=np.int64)
        there = own != NO_VOKEN
        return np.array(pieces, dtype=np.int64)[there], own[there]

    for line in vokens.token_lines():
        pieces += [numbers.setdefault(piece, len(numbers)) for piece in line.split()]
        if len(pieces) >= _AT_ONCE:
            yield part()
            done, pieces = done + len(pieces), []
    yield part()
