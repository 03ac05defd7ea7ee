"""The tokenizer that belongs to a pretrained text encoder, from a hub name or a local folder."""

from pathlib import Path
from typing import Any

from ..errors import InputError

# Tokenizers that know no limit say 1e30; encoders such as RoBERTa's lose two positions to padding.
_NO_LIMIT = 1_000_000
_RESERVED_POSITIONS = 2


def load_pretrained(auto_class: Any, name: str, **options: Any) -> Any:
    """Call a transformers Auto class on a name or folder, with an error that says what to do.

    Raises:
        InputError: nothing loads from there.
    """
    try:
        # Without trust_remote_code=False transformers would ask on the terminal whether to run a folder's own code.
        return auto_class.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as error:  # a broken configuration or tokenizer file fails in many ways
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"text encoder {name!r} should be `sru`, `bag`, a folder with a pretrained model, or a model's name on the "
            f"hub (offline only one that was downloaded before), but loading failed: {reason}"
        ) from error


class PretrainedTokenizer:
    """Sentences to numbers of word pieces, with the encoder's own special tokens around them.

    Attributes:
        pad: number of the padding piece.
        max_tokens: the encoder's limit; longer sentences are cut here.

    Raises:
        InputError: no tokenizer loads from `name`, or its limit isn't a number.
    """

    def __init__(self, name: str) -> None:
        from transformers import AutoConfig, AutoTokenizer

        self.tokenizer = load_pretrained(AutoTokenizer, name)
        positions = getattr(load_pretrained(AutoConfig, name), "max_position_embeddings", _NO_LIMIT)
        limit = self.tokenizer.model_max_length
        for value, place in ((limit, "its tokenizer"), (positions, "its configuration")):
            if not isinstance(value, int | float) or not value > _RESERVED_POSITIONS:
                raise InputError(
                    f"text encoder {name!r} should say how many tokens a sentence may have, but {place} says {value!r}."
                )
        self.max_tokens = int(min(limit, positions) if limit < _NO_LIMIT else positions - _RESERVED_POSITIONS)
        self.pad: int = self.tokenizer.pad_token_id or 0

    def encode(self, texts: list[str]) -> tuple[list[list[int]], int]:
        """Numbers of each sentence's pieces, and how many sentences were cut."""
        if not texts:
            return [], 0
        full = self.tokenizer(texts, verbose=False)["input_ids"]
        too_long = [number for number, pieces in enumerate(full) if len(pieces) > self.max_tokens]
        for number in too_long:  # cut by the tokenizer, so that the closing special token stays
            full[number] = self.tokenizer(texts[number], truncation=True, max_length=self.max_tokens)["input_ids"]
        return full, len(too_long)

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files."""
        self.tokenizer.save_pretrained(folder)
