"""Vokens: which image goes with each piece of a text (VOK §3.1), and the pieces, so that nothing drifts apart.

vokens.npy     (total pieces,) int32, the voken of each piece: a number among the candidates; −1 = none
offsets.npy    (S + 1,) int64, where each line's pieces begin; S = lines of the text, an empty one has none
scores.npy     (total pieces,) float16, where they were asked for: how similar the piece and its image are
tokens.txt     the pieces of each line, and dict.txt, ready for fairseq-preprocess
tokenizer/     what cut the text into them
keys.txt       the image of each voken
"""

import shlex
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..storage.artefact import Keys, open_array, read_meta, sha256_of_file
from ..storage.lines import iterate_lines
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import DICTIONARY

VOKENS = "vokens"
NO_VOKEN = -1
TOKENS, KEYS, TOKENIZER = "tokens.txt", "keys.txt", "tokenizer"
ARRAYS_SHA256 = "arrays_sha256"  # in meta.json: of each array's file
_FLAGS = {"train": "--trainpref", "valid": "--validpref", "test": "--testpref"}  # fairseq-preprocess's, of each split
LABELS = ("token", "sentence")  # what a voken was chosen for
_LOOKED_AT = 2**22  # numbers at a time
_LINES = 2**16  # likewise, lines


class Vokens:
    """The voken of every piece of a text.

    Attributes:
        vokens: (total,) int32, memory-mapped; −1 = none.
        offsets: (S + 1,) int64, memory-mapped.
        scores: (total,) float16, memory-mapped; None where none were kept.
        lines: S.
        tokens: how many pieces there are.
        size: V, how many images were candidates.
        label: what vokens were chosen for: each "token", or a "sentence", whose pieces all have the same one.
        text_sha256: of the text's lines.
        tokens_sha256: of the lines of tokens.txt.
        tokenizer_sha256: `TokenizerBridge.sha256`.
        keys_sha256: of the candidates.
        counts: what there was to say about the text, e.g. how many lines were empty.
        again: what to do where it is broken.

    Raises:
        InputError: the folder isn't a whole artefact, or its arrays don't fit one another.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        digests = {f"{name}_sha256": str for name in ("text", "tokens", "tokenizer", "keys")}
        counts = {name: int for name in ("lines", "tokens", "vokens")}
        meta = read_meta(self.folder, VOKENS, signature=str, label=str, counts=dict, **digests, **counts)
        self.signature: str = meta["signature"]
        self.lines: int = meta["lines"]
        self.tokens: int = meta["tokens"]
        self.size: int = meta["vokens"]
        self.label: str = meta["label"]
        self.text_sha256: str = meta["text_sha256"]
        self.tokens_sha256: str = meta["tokens_sha256"]
        self.tokenizer_sha256: str = meta["tokenizer_sha256"]
        self.keys_sha256: str = meta["keys_sha256"]
        self.counts = {name: count for name, count in meta["counts"].items() if isinstance(count, int)}
        verb = "revokenize" if self.signature.startswith("revokenize|") else "vokenize"
        self.again = f"Delete {self.folder}, and make it again with: visual-grounding {verb}"
        if self.label not in LABELS:
            raise InputError(f"{self.folder} should have vokens of {' or '.join(LABELS)}, but says {self.label!r:.80}.")
        self.vokens = open_array(self.folder / "vokens.npy", (self.tokens,), "int32")
        self.offsets = open_array(self.folder / "offsets.npy", (self.lines + 1,), "int64")
        scored = self.folder / "scores.npy"
        self.scores = open_array(scored, (self.tokens,), "float16") if scored.is_file() else None
        self._check_offsets()

    def _check_offsets(self) -> None:
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        falls = any((np.diff(self.offsets[at : at + _LOOKED_AT + 1]) < 0).any() for at in _places(self.lines))
        if first != 0 or last != self.tokens or falls:
            said = "fall in between" if falls else f"go from {first} to {last}"
            raise InputError(
                f"{self.folder / 'offsets.npy'} should go from 0 to {self.tokens}, the pieces that there are, and "
                f"never fall, but they {said}. {self.again}"
            )

    def check_range(self) -> None:
        """Refuse vokens that are none of the candidates; reads all of them.

        Raises:
            InputError: there is one.
        """
        for at in _places(self.tokens):
            part = self.vokens[at : at + _LOOKED_AT]
            wrong = np.flatnonzero((part < NO_VOKEN) | (part >= self.size))
            if len(wrong):
                raise InputError(
                    f"{self.folder / 'vokens.npy'} should hold numbers of its {self.size} candidates, "
                    f"0..{self.size - 1}, or {NO_VOKEN} for none, but has {part[wrong[0]]} at {at + wrong[0]}. "
                    f"{self.again}"
                )

    def check_arrays(self) -> None:
        """Refuse arrays that aren't what was written; reads all of them.

        Raises:
            InputError: the sha256 of a file isn't the one in meta.json.
        """
        digests = read_meta(self.folder, VOKENS, **{ARRAYS_SHA256: dict})[ARRAYS_SHA256]
        found = {path.stem: sha256_of_file(path) for path in self.folder.glob("*.npy")}
        for name in sorted(found.keys() | digests):
            if name not in digests:
                why = "meta.json knows nothing of it"
            elif name not in found:
                why = "it isn't there any more"
            elif found[name] != digests[name]:
                why = "its sha256 isn't the one in meta.json"
            else:
                continue
            raise InputError(f"{self.folder / name}.npy isn't what was written: {why}. {self.again}")

    def of_line(self, line: int) -> np.ndarray:
        """Vokens of a line's pieces: (n,)."""
        return self.vokens[self.offsets[line] : self.offsets[line + 1]]

    def keys(self) -> Keys:
        """The image of each voken, read from disk one by one.

        Raises:
            InputError: as `read_keys`.
        """
        return Keys(self.folder / KEYS, self.size, self.keys_sha256)

    def token_lines(self) -> Iterator[str]:
        """The pieces of each line, joined by spaces, read from disk one by one.

        Raises:
            InputError: there aren't as many lines as there should be, or one hasn't as many pieces.
        """
        path = self.folder / TOKENS
        for number, (line, pieces) in enumerate(zip_longest(iterate_lines(path, pipes=False), self._sizes())):
            found = -1 if line is None else len(line.split())
            if line is None or pieces is None or found != pieces:
                what = "ends before it" if line is None else "goes on" if pieces is None else f"has {found}"
                raise InputError(
                    f"{path} should have {self.lines} lines and {pieces or 0} pieces in line {number + 1}, but "
                    f"{what}. {self.again}"
                )
            yield line

    def _sizes(self) -> Iterator[int]:
        """How many pieces each line has."""
        for at in range(0, self.lines, _LINES):
            yield from np.diff(self.offsets[at : min(at + _LINES, self.lines) + 1]).tolist()

    def bridge(self) -> TokenizerBridge:
        """The tokenizer that cut the text.

        Raises:
            InputError: it isn't there, or isn't the one any more.
        """
        bridge = TokenizerBridge(str(self.folder / TOKENIZER))
        if bridge.sha256 != self.tokenizer_sha256:
            raise InputError(
                f"{self.folder / TOKENIZER} should be the tokenizer that cut the text, sha256 "
                f"{self.tokenizer_sha256[:8]}…, but is another one: {bridge.sha256[:8]}…. {self.again}"
            )
        return bridge

    @property
    def binarise(self) -> str:
        """The command that makes training data of the pieces; of the splits that lie beside this one, too."""
        folders = {self.folder.resolve().name: self.folder}
        if not folders.keys() & _FLAGS.keys():
            folders = {"train": self.folder}
        else:
            beside = {split: self.folder.parent / split for split in _FLAGS}
            folders = {split: place for split, place in beside.items() if self._is_alike(place)} | folders
        files = ["--srcdict", str(self.folder / DICTIONARY)]
        for split, flag in _FLAGS.items():
            files += [flag, str(folders[split] / TOKENS)] if split in folders else []
        return f"fairseq-preprocess --only-source {shlex.join(files)} --destdir DIR"

    def _is_alike(self, place: Path) -> bool:
        """Whether vokens of the same tokenizer lie there."""
        try:
            return Vokens(place).tokenizer_sha256 == self.tokenizer_sha256
        except InputError:
            return False


def _places(count: int) -> range:
    return range(0, count, _LOOKED_AT)
