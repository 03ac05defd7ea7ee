"""What the folders of retrievers that were trained here have in common.

Sizes that make sense, weights that all fit, and a pretrained text encoder, whose configuration and tokenizer go along
as `text_encoder/`.
"""

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import InputError, in_short
from ..modules.sentence_encoders import build_pretrained_encoder
from ..storage.weights import load_strictly
from ..text.pretrained_tokenizer import MOST_LAYERS, PretrainedTokenizer, refuse_many_layers
from .retriever_folder import CONFIG, TEXT_ENCODER, WEIGHTS

AGAIN = "Export the retriever again."
_LARGEST_SIZE = 2**24

Towers = TypeVar("Towers", bound=nn.Module)


def check_architecture(
    config: Any, layers: Collection[str] = (), known: Mapping[str, Collection[str]] | None = None
) -> None:
    """Refuse what no training wrote: other types, sizes that are negative or beyond any model.

    Args:
        config: a dataclass, from a folder's `config.json`.
        layers: its fields that count layers.
        known: for fields that are names: those that there are.

    Raises:
        ValueError: the first field that makes no sense.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        sound = type(value) is field.type or (field.type is float and type(value) is int)
        if sound and field.type is int:
            sound = 0 <= value <= (MOST_LAYERS if field.name in layers else _LARGEST_SIZE)
        if sound and field.type is float:
            sound = 0 <= value < 1
        if not sound or value not in (known or {}).get(field.name, (value,)):
            raise ValueError(f"its architecture has {value!r:.80} as {field.name}")


def load_towers(
    build: Callable[[], Towers],
    state: Mapping[str, Tensor],
    folder: Path,
    what: str = "this retriever",
    remedy: str = AGAIN,
    sizes: str = CONFIG,
) -> Towers:
    """Towers with a folder's weights, all of which must fit.

    Args:
        build: makes them.
        state: the weights.
        folder: of the retriever.
        what: the weights should be of, for messages.
        remedy: likewise.
        sizes: the file in the folder that decides them, likewise.

    Raises:
        InputError: no towers have such sizes, or the weights are those of others.
    """
    try:
        # Claims no memory: sizes that don't belong to the weights are refused first.
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.filterwarnings("ignore", message="Initializing zero-element")  # sizes of 0
            planned = build()
    except InputError:
        raise
    except Exception as error:  # sizes of 0, names of no activation: libraries fail in many ways
        raise InputError(
            f"{folder / sizes} should have what a retriever is built of, but: {in_short(error)}. {remedy}"
        ) from error
    load_strictly(planned, state, folder / WEIGHTS, what, remedy, assign=True)
    towers = build()
    load_strictly(towers, state, folder / WEIGHTS, what, remedy)
    return towers


def save_text_encoder(folder: Path, tokenizer: PretrainedTokenizer, encoder: Any) -> None:
    """Write `text_encoder/`: everything of a pretrained text encoder but its weights."""
    tokenizer.save(folder / TEXT_ENCODER)
    encoder.config.save_pretrained(folder / TEXT_ENCODER)


def build_with_text_encoder(folder: Path, build: Callable[[Any], Towers]) -> Towers:
    """Towers around the text encoder that a retriever's folder describes, all weights still to come.

    Args:
        folder: of the retriever.
        build: from the encoder to the towers.

    Raises:
        InputError: none can be built.
    """
    try:
        refuse_many_layers(folder / TEXT_ENCODER)
        return build(build_pretrained_encoder(str(folder / TEXT_ENCODER)))
    except InputError:
        raise
    except Exception as error:  # sizes that don't fit one another fail in many ways
        raise InputError(
            f"{folder / TEXT_ENCODER} should describe a text encoder, but none can be built from it: "
            f"{in_short(error)}. {AGAIN}"
        ) from error
