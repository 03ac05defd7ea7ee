"""A pretrained model's pieces in fairseq: its dictionary, and text to pieces and back in fairseq's own commands.

    fairseq-interactive … --bpe pretrained_pieces --bpe-tokenizer bert-base-uncased     # type text, read text
    fairseq-generate … --bpe pretrained_pieces --bpe-tokenizer bert-base-uncased --scoring sacrebleu     # D- lines
    fairseq-train … --eval-bleu --eval-bleu-detok pretrained_pieces \\
        --eval-bleu-detok-args '{"bpe_tokenizer": "bert-base-uncased"}'

fairseq undoes `--bpe` first and `--tokenizer` then; validation knows only the latter, so both names are registered.
"""

from dataclasses import dataclass, field

from fairseq.data import Dictionary
from fairseq.data.encoders import register_bpe, register_tokenizer
from fairseq.dataclass import FairseqDataclass

from ..errors import InputError
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import SPECIAL_SYMBOLS

# Of a piece that begins a word (byte-level and sentencepiece), and of one that goes on (WordPiece).
_BEGINS = ("\u0120", "\u2581")
_GOES_ON = "##"


def dictionary_of(bridge: TokenizerBridge) -> Dictionary:
    """fairseq's dictionary of a tokenizer, as `fairseq-preprocess` loads it from `dict.txt`."""
    dictionary = Dictionary()
    for symbol in bridge.symbols[len(SPECIAL_SYMBOLS) :]:
        dictionary.add_symbol(symbol)
    return dictionary


@dataclass
class PretrainedPiecesConfig(FairseqDataclass):
    """Flags of `--bpe pretrained_pieces`."""

    bpe_tokenizer: str = field(
        default="", metadata={"help": "tokenizer of a pretrained model: its name on the hub, or a folder"}
    )


@register_tokenizer("pretrained_pieces", dataclass=PretrainedPiecesConfig)
@register_bpe("pretrained_pieces", dataclass=PretrainedPiecesConfig)
class PretrainedPieces:
    """A line of text to a line of pieces, and back.

    Raises:
        InputError: no tokenizer is named, or none loads from there.
    """

    def __init__(self, cfg: PretrainedPiecesConfig) -> None:
        if not cfg.bpe_tokenizer:
            raise InputError("--bpe pretrained_pieces needs --bpe-tokenizer NAME|FOLDER, the one that made the pieces.")
        self.bridge = TokenizerBridge(cfg.bpe_tokenizer)
        marks = [sum(symbol.startswith(mark) for symbol in self.bridge.symbols) for mark in (*_BEGINS, _GOES_ON)]
        self._marks_beginnings = max(marks[:-1]) > marks[-1]

    def encode(self, x: str) -> str:
        """Pieces of a text, joined by spaces."""
        return self.bridge.line_of(self.bridge.numbers_of([x])[0])

    def decode(self, x: str) -> str:
        """Text of a line of pieces."""
        return self.bridge.text_of(x)

    def is_beginning_of_word(self, x: str) -> bool:
        """Whether a word begins with this piece, for `--mask-whole-words`."""
        return x.startswith(_BEGINS) if self._marks_beginnings else not x.startswith(_GOES_ON)
