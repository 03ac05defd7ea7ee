"""Any encoder of transformers in fairseq's numbers, or as layers over states; rebuilt from what a checkpoint keeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, first_line, in_short
from ..storage.settings import SWITCH, TABLE, TEXT, Wanted, check_settings, number, whole_number
from ..text.pretrained_tokenizer import POSITIONS_AFTER_PADDING, check_layers
from ..text.tokenizer_bridge import BOS, EOS, TokenizerBridge
from ..text.words import PAD
from .encoder_input import EncoderInput, arrange
from .sentence_encoders import load_pretrained_encoder

# Where models of several families bring their word embedding to the size of their layers.
_PROJECTIONS = ("embeddings_project", "embedding_hidden_mapping_in")


DROPOUT = "dropout"  # among an encoder's choices, where one was asked for


@dataclass(frozen=True)
class ReadEncoder:
    """An encoder that was read.

    Attributes:
        choices: JSON-ready; all that decides what is computed, for `build_encoder`.
        weights: of the model, with rows of words in the dictionary's order.
    """

    choices: dict[str, Any]
    weights: dict[str, Tensor]


def read_encoder(name: str, symbols: Sequence[str], place: str, cut_by: str = "") -> ReadEncoder:
    """An encoder from the hub or a folder, in the numbers of a dictionary.

    Args:
        symbols: of the dictionary, by their numbers.
        place: its file, for messages.
        cut_by: digest of the tokenizer that made the pieces; empty where that isn't known.

    Raises:
        InputError: nothing loads from there, it is no encoder of text, or the dictionary isn't its tokenizer's, or the
            pieces aren't.
    """
    bridge = TokenizerBridge(name)
    if cut_by not in ("", bridge.sha256):
        raise InputError(
            f"the text should be cut by the tokenizer of {name}, whose sha256 is {bridge.sha256}, but was cut by "
            f"another, {cut_by:.64}. Prepare it with --tokenizer {name}."
        )
    reads = EncoderInput(bridge, symbols, place)
    model = load_pretrained_encoder(name)
    kind, padding = model.config.model_type, model.config.pad_token_id
    if padding != PAD and any(family in kind for family in POSITIONS_AFTER_PADDING):
        raise InputError(
            f"{name} counts positions from its padding symbol's number on, as models of kind {kind!r} do; that number "
            f"should be {PAD}, fairseq's, but is {padding}. Take another pretrained model."
        )
    choices = {
        "config": {
            **model.config.to_dict(),
            "vocab_size": len(symbols),
            "pad_token_id": PAD,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
        },
        "opening": bridge.opening,
        "closes": reads.closes,
        "max_positions": reads.max_positions,
        "segments": bridge.has_segments and getattr(model.config, "type_vocab_size", 0) > 1,
        "tokenizer_sha256": bridge.sha256,  # its symbols alone don't tell how it cuts text
    }
    built = build_encoder(choices)
    words = _name_of_words(built)
    weights = {key: value for key, value in model.state_dict().items() if key in built.model.state_dict()}
    weights[words] = reads.fairseq_rows(weights[words])
    return ReadEncoder(choices, weights)


def read_layers(name: str) -> ReadEncoder:
    """An encoder from the hub or a folder for its layers alone, whatever its tokenizer.

    Raises:
        InputError: nothing loads from there, or it is no encoder.
    """
    model = load_pretrained_encoder(name)
    return ReadEncoder({"config": model.config.to_dict()}, model.state_dict())


def build_encoder(choices: Mapping[str, Any]) -> "PretrainedEncoder":
    """An encoder with random weights.

    Raises:
        InputError: transformers doesn't know its kind; choices of another kind than `read_encoder` makes.
    """
    check_settings(_KEPT, choices, _WANTED)
    model = model_of(choices)
    check_settings(_KEPT, choices, {"opening": _numbers_below(len(model.get_input_embeddings().weight))})
    return PretrainedEncoder(
        model,
        choices["opening"],
        choices["closes"],
        choices["max_positions"],
        choices.get("segments", False),  # checkpoints from before there were pairs have none
        choices.get(DROPOUT),
    )


_KEPT = "what a checkpoint keeps of an encoder"
_WANTED = {
    "config": TABLE,
    "closes": SWITCH,
    "segments": SWITCH,
    "max_positions": whole_number(0, 10**40),  # a tokenizer without a limit says 10³⁰
    "tokenizer_sha256": TEXT,
    DROPOUT: number(0, 1),
}


def _numbers_below(count: int) -> Wanted:
    def holds(value: Any) -> bool:
        return isinstance(value, list) and all(type(each) is int and 0 <= each < count for each in value)

    return Wanted(f"a list of numbers below {count}, its words,", holds)


def model_of(choices: Mapping[str, Any]) -> Any:
    """A model of transformers with random weights, in float32 and with torch's fused attention where it has that.

    Raises:
        InputError: transformers doesn't know its kind, or it has more layers than any.
    """
    from transformers import AutoConfig, AutoModel

    check_settings(_KEPT, choices, {"config": TABLE})
    given = dict(choices["config"])
    for changing in ("transformers_version", "_name_or_path", "architectures", "torch_dtype", "dtype"):
        given.pop(changing, None)
    try:
        check_layers(given)
    except ValueError as error:
        raise InputError(f"an encoder should have layers as models have, but {error}.") from error
    try:
        config = AutoConfig.for_model(given.pop("model_type"), **given)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"transformers should know an encoder's kind, but doesn't: {first_line(error)}.") from error
    model = AutoModel.from_config(config, dtype=torch.float32)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # its output isn't used, and a parameter without gradient breaks distributed training
    return model


_DROPOUTS = (
    "hidden_dropout_prob", "hidden_dropout", "dropout", "attention_probs_dropout_prob", "attention_dropout",
    "embedding_dropout", "mlp_dropout",
)  # fmt: skip
_OF_STATES = _DROPOUTS[:3]  # what comes out of a layer


def read_dropout(choices: dict[str, Any], dropout: float) -> dict[str, Any]:
    """The choices with another dropout: of states, attention and embeddings, by whatever name transformers has for it.

    Raises:
        InputError: the encoder has none.
    """
    config = choices["config"]
    named = {name: dropout for name in _DROPOUTS if name in config}
    if not named:
        raise InputError(
            f"an encoder's dropout can be chosen where its configuration has one, but that of a "
            f"{config.get('model_type')} has none. Leave the flag out."
        )
    return {**choices, "config": {**config, **named}, DROPOUT: dropout}


def first_layers(choices: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The choices of an encoder that ends behind its first layers.

    Raises:
        InputError: it has fewer, or doesn't say how many.
    """
    config = choices["config"]
    name = next((name for name in ("num_hidden_layers", "n_layers") if name in config), None)  # DistilBERT's
    if name is None:
        raise InputError(
            "--cross-modal-layers is for encoders whose configuration says how many layers they have, as BERT's does, "
            f"but that of a {config.get('model_type')} doesn't. Leave it out."
        )
    if not 1 <= count <= config[name]:
        raise InputError(f"--cross-modal-layers should be 1 to {config[name]}, as many as there are, but is {count}.")
    return {**choices, "config": {**config, name: count}}


class PretrainedEncoder(nn.Module):
    """States of a text's pieces, from fairseq's numbers.

    Args:
        model: of transformers, whose words have the dictionary's numbers.
        opening: fairseq's numbers of what stands before a sentence.
        closes: whether `</s>` stands behind it.
        max_positions: the longest source that there are positions for, its `</s>` included.
        segments: whether it is told which of two sentences a position belongs to.
        dropout: of its states, where that was chosen; None for what the model's configuration says.

    Attributes:
        size: D.
        opens: how many positions stand before the text's first.
        dropout: that of its states, which a head behind it takes over.

    Shapes:
        tokens: (B, T), each row ending in `</s>`, padded on either side
        returns: (B, T', D);  (B, T') padding mask, on the right

    Raises:
        InputError: a text is longer than there are positions.
    """

    opening: Tensor

    def __init__(
        self,
        model: Any,
        opening: Sequence[int],
        closes: bool,
        max_positions: int,
        segments: bool = False,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.closes = closes
        self.segments = segments
        self.max_positions = max_positions
        self.size: int = model.config.hidden_size
        self.opens = len(opening)
        own = (getattr(model.config, name, None) for name in _OF_STATES)
        self.dropout: float = next((float(each) for each in (dropout, *own) if each is not None), 0.0)
        self.register_buffer("opening", torch.tensor(list(opening), dtype=torch.long), persistent=False)

    @property
    def words(self) -> Tensor:
        """The embedding of words, which an output layer may share.

        Shapes:
            returns: (V, E)
        """
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens (B, T) -> states (B, T', D), padding mask (B, T')."""
        if tokens.shape[1] > self.max_positions:
            raise InputError(
                f"the encoder has positions for {self.max_positions} pieces of a text, its end included, but one has "
                f"{tokens.shape[1]}. Cut the text's lines, or take an encoder with more positions."
            )
        numbers, padding_mask = arrange(tokens, self.opening, self.closes)
        given = {"input_ids": numbers, "attention_mask": (~padding_mask).long()}
        if self.segments:
            given["token_type_ids"] = sentence_numbers(numbers)
        return self.model(**given).last_hidden_state, padding_mask


def sentence_numbers(numbers: Tensor) -> Tensor:
    """Which of two sentences a position belongs to: what stands behind the first `</s>` is the second (a BERT's 1).

    Shapes:
        numbers: (B, T') of fairseq;  returns: (B, T')

    >>> sentence_numbers(torch.tensor([[0, 7, 2, 8, 2], [0, 7, 2, 1, 1]])).tolist()  # padding counts for neither
    [[0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    """
    ends = (numbers == EOS).long()
    return ((ends.cumsum(dim=1) - ends) > 0).long()


class CrossModalEncoder(nn.Module):
    """The layers of an encoder over states that others made, text and regions as one sequence (GS §2.1).

    The encoder's own embedding is left out: words, positions and segments are in the states already. So is what
    brings that embedding to the size of the layers (ALBERT's and ELECTRA's).

    Args:
        choices: of the encoder.

    Attributes:
        size: D.

    Shapes:
        states: (B, L, D);  padding_mask: (B, L), True = absent
        returns: (B, L, D)

    Raises:
        InputError: transformers doesn't know its kind, or it has no embedding that could be left out.
    """

    def __init__(self, choices: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model_of(choices)
        self.size: int = self.model.config.hidden_size
        if not isinstance(getattr(self.model, "embeddings", None), nn.Module):
            raise InputError(
                f"a cross-modal encoder should be of a kind whose layers stand apart from its embedding, such as BERT, "
                f"RoBERTa or ALBERT, but is a {self.model.config.model_type}."
            )
        self.model.embeddings = _Given()
        for owner in (self.model, getattr(self.model, "encoder", None)):
            for name in _PROJECTIONS:
                if isinstance(getattr(owner, name, None), nn.Module):
                    setattr(owner, name, nn.Identity())

    def load_encoder(self, weights: Mapping[str, Tensor]) -> None:
        """Begin with the layers of an encoder that was read."""
        own = self.state_dict()
        self.load_state_dict({key: weights[key.removeprefix("model.")] for key in own})

    @torch.no_grad()
    def check_masks(self) -> None:
        """Refuse layers in which what is absent changes what is there, as in a convolution's: tried on a few states.

        Raises:
            InputError: they do, or they can't read states that others made.
        """
        kind, training = self.model.config.model_type, self.training
        self.eval()
        states = torch.linspace(0, 40, 2 * 7 * self.size).sin().view(2, 7, self.size)  # any that differ
        absent = torch.tensor([[False] * 4 + [True, False, True], [False, True] + [False] * 3 + [True] * 2])
        try:
            found = [self(states.masked_fill(absent.unsqueeze(-1), value), absent)[~absent] for value in (0.0, 2.0)]
        except Exception as error:  # each kind has its own
            raise InputError(
                f"a cross-modal encoder should read states that others made, but one of kind {kind!r} can't: "
                f"{type(error).__name__} {in_short(error)}. Take another, such as a BERT, with --cross-modal-encoder."
            ) from error
        finally:
            self.train(training)
        if not torch.allclose(found[0], found[1], atol=1e-4):
            raise InputError(
                f"a cross-modal encoder should leave out images that are absent, but in one of kind {kind!r} they "
                "change the states of what is there. Take another, such as a BERT, with --cross-modal-encoder."
            )

    def forward(self, states: Tensor, padding_mask: Tensor) -> Tensor:
        """states (B, L, D), padding_mask (B, L) -> (B, L, D)."""
        found: Tensor = self.model(inputs_embeds=states, attention_mask=(~padding_mask).long()).last_hidden_state
        return found


class _Given(nn.Module):
    """In the place of an embedding: the states as they are."""

    def forward(self, *args: Any, inputs_embeds: Tensor | None = None, **kwargs: Any) -> Tensor:
        """states (B, L, D) -> (B, L, D)."""
        if inputs_embeds is not None:
            return inputs_embeds
        found: Tensor = next(each for each in args if torch.is_tensor(each) and each.is_floating_point())
        return found


def _name_of_words(encoder: PretrainedEncoder) -> str:
    """The name of the word embedding among a model's weights."""
    words = encoder.words
    return next(name for name, weight in encoder.model.named_parameters() if weight is words)
