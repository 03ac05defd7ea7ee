"""`vokenize --check`: whether a finished output is what it says, piece by piece, of this text and as it was written."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..shares import percent
from ..storage.lines import read_lines
from ..text.tokenizer_bridge import TokenizerBridge, composed
from ..text.words import DICTIONARY
from .text_shards import TextReader
from .vokens import NO_VOKEN, Vokens

_LINES = 1000  # at a time, or fewer: a shard of the text has so many letters at most


def check_vokens(folder: Path, text: Sequence[Path]) -> str:
    """Cut a text again, and compare it with an artefact; look at every voken. Constant memory.

    Returns:
        what was found, in a line.

    Raises:
        InputError: the first thing that isn't as it should be.
    """
    vokens = Vokens(folder)
    vokens.check_range()
    vokens.check_arrays()
    keys = len(list(vokens.keys()))
    bridge = vokens.bridge()
    if read_lines(folder / DICTIONARY, pipes=False) != bridge.dictionary_lines():
        raise InputError(
            f"{folder / DICTIONARY} should be the dictionary of {folder / 'tokenizer'}, but isn't. {vokens.again}"
        )
    reader = TextReader(text)
    blocks = (shard.lines[at : at + _LINES] for shard in reader.shards() for at in range(0, len(shard.lines), _LINES))
    digest = _compare(vokens, bridge, blocks)
    if reader.sha256 != vokens.text_sha256:
        raise InputError(
            f"{folder} was made of another text: its sha256 is {vokens.text_sha256[:8]}…, but that of "
            f"{', '.join(map(str, text))} is {reader.sha256[:8]}…, although its pieces are the same."
        )
    if digest != vokens.tokens_sha256:
        raise InputError(f"{folder / 'tokens.txt'} was changed: its sha256 isn't the one in its meta.json.")
    nothing = sum(
        int((vokens.vokens[at : at + 2**22] == NO_VOKEN).sum()) for at in range(0, max(vokens.tokens, 1), 2**22)
    )
    none = f", {percent(nothing / vokens.tokens)} of them without a voken" if nothing else ""
    return f"{vokens.lines} lines, {vokens.tokens} pieces{none}, {keys} candidates, all as the text and tokenizer say."


def _compare(vokens: Vokens, bridge: TokenizerBridge, blocks: Iterator[list[str]]) -> str:
    """Compare the pieces of each line, a block of lines at a time; the sha256 of what stands in tokens.txt."""
    written = vokens.token_lines()
    found, number = hashlib.sha256(), 0
    for block in blocks:
        cut, _ = bridge.cut([composed(line) for line in block], [False] * len(block))
        for text, numbers, line in zip_longest(block, cut, islice(written, len(block))):
            number += 1
            if line is None or line != bridge.line_of(np.asarray(numbers).tolist()):
                held = "no line" if line is None else repr(line[:60])
                raise InputError(
                    f"{vokens.folder / 'tokens.txt'} should have the pieces of {text[:60]!r} in line {number}, but has "
                    f"{held}: it is of another text, or was changed."
                )
            found.update(f"{line}\n".encode())
    if next(written, None) is not None:
        raise InputError(
            f"{vokens.folder} should be of this text of {number} lines, but has {vokens.lines}: it is of another one."
        )
    return found.hexdigest()
