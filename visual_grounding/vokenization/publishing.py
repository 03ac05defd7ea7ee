"""Joining shards of vokens to the artefact that `vokens.py` reads."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..storage.growing import GrowingArtefact
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import DICTIONARY
from .vokens import ARRAYS_SHA256, KEYS, TOKENIZER, TOKENS

LENGTHS, SCORES = "lengths", "scores"  # arrays of a shard, beside its vokens


def publish_vokens(
    artefact: GrowingArtefact,
    bridge: TokenizerBridge,
    keys: Iterable[str],
    counted: Sequence[str],
    scored: bool,
    **meta: str | int,
) -> None:
    """Join the shards, add what is the same for all of them, and publish. Waits for other ranks.

    Args:
        artefact: its shards have arrays `vokens`, `lengths` (pieces of each line) and maybe `scores`, the text
            tokens.txt, and in their notes how many `lines` they have, and what is counted.
        bridge: the tokenizer of the pieces.
        keys: the image of each voken.
        counted: names of the counts.
        scored: whether there are scores.
        meta: what else meta.json has: `vokens`, `label`, `text_sha256`, `keys_sha256`, `signature`.

    Raises:
        InputError: it can't be written, or another rank died.
    """
    notes = artefact.notes(lines=int, **dict.fromkeys(counted, int))
    lines = sum(note["lines"] for note in notes)
    pieces = sum(int(block.sum()) for block in artefact.blocks(LENGTHS))
    digests = {name: artefact.join_array(name, pieces) for name in ("vokens", *([SCORES] if scored else []))}
    digests["offsets"] = artefact.add_array("offsets", (lines + 1,), "int64", _offsets(artefact.blocks(LENGTHS)))
    tokens_sha256 = artefact.join_text(TOKENS)
    artefact.add_lines(DICTIONARY, bridge.dictionary_lines())
    artefact.add_lines(KEYS, keys)
    artefact.add_folder(TOKENIZER, bridge.tokenizer.save_pretrained)
    artefact.publish(
        {
            "lines": lines,
            "tokens": pieces,
            "tokens_sha256": tokens_sha256,
            ARRAYS_SHA256: digests,
            "tokenizer_sha256": bridge.sha256,
            "counts": {name: sum(note[name] for note in notes) for name in counted},
            **meta,
        }
    )


def _offsets(lengths: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Where lines begin, from what they have, shard by shard."""
    total = 0
    yield np.zeros(1, np.int64)
    for block in lengths:
        yield total + np.cumsum(block)
        total += int(block.sum())
