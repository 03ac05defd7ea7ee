"""From fairseq's numbers to a pretrained encoder: its input, and its embedding's rows in fairseq's order and back."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..text.pretrained_tokenizer import check_vocabulary
from ..text.tokenizer_bridge import EOS, NONE, TokenizerBridge
from ..text.words import PAD, UNKNOWN


class EncoderInput(nn.Module):
    """What a pretrained encoder reads, from a batch of sentences as fairseq collates them.

    fairseq gives `a b </s>`, padded on either side; the encoder was trained on `[CLS] a b [SEP]`, padded on the right.
    Either keep the encoder as it is, and give it the tokenizer's own numbers (`forward`); or put the rows of its
    embedding in fairseq's order (`fairseq_rows`), and give it fairseq's numbers (`arrange`), which an output layer and
    its targets have, too.

    Args:
        bridge: the encoder's tokenizer.
        symbols: of the dictionary that the text was binarised with (`Dictionary.symbols`).
        place: that dictionary's file, for messages.

    Attributes:
        max_positions: the longest row of fairseq's that the encoder has positions for, its `</s>` included.

    Shapes:
        tokens: (B, T) fairseq's numbers, each row with one `</s>` at its end
        returns: (B, T') the tokenizer's numbers; (B, T') padding mask, on the right

    Raises:
        InputError: the dictionary isn't the tokenizer's, or it closes a sentence with more than one symbol.
    """

    tokenizer_ids: Tensor
    opening: Tensor

    def __init__(self, bridge: TokenizerBridge, symbols: Sequence[str], place: str) -> None:
        super().__init__()
        bridge.check_dictionary(symbols, place)
        if bridge.closing not in ([], [EOS]):
            raise InputError(
                f"tokenizer {bridge.name!r} should close a sentence with one symbol, or none, but closes it with "
                f"{[bridge.symbols[number] for number in bridge.closing]}. Take another pretrained model."
            )
        self.name = bridge.name
        self.max_positions = bridge.max_pieces + 1
        self.closes = bool(bridge.closing)
        padding_words = [NONE] * (len(symbols) - len(bridge))
        ids = torch.tensor([*bridge.tokenizer_ids.tolist(), *padding_words])
        # They belong to the tokenizer, so they aren't in checkpoints.
        self.register_buffer("tokenizer_ids", ids, persistent=False)
        self.register_buffer("opening", torch.tensor(bridge.opening, dtype=torch.long), persistent=False)

    def arrange(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Sentences with the encoder's symbols around them, still in fairseq's numbers, padding on the right.

        Shapes:
            tokens: (B, T)
            returns: (B, T') numbers;  (B, T') padding mask, T' = T + 1 for a BERT
        """
        return arrange(tokens, self.opening, self.closes)

    def ids_of(self, numbers: Tensor) -> Tensor:
        """The tokenizer's numbers, one by one; a symbol that it doesn't have is its unknown piece.

        Shapes:
            numbers: any, of fairseq
            returns: the same shape
        """
        ids = self.tokenizer_ids[numbers]
        return torch.where(ids == NONE, self.tokenizer_ids[UNKNOWN].clamp(min=0), ids)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """`input_ids` and the padding mask (True at padding: the opposite of transformers' attention mask).

        Shapes:
            tokens: (B, T)
            returns: (B, T');  (B, T')
        """
        numbers, padding_mask = self.arrange(tokens)
        return self.ids_of(numbers), padding_mask

    def fairseq_rows(self, weight: Tensor) -> Tensor:
        """Rows of an embedding, or of an output layer, in fairseq's order.

        A symbol that the encoder has no row for (fairseq's padding words; `<s>` of a T5) gets the mean of all; `<pad>`
        gets 0 where the tokenizer has none. Rows that no piece has are left out.

        Shapes:
            weight: (E, …) in the tokenizer's order; some models have more rows than pieces
            returns: (V, …) in that of the dictionary

        Raises:
            InputError: the encoder embeds fewer pieces than there are, or so many more that it is another tokenizer's.
        """
        self._check_rows(weight)
        weight = weight.detach()
        rows = weight[self.tokenizer_ids.clamp(min=0)]
        used = self.tokenizer_ids[self.tokenizer_ids != NONE].unique()
        rows[self.tokenizer_ids == NONE] = weight[used].mean(dim=0)
        if self.tokenizer_ids[PAD] == NONE:
            rows[PAD] = 0
        return rows

    def tokenizer_rows(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Rows in the tokenizer's order again, to hand a trained encoder back to transformers.

        Where one piece plays two roles, its row is that of `</s>`. Rows that no piece has stay as they were.

        Shapes:
            rows: (V, …) in the dictionary's order
            weight: (E, …) as the encoder had them
            returns: (E, …)

        Raises:
            InputError: as `fairseq_rows`.
            ValueError: `rows` isn't of this dictionary.
        """
        self._check_rows(weight)
        if len(rows) != len(self.tokenizer_ids):
            raise ValueError(f"{len(self.tokenizer_ids)} rows expected, one a symbol, but there are {len(rows)}")
        result = weight.detach().clone()
        for numbers in (torch.arange(len(rows), device=rows.device), torch.tensor([EOS], device=rows.device)):
            ids = self.tokenizer_ids[numbers]
            result[ids[ids != NONE]] = rows.detach()[numbers[ids != NONE]].to(weight.dtype)
        return result

    def _check_rows(self, weight: Tensor) -> None:
        check_vocabulary(int(self.tokenizer_ids.max()) + 1, len(weight), self.name)


def arrange(tokens: Tensor, opening: Tensor, closes: bool) -> tuple[Tensor, Tensor]:
    """Sentences with an encoder's symbols around them, in fairseq's numbers, padding on the right.

    Args:
        opening: what it reads before a sentence.
        closes: whether it reads `</s>` behind it.

    Shapes:
        tokens: (B, T), each row with one `</s>` at its end;  opening: (O,)
        returns: (B, T') numbers;  (B, T') padding mask, T' = T + 1 for a BERT
    """
    absent = tokens == PAD  # (B, T)
    order = absent.int().argsort(dim=1, stable=True)  # what is there first, in its order
    text = tokens.gather(1, order)
    if not closes:
        last = (~absent).sum(dim=1, keepdim=True).clamp(min=1) - 1  # (B, 1) where </s> is
        text = text.scatter(1, last, PAD)[:, :-1]
    before = opening.expand(len(tokens), -1)
    arranged = torch.cat([before, text], dim=1)  # (B, T')
    return arranged, torch.cat([torch.zeros_like(before, dtype=torch.bool), text == PAD], dim=1)
