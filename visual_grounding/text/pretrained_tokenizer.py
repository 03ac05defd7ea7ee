"""Tokenizers of pretrained models, from a hub name or a local folder; sentences as a text encoder reads them."""

import json
import re
import unicodedata
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, first_line, in_short
from ..storage.outside import check_file, read_json

# Tokenizers that know no limit say 1e30.
_NO_LIMIT = 1_000_000
MOST_LAYERS = 100  # of any encoder
_GROUPS = ("num_hidden_groups", "inner_group_num")  # ALBERT builds as many layers as their product
_STAGES = re.compile("layer|block|depth|stage")  # names of lists with the layers of each
_FEWEST_POSITIONS = 2  # those of the special tokens around a sentence
# Encoders of these families count positions from the padding symbol's number + 1, and so have fewer of them for text.
POSITIONS_AFTER_PADDING = ("roberta", "camembert", "mpnet", "xmod", "data2vec-text", "ibert", "longformer", "luke")
_FEWEST_OF_EMBEDDED = 0.9  # some models embed a few pieces more than there are

_HERE = "a folder with a pretrained model, or a model's name on the hub (offline only one that was downloaded before)"
TEXT_ENCODER = f"text encoder {{!r}} should be `sru`, `bag`, {_HERE}"
IN_CHECKPOINTS = "tokenizer"  # what checkpoints call its symbols
SAME_ENCODER = "Give the --text-encoder that it was trained with."
TOKENIZER = f"tokenizer {{!r}} should be {_HERE}"


def refuse_many_layers(folder: Path) -> None:
    """Refuse a model of more layers than any has: they would be built one by one until the memory is full.

    Raises:
        ValueError: it says so, or nothing that can be read.
    """
    check_layers(read_json(folder / "config.json"), "config.json has")


def check_layers(config: Mapping[str, Any], said: str = "it has") -> None:
    """Refuse a configuration of more layers than any model has, by whatever name: ALBERT's groups, stages of a list.

    Args:
        said: how the message begins.

    Raises:
        ValueError: it has.
    """
    parts, groups = [config], 1
    while parts:
        for name, value in parts.pop().items():
            if isinstance(value, dict):  # such as a dual encoder's towers; names of labels may be anything
                if name not in ("label2id", "id2label"):
                    parts.append(value)
                continue
            counts = value if isinstance(value, list) and _STAGES.search(name) else [value]
            count = sum(each for each in counts if type(each) is int)
            if name in _GROUPS and type(value) is int:
                count = groups = groups * max(value, 1)
            if ("layer" in name or name in _GROUPS or counts is value) and count > MOST_LAYERS:
                raise ValueError(f"{said} {in_short(ValueError(str(value)), 80)} as {name}")


def check_pretrained_folder(name: str) -> None:
    """Refuse what transformers would wait for, or build until the memory is full; names on the hub are left to it.

    Raises:
        InputError: a file of the folder is a pipe or a device.
        ValueError: as `refuse_many_layers`.
    """
    if Path(name).is_dir():
        for path in Path(name).rglob("*"):
            check_file(path)
        if (Path(name) / "config.json").is_file():
            refuse_many_layers(Path(name))


def load_pretrained(auto_class: Any, name: str, wanted: str = TEXT_ENCODER, **options: Any) -> Any:
    """Call a transformers Auto class on a name or folder, with an error that says what to do.

    Args:
        wanted: the message's first half, with a place for the name.

    Raises:
        InputError: nothing loads from there.
    """
    try:
        check_pretrained_folder(name)
        # Without trust_remote_code=False transformers would ask on the terminal whether to run a folder's own code.
        return auto_class.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as error:  # a broken configuration or tokenizer file fails in many ways
        raise InputError(f"{wanted.format(name)}, but loading failed: {first_line(error).rstrip(':.')}.") from error


def load_tokenizer(name: str, wanted: str = TOKENIZER) -> Any:
    """The tokenizer of a pretrained model.

    Raises:
        InputError: none loads from there.
    """
    from transformers import AutoTokenizer

    return load_pretrained(AutoTokenizer, name, wanted)


def check_vocabulary(pieces: int, embedded: int, name: str) -> None:
    """Refuse a tokenizer that can't be its model's: where its files are missing, transformers may make an empty one.

    Args:
        pieces: how many the tokenizer has.
        embedded: how many the model has vectors of; some have a few more than there are pieces.

    Raises:
        InputError: more pieces than vectors, or far fewer.
    """
    if not _FEWEST_OF_EMBEDDED * embedded <= pieces <= embedded:
        remedy = (
            f"Where pieces were added to it, give the model as many rows: model.resize_token_embeddings({pieces})."
            if pieces > embedded
            else "Copy the tokenizer's files too (tokenizer.json, or vocab.json and merges.txt)."
        )
        raise InputError(
            f"{name} should have a tokenizer of the {embedded} pieces that its model embeds, but its tokenizer "
            f"has {pieces}. {remedy}"
        )


def composed(text: str) -> str:
    """A text in which a letter with its accent is one code point (NFC): ä must be the same ä, whoever typed it."""
    return unicodedata.normalize("NFC", text)


def positions_of(config: Any) -> int:
    """How many tokens an encoder has positions for, the special ones included.

    >>> from types import SimpleNamespace
    >>> positions_of(SimpleNamespace(model_type="bert", max_position_embeddings=512, pad_token_id=0))
    512
    >>> positions_of(SimpleNamespace(model_type="xlm-roberta", max_position_embeddings=514, pad_token_id=1))
    512
    """
    positions = getattr(config, "max_position_embeddings", None) or _NO_LIMIT
    if any(family in config.model_type for family in POSITIONS_AFTER_PADDING):
        positions -= (config.pad_token_id or 0) + 1
    return positions


def longest_sentence(tokenizer: Any, config: Any, wanted: str) -> int:
    """How many tokens a sentence may have, the special ones included; a million where nothing says so.

    Args:
        config: of the model; None where only the tokenizer is there.
        wanted: what they are of, for the message.

    Raises:
        InputError: a limit isn't a number, or too small.
    """
    limit = tokenizer.model_max_length
    positions = getattr(config, "max_position_embeddings", None)
    for value, place in ((limit, "its tokenizer"), (positions, "its configuration")):
        if value is not None and (not isinstance(value, int | float) or not value > _FEWEST_POSITIONS):
            raise InputError(f"{wanted} should say how many tokens a sentence may have, but {place} says {value!r}.")
    return int(min(limit, _NO_LIMIT if config is None else positions_of(config)))


def count_known_pieces(tokenizer: Any, tokens: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """How many pieces each sentence has, special ones aside, and how many of them the tokenizer knows.

    Few tokenizers don't know something: most cut an unknown word into letters or bytes. Where the symbol for what is
    unknown has another use (CLIP's also ends a sentence), every piece is known.

    Shapes:
        returns: pieces (S,), known pieces (S,)
    """
    used = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id]
    used += [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id]
    unknown = -1 if tokenizer.unk_token_id is None or tokenizer.unk_token_id in used else tokenizer.unk_token_id
    special = set(tokenizer.all_special_ids) - {unknown}
    pieces = np.array([sum(piece not in special for piece in sentence) for sentence in tokens], dtype=np.int64)
    return pieces, pieces - np.array([sentence.count(unknown) for sentence in tokens], dtype=np.int64)


class PretrainedTokenizer:
    """Sentences to numbers of word pieces, with the encoder's own special tokens around them.

    Attributes:
        pad: number of the padding piece.
        max_tokens: longer sentences are cut here, special tokens included; at first the encoder's limit.

    Raises:
        InputError: no tokenizer loads from `name`, its limit isn't a number, or its model isn't an encoder.
    """

    def __init__(self, name: str) -> None:
        from transformers import AutoConfig

        config = load_pretrained(AutoConfig, name)
        if getattr(config, "is_encoder_decoder", False):
            raise InputError(
                f"text encoder {name!r} should be an encoder such as BERT or XLM-R, but is an encoder with a decoder "
                f"({config.model_type})."
            )
        self.tokenizer = load_tokenizer(name, TEXT_ENCODER)
        self.max_tokens = longest_sentence(self.tokenizer, config, f"text encoder {name!r}")
        self.pad: int = self.tokenizer.pad_token_id or 0

    @cached_property
    def around(self) -> frozenset[int]:
        """Numbers of the special tokens that it puts around a sentence."""
        probe = self.tokenizer("a", return_special_tokens_mask=True)
        pieces = zip(probe["input_ids"], probe["special_tokens_mask"])
        return frozenset(number for number, special in pieces if special)

    def symbols(self) -> list[str]:
        """Its pieces in the order of their numbers, and last how a text is normalised before, where it says so."""
        numbers: dict[str, int] = self.tokenizer.get_vocab()
        backend = getattr(self.tokenizer, "backend_tokenizer", None)  # tokenizers in Python have none
        normalizer = [] if backend is None else [json.dumps(json.loads(backend.to_str())["normalizer"], sort_keys=True)]
        return sorted(numbers, key=lambda piece: numbers[piece]) + normalizer

    def encode(self, texts: list[str]) -> tuple[list[list[int]], int]:
        """Numbers of each sentence's pieces, and how many sentences were cut."""
        if not texts:
            return [], 0
        texts = [composed(text) for text in texts]
        full = self.tokenizer(texts, verbose=False)["input_ids"]
        too_long = [number for number, pieces in enumerate(full) if len(pieces) > self.max_tokens]
        for number in too_long:  # cut by the tokenizer, so that the closing special token stays
            full[number] = self.tokenizer(texts[number], truncation=True, max_length=self.max_tokens)["input_ids"]
        return full, len(too_long)

    def count_known(self, tokens: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """`count_known_pieces` of each sentence.

        Shapes:
            returns: pieces (S,), known pieces (S,)
        """
        return count_known_pieces(self.tokenizer, tokens)

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files."""
        self.tokenizer.save_pretrained(folder)
