"""One tokenizer, two numberings: a transformers tokenizer's pieces as the symbols of a fairseq dictionary.

fairseq's Dictionary always begins with `<s> <pad> </s> <unk>`, a pretrained encoder's embedding begins with what its
makers liked. Here the four stand for the tokenizer's own pieces in those roles ([CLS] [PAD] [SEP] [UNK] of a BERT), and
all other pieces follow in the tokenizer's order:

    fairseq's number   0 = [CLS]   1 = [PAD]   2 = [SEP]   3 = [UNK]   4, 5 … = all others, ascending
    tokenizer_ids      101         0           102         100         1, 2, 3 …

RoBERTa and XLM-R were trained with fairseq, so their permutation is the identity. The mask is spelled `<mask>`, as
fairseq's own masked language models look for it. None of this needs fairseq.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby, zip_longest
from typing import Any

import numpy as np

from ..errors import InputError, first_line, in_short
from .pretrained_tokenizer import composed, load_pretrained, load_tokenizer, longest_sentence
from .spans import spans_of_encodings
from .words import PAD, SPECIAL_SYMBOLS, UNKNOWN

BOS, EOS = 0, 2
_MOST_NUMBERS = 1_000_000  # that stand for no piece: T5 and others leave some free
MASK = "<mask>"
NONE = -1  # in `tokenizer_ids`: the tokenizer has no such piece
PADDING_WORD = re.compile(r"madeupword\d{4,}")  # how fairseq fills a dictionary up to a multiple (--padding-factor)
_SPELLED_BY_NUMBER = re.compile(r"<piece:\d+>")
_LINE_ENDS = re.compile(r"[\r\n]+")
_CUT_TOGETHER = 256  # texts: what the tokenizer makes of them takes thirty times their numbers, and is let go


def without_padding_words(symbols: Sequence[str]) -> list[str]:
    """A dictionary's symbols without the words that fairseq fills it up with, at its end.

    >>> without_padding_words(["a", "madeupword0000", "madeupword0001"])
    ['a']
    """
    last = len(symbols)
    while last and PADDING_WORD.fullmatch(symbols[last - 1]):
        last -= 1
    return list(symbols[:last])


class TokenizerBridge:
    """A tokenizer's pieces under fairseq's numbers.

    A piece is spelled as its tokenizer spells it; one that a line of pieces couldn't hold (white space in it, or one of
    fairseq's names for a piece in another role), and a number without a piece, is spelled `<piece:NUMBER>`.

    Args:
        name: a model's name on the hub, or a folder.

    Attributes:
        name: the same.
        tokenizer: of transformers.
        symbols: the dictionary's, by fairseq's number, without padding words; all different.
        tokenizer_ids: (V,) int64, the tokenizer's number by fairseq's; −1 where it has none, as GPT-2 has no pad.
        opening: fairseq's numbers of what the tokenizer puts before a sentence, such as [BOS].
        closing: of what it puts after, such as [EOS].
        max_pieces: how many pieces fit between those two; a million where nothing says so.

    Raises:
        InputError: no tokenizer loads from there, or only one without `tokenizer.json` (a "slow" one), or it can't cut
            a text.
    """

    def __init__(self, name: str) -> None:
        self.name = str(name)
        self.tokenizer = load_tokenizer(self.name)
        if not self.tokenizer.is_fast:
            raise InputError(
                f"tokenizer {self.name!r} should be one with a tokenizer.json, which knows where in a text its pieces "
                f"come from, but is a {type(self.tokenizer).__name__} without."
            )
        if not set(self.tokenizer.get_vocab()) - set(self.tokenizer.all_special_tokens):
            raise InputError(
                f"tokenizer {self.name!r} should have pieces of text, but has {len(self.tokenizer)} special ones "
                "alone: transformers makes an empty one where its files are missing. Copy tokenizer.json, or "
                "vocab.json and merges.txt, too."
            )
        try:
            before, after = self._around()
        except RecursionError as error:  # special pieces that stand for one another
            raise InputError(f"tokenizer {self.name!r} should cut a text, but can't: {in_short(error)}.") from error
        roles = self._roles(before, after)
        known = self.tokenizer.get_vocab()
        by_number = {number: piece for piece, number in known.items()}
        if max(known.values()) > _MOST_NUMBERS + 2 * len(known):
            raise InputError(
                f"tokenizer {self.name!r} should number its {len(known)} pieces one after another, but has number "
                f"{max(known.values())}."
            )
        others = [number for number in range(max(known.values()) + 1) if number not in roles]
        self.symbols = [*SPECIAL_SYMBOLS, *(self._spell(number, by_number.get(number)) for number in others)]
        self.tokenizer_ids = np.array([*roles, *others], dtype=np.int64)
        self._numbers = {symbol: number for number, symbol in enumerate(self.symbols)}
        # GPT-2's one special piece plays several roles: as a piece of text it ends one.
        self._number_of_id = {
            int(self.tokenizer_ids[n]): n for n in (*range(len(self.symbols)), UNKNOWN, PAD, BOS, EOS)
        }
        self.opening = [self._number_of_id[number] for number in before]
        self.closing = [self._number_of_id[number] for number in after]
        self.max_pieces = longest_sentence(self.tokenizer, self._config(), f"tokenizer {self.name!r}") - len(
            self.opening + self.closing
        )

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def has_segments(self) -> bool:
        """Whether the tokenizer says which of two sentences a piece belongs to, as a BERT's does."""
        return 1 in self.tokenizer("a", "a", verbose=False).get("token_type_ids", [])

    @cached_property
    def between(self) -> list[int]:
        """fairseq's numbers of what the tokenizer puts between two sentences; a BERT's [SEP] is that of `</s>`.

        Raises:
            InputError: around two sentences it puts other symbols than around one.
        """
        numbers = [self._number_of_id[number] for number in self.tokenizer("a", "a", verbose=False)["input_ids"]]
        (one,) = self.numbers_of(["a"])
        end = len(self.opening) + len(one)
        between = numbers[end : len(numbers) - len(one + self.closing)]
        if numbers != [*self.opening, *one, *between, *one, *self.closing]:
            raise InputError(
                f"tokenizer {self.name!r} should put the same symbols around two sentences as around one, but makes "
                f"{self.line_of(numbers)} of 'a' and 'a'. Take another pretrained model."
            )
        return between

    def _config(self) -> Any:
        from transformers import AutoConfig

        try:
            return load_pretrained(AutoConfig, self.name)
        except InputError:  # a folder may hold a tokenizer alone
            return None

    def _around(self) -> tuple[list[int], list[int]]:
        """The tokenizer's numbers of what it puts before and after a sentence."""
        probe = self._encode(["a"], add_special_tokens=True, return_special_tokens_mask=True)
        numbers, added = probe["input_ids"][0], probe["special_tokens_mask"][0]
        if 0 not in added:
            raise InputError(f"tokenizer {self.name!r} should make a piece of the text 'a', but makes none.")
        return numbers[: added.index(0)], numbers[len(added) - added[::-1].index(0) :]

    def _roles(self, before: list[int], after: list[int]) -> list[int]:
        """The tokenizer's numbers for fairseq's four special symbols; what stands around a sentence goes first."""
        tokenizer = self.tokenizer
        bos = [*(before if len(before) == 1 else []), tokenizer.cls_token_id, tokenizer.bos_token_id]
        eos = [*(after if len(after) == 1 else []), tokenizer.sep_token_id, tokenizer.eos_token_id]
        choices = (bos, [tokenizer.pad_token_id], eos, [tokenizer.unk_token_id])
        return [next((number for number in role if number is not None), NONE) for role in choices]

    def _spell(self, number: int, piece: str | None) -> str:
        if number == self.tokenizer.mask_token_id:
            return MASK
        unfit = (
            piece is None
            or piece.split() != [piece]
            or piece in (*SPECIAL_SYMBOLS, MASK)
            or PADDING_WORD.fullmatch(piece)
            or _SPELLED_BY_NUMBER.fullmatch(piece)
        )
        return f"<piece:{number}>" if piece is None or unfit else piece

    @cached_property
    def sha256(self) -> str:
        """Digest of whatever decides the pieces of a text and their numbers."""
        settings = json.loads(self.tokenizer.backend_tokenizer.to_str())
        for changing in ("truncation", "padding"):  # those of the last call
            settings.pop(changing, None)
        settings["roles"] = self.tokenizer_ids[: len(SPECIAL_SYMBOLS)].tolist()
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def dictionary_lines(self) -> list[str]:
        """Lines of `dict.txt`, `piece count`; the counts are 1, as they are the tokenizer's pieces, not a text's."""
        return [f"{symbol} 1" for symbol in self.symbols[len(SPECIAL_SYMBOLS) :]]

    def check_dictionary(self, symbols: Sequence[str], place: str) -> None:
        """Refuse a dictionary that isn't this tokenizer's. Padding words at its end are fairseq's own, so they may be.

        Args:
            symbols: of the dictionary, fairseq's special ones included (`Dictionary.symbols`).
            place: its file, for the message.

        Raises:
            InputError: the first symbol that differs.
        """
        for number, (own, found) in enumerate(zip_longest(self.symbols, symbols)):
            if own == found or (own is None and PADDING_WORD.fullmatch(found)):
                continue
            wanted = "no more" if own is None else repr(own)
            held = "nothing" if found is None else repr(found)
            raise InputError(
                f"{place} should be the dictionary of tokenizer {self.name!r}, whose {len(self)} symbols have {wanted} "
                f"at number {number}, but has {held} there ({len(symbols)} symbols in all). Make the pieces of a text "
                f"with: visual-grounding prepare pieces --tokenizer {self.name} --text … --out DIR, and binarise them "
                "with: fairseq-preprocess --srcdict DIR/dict.txt …"
            )

    def numbers_of(self, texts: Iterable[str]) -> list[list[int]]:
        """fairseq's numbers of each text's pieces, without what the tokenizer puts around a sentence."""
        found = self._encode(texts)["input_ids"]
        return [[self._number_of_id[number] for number in numbers] for numbers in found]

    def line_of(self, numbers: Sequence[int]) -> str:
        """The pieces with these numbers of fairseq, as a line for `fairseq-preprocess`."""
        return " ".join(self.symbols[number] for number in numbers)

    def spans_of(self, texts: Iterable[str]) -> list[list[tuple[int, int]]]:
        """Where in its text each piece comes from: first character and the one after its last, white space left out.

        The characters are those of the text in NFC (`composed`). Pieces of one character share its span; a piece of
        white space alone has an empty one.
        """
        texts = [composed(text) for text in texts]
        return spans_of_encodings(texts, self.encodings_of(texts)).by_text()

    def cut(self, texts: Sequence[str], where: Sequence[bool]) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """`numbers_of` for much text, and where pieces end: faster, and without a Python object for each piece.

        Args:
            texts: in NFC (`composed`).
            where: whether it is asked where a text's pieces end.

        Returns:
            fairseq's numbers of each text's pieces; the character after each piece's last, never falling, or None.

        Shapes:
            returns: lists of (pieces,) int32;  (pieces,) int64

        Raises:
            InputError: the tokenizer fails on a text.
        """
        numbers: list[np.ndarray] = []
        ends: list[np.ndarray | None] = []
        for start in range(0, len(texts), _CUT_TOGETHER):
            found = self.encodings_of(texts[start : start + _CUT_TOGETHER])
            numbers += [self._fairseq_numbers[np.array(each.ids, dtype=np.int64)] for each in found]
            ends += [
                np.maximum.accumulate(np.array([end for _, end in each.offsets], dtype=np.int64)) if asked else None
                for each, asked in zip(found, where[start : start + _CUT_TOGETHER])
            ]
        return numbers, ends

    @cached_property
    def _fairseq_numbers(self) -> np.ndarray:
        """fairseq's number of each of the tokenizer's: (its numbers,) int32."""
        table = np.full(max(self._number_of_id) + 1, UNKNOWN, dtype=np.int32)
        for number, place in self._number_of_id.items():
            if number >= 0:
                table[number] = place
        return table

    def text_of(self, line: str) -> str:
        """The text of a line of pieces, as the tokenizer itself decodes it; words that are no pieces stay as they are.

        What the tokenizer changed (letters in lower case, accents, white space) doesn't come back.
        """
        parts: list[str] = []
        for known, run in groupby(line.split(), key=self._is_piece):
            symbols = list(run)
            if known:
                numbers = [self._numbers[symbol] for symbol in symbols]
                ids = [int(self.tokenizer_ids[number]) for number in numbers if number not in (BOS, PAD, EOS)]
                parts.append(self.tokenizer.decode(ids))
            else:
                parts += symbols
        return _LINE_ENDS.sub(" ", " ".join(part for part in parts if part))

    def encodings_of(self, texts: Sequence[str]) -> list[Any]:
        """What `tokenizers` makes of each text: the fastest way to much text, which numbers and spans are taken from.

        Args:
            texts: in NFC (`composed`).

        Raises:
            InputError: the tokenizer fails on a text.
        """
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()  # of the last call to the tokenizer, or of its tokenizer.json
        backend.no_padding()
        backend.encode_special_tokens = self.tokenizer.split_special_tokens
        with self._failing_on(texts):
            return backend.encode_batch(texts, add_special_tokens=False)

    def lines_of(self, encodings: Iterable[Any]) -> list[str]:
        """The pieces of each text that was encoded, as `line_of`."""
        symbol = self._symbols_of_ids.__getitem__
        return [" ".join(map(symbol, each.ids)) for each in encodings]

    @cached_property
    def _symbols_of_ids(self) -> list[str]:
        """The symbol of each of the tokenizer's numbers."""
        symbols = [SPECIAL_SYMBOLS[UNKNOWN]] * (max(self._number_of_id) + 1)
        for number, place in self._number_of_id.items():
            if number != NONE:
                symbols[number] = self.symbols[place]
        return symbols

    @contextmanager
    def _failing_on(self, texts: Sequence[str]) -> Iterator[None]:
        """Say which text it was."""
        try:
            yield
        except Exception as error:  # what is written in Rust raises nothing narrower
            raise InputError(f"tokenizer {self.name!r} can't cut {texts[0][:40]!r} … : {first_line(error)}.") from error

    def _is_piece(self, symbol: str) -> bool:
        return self.tokenizer_ids[self._numbers[symbol]] != NONE if symbol in self._numbers else False

    def _encode(self, texts: Iterable[str], add_special_tokens: bool = False, **options: bool) -> Any:
        texts = [composed(text) for text in texts]
        if not texts:
            return {"input_ids": []}
        options |= {"return_attention_mask": False, "return_token_type_ids": False}  # nobody here asks, and they cost
        with self._failing_on(texts):
            return self.tokenizer(texts, add_special_tokens=add_special_tokens, verbose=False, **options)
