"""A retriever's folder from the checkpoint of its training."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..errors import InputError
from ..modules.joint_embedding import WORD_ENCODERS, JointEmbedding, JointEmbeddingConfig, config_of_state
from ..modules.sentence_encoders import build_pretrained_encoder
from ..modules.token_image_matcher import TokenImageMatcher, matcher_config_of_state
from ..storage.artefact import sha256_of_file
from ..storage.checkpoints import architecture, dictionaries, load_checkpoint, trained_on
from ..storage.outside import reading
from ..storage.signature import signature
from ..storage.weights import load_strictly
from ..text.pretrained_tokenizer import IN_CHECKPOINTS, PretrainedTokenizer
from ..text.words import DICTIONARY, Vocabulary, WordTokenizer, check_same_words, digest_of_symbols
from .joint_embedding import save_joint_embedding, split_image_network
from .token_matcher import save_token_matcher
from .trained_towers import check_architecture

_AGAIN = "Train it again."


class Exported(NamedTuple):
    """What was written in a line, its signature, and whether it remembers how its features were made."""

    summary: str
    signature: str
    remembers_features: bool


class _Trained(NamedTuple):
    """A checkpoint: its path, what it holds, its `--arch`, and the choices that were made in training."""

    checkpoint: Path
    state: dict[str, Any]
    arch: str
    choices: dict[str, Any]

    def sign(self, **choices: object) -> str:
        """The signature of a retriever made of it."""
        return signature("retriever", **choices, checkpoint=sha256_of_file(self.checkpoint)[:8])

    def load(self, towers: Any, weights: Mapping[str, Tensor]) -> None:
        """Put its weights into towers, all of which must fit."""
        load_strictly(towers, weights, self.checkpoint, f"architecture {self.arch}", _AGAIN)


def export_checkpoint(checkpoint: Path, folder: Path, data: Path | None = None) -> Exported:
    """Write the retriever that was trained, with its tokenizer and the image network that was trained along.

    Args:
        checkpoint: of a training with one of `ARCHITECTURES`.
        folder: to write; an older retriever there is replaced.
        data: folder that it was trained on, for its `dict.txt`; a pretrained text encoder doesn't need it.

    Raises:
        InputError: the checkpoint is another model's, doesn't fit the data, or the folder can't be written.
    """
    state = load_checkpoint(checkpoint)
    choices = (state.get("cfg") or {}).get("model") or {}
    found = architecture(state)
    if found not in ARCHITECTURES:
        raise InputError(
            f"{checkpoint} should be of architecture {' or '.join(ARCHITECTURES)}, but is of {found!r}. Only "
            "retrievers are exported."
        )
    return ARCHITECTURES[found](_Trained(checkpoint, state, found, choices), folder, data)


def _export_joint_embedding(trained: _Trained, folder: Path, data: Path | None) -> Exported:
    with reading(trained.checkpoint, f"a checkpoint of {trained.arch}", _AGAIN):
        weights, image_network = split_image_network(trained.state["model"], trained.checkpoint)
        towers = _of_part("embedding.", weights)
        config = config_of_state(towers, trained.choices)
        check_architecture(config, layers=("sru_layers",))
        embedding, tokenizer = _build(config, trained.choices["text_encoder"], trained.checkpoint, data, trained.state)
        trained.load(embedding, towers)
    made = trained.sign(text=config.text_encoder)
    features = None if image_network is not None else trained_on(trained.state, trained.checkpoint)
    save_joint_embedding(folder, embedding, tokenizer, made, image_network, features)
    along = "" if image_network is None else f", {image_network.name} trained along"
    summary = f"{config.text_encoder} text encoder, joint size {config.joint_size}{along}"
    return Exported(summary, made, image_network is not None or features is not None)


def _export_token_matcher(trained: _Trained, folder: Path, data: Path | None) -> Exported:
    with reading(trained.checkpoint, f"a checkpoint of {trained.arch}", _AGAIN):
        weights = _of_part("matcher.", trained.state["model"])
        config = matcher_config_of_state(weights, trained.choices)
        check_architecture(config, layers=("layers",))
        name = trained.choices["text_encoder"]
        tokenizer = _tokenizer_of(name, trained.state, trained.checkpoint)
        matcher = TokenImageMatcher(config, build_pretrained_encoder(name))
        trained.load(matcher, weights)
    level = "sentence" if config.sentence_level else "token"
    made = trained.sign(text="pretrained", matches=level, layers=config.layers)
    features = trained_on(trained.state, trained.checkpoint)
    save_token_matcher(folder, matcher, tokenizer, made, features)
    layers = "last layer" if config.layers == 1 else f"last {config.layers} layers"
    summary = f"{level} matcher, {layers} of the text encoder, joint size {config.joint_size}"
    return Exported(summary, made, features is not None)


ARCHITECTURES: dict[str, Callable[[_Trained, Path, Path | None], Exported]] = {
    "visual_semantic_embedding": _export_joint_embedding,
    "token_image_matching": _export_token_matcher,
}


def _of_part(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a part of a model, whose names begin so, in float32."""
    return {
        name.removeprefix(prefix): weight.float() if weight.is_floating_point() else weight
        for name, weight in weights.items()
    }


def _build(
    config: JointEmbeddingConfig, text_encoder: str, checkpoint: Path, data: Path | None, state: Mapping[str, Any]
) -> tuple[JointEmbedding, WordTokenizer | PretrainedTokenizer]:
    """Towers and tokenizer, the towers' weights still to come."""
    if text_encoder not in WORD_ENCODERS:
        tokenizer = _tokenizer_of(text_encoder, state, checkpoint)
        return JointEmbedding(config, build_pretrained_encoder(text_encoder)), tokenizer
    if data is None:
        raise InputError(
            f"the data folder that {checkpoint} was trained on is needed, too: the words of text encoder "
            f"{text_encoder!r} are in its {DICTIONARY}.",
            "data",
        )
    vocabulary = Vocabulary.load(data / DICTIONARY)
    if len(vocabulary) != config.vocabulary_size:
        raise InputError(
            f"{data / DICTIONARY} should have the {config.vocabulary_size} words and symbols of {checkpoint}, but has "
            f"{len(vocabulary)}. Give the data folder that it was trained on.",
            "data",
        )
    learned = dictionaries(state).get("text")
    if learned is not None:
        check_same_words(data / DICTIONARY, digest_of_symbols(vocabulary.symbols), learned, checkpoint)
    return JointEmbedding(config), WordTokenizer(vocabulary)


def _tokenizer_of(name: str, state: Mapping[str, Any], checkpoint: Path) -> PretrainedTokenizer:
    """The tokenizer of a pretrained encoder; of a checkpoint that says so, the one that it was trained with."""
    tokenizer = PretrainedTokenizer(name)
    learned = dictionaries(state).get(IN_CHECKPOINTS)
    if learned is not None:
        remedy = "Put the encoder that it was trained with there again."
        check_same_words(name, digest_of_symbols(tokenizer.symbols()), learned, checkpoint, remedy)
    return tokenizer
