"""A retriever's folder from the checkpoint of its training."""

from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..modules.joint_embedding import WORD_ENCODERS, JointEmbedding, JointEmbeddingConfig, config_of_state
from ..modules.sentence_encoders import build_pretrained_encoder
from ..storage.artefact import sha256_of_file
from ..storage.checkpoints import architecture, dictionaries, load_checkpoint, trained_on
from ..storage.signature import signature
from ..storage.weights import load_strictly
from ..text.pretrained_tokenizer import PretrainedTokenizer
from ..text.words import DICTIONARY, Vocabulary, WordTokenizer, check_same_words, digest_of_symbols
from .joint_embedding import save_joint_embedding, split_image_network

ARCHITECTURE = "visual_semantic_embedding"
_TOWERS = "embedding."  # begins the names of both towers' weights in a checkpoint


class Exported(NamedTuple):
    """What was written in a line, its signature, and whether it remembers how its features were made."""

    summary: str
    signature: str
    remembers_features: bool


def export_checkpoint(checkpoint: Path, folder: Path, data: Path | None = None) -> Exported:
    """Write the retriever that was trained, with its tokenizer and the image network that was trained along.

    Args:
        checkpoint: of a training with `--arch visual_semantic_embedding`.
        folder: to write; an older retriever there is replaced.
        data: folder that it was trained on, for its `dict.txt`; a pretrained text encoder doesn't need it.

    Raises:
        InputError: the checkpoint is another model's, doesn't fit the data, or the folder can't be written.
    """
    state = load_checkpoint(checkpoint)
    choices = (state.get("cfg") or {}).get("model") or {}
    found = architecture(state)
    if found != ARCHITECTURE:
        raise InputError(
            f"{checkpoint} should be of architecture {ARCHITECTURE}, but is of {found!r}. Only retrievers are exported."
        )
    weights, image_network = split_image_network(state["model"])
    towers = {
        name.removeprefix(_TOWERS): weight.float() if weight.is_floating_point() else weight
        for name, weight in weights.items()
    }
    config = config_of_state(towers, choices)
    embedding, tokenizer = _build(config, choices["text_encoder"], checkpoint, data, dictionaries(state).get("text"))
    load_strictly(embedding, towers, checkpoint, f"architecture {ARCHITECTURE}", "Train it again.")
    made = signature("retriever", text=config.text_encoder, checkpoint=sha256_of_file(checkpoint)[:8])
    features = None if image_network is not None else trained_on(state, checkpoint)
    save_joint_embedding(folder, embedding, tokenizer, made, image_network, features)
    along = "" if image_network is None else f", {image_network.name} trained along"
    summary = f"{config.text_encoder} text encoder, joint size {config.joint_size}{along}"
    return Exported(summary, made, image_network is not None or features is not None)


def _build(
    config: JointEmbeddingConfig, text_encoder: str, checkpoint: Path, data: Path | None, learned: str | None
) -> tuple[JointEmbedding, WordTokenizer | PretrainedTokenizer]:
    """Towers and tokenizer, the towers' weights still to come; `learned` is the digest of the checkpoint's words."""
    if text_encoder not in WORD_ENCODERS:
        return JointEmbedding(config, build_pretrained_encoder(text_encoder)), PretrainedTokenizer(text_encoder)
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
    if learned is not None:
        check_same_words(data / DICTIONARY, digest_of_symbols(vocabulary.symbols), learned, checkpoint)
    return JointEmbedding(config), WordTokenizer(vocabulary)
