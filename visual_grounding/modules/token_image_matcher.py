"""Tokens in their sentence, and images, as unit vectors of one space (VOK §3.2): what a vokenizer is made of.

Plain torch: the fairseq model wraps it for training, `visual-grounding export` saves it, and `Retriever` loads it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import InputError, check_at_least_one
from .sentence_encoders import masked_mean

# Fields of the configuration below that are choices of training, each under the name of its flag.
TRAINING_CHOICES = {
    "layers": "matcher_layers",
    "joint_size": "joint_size",
    "hidden_size": "matcher_hidden_size",
    "dropout": "matcher_dropout",
    "sentence_level": "sentence_level",
}

_GROUPS = 4  # that a batch is encoded in by length on a CPU, where …
_DENSE = 0.85  # … fewer of its positions are pieces


@dataclass(frozen=True)
class TokenImageMatcherConfig:
    """What decides the shape of both sides; an exported matcher keeps it in `config.json`.

    Attributes:
        layers: k, how many of the encoder's last layers are read.
        image_feature_size: F.
        joint_size: D.
        hidden_size: of the layer inside each MLP.
        dropout: behind its ReLU; not in the paper, but in its code.
        sentence_level: whether a sentence has one vector, that of its first piece, instead of one for each token.
    """

    layers: int
    image_feature_size: int
    joint_size: int = 64
    hidden_size: int = 256
    dropout: float = 0.3
    sentence_level: bool = False


class MatchingMLP(nn.Module):
    """Down to the joint space, and to unit length.

        f = mlp(h) / |mlp(h)|,     mlp(h) = W_2 dropout(ReLU(W_1 h + b_1)) + b_2

    It computes in float32, whatever the encoder, the weights or autocast have: bfloat16 here would change which image
    is nearest to a token.

    Shapes:
        vectors: (…, E)
        returns: (…, D) float32
    """

    def __init__(self, input_size: int, hidden_size: int, output_size: int, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(input_size, hidden_size)
        self.output = nn.Linear(hidden_size, output_size)
        self.dropout = dropout

    def forward(self, vectors: Tensor) -> Tensor:
        """Project vectors.

        Shapes:
            vectors: (…, E)
            returns: (…, D) float32, of length 1
        """
        with torch.autocast(vectors.device.type, enabled=False):
            inner = functional.relu(_in_float32(self.hidden, vectors))
            inner = functional.dropout(inner, self.dropout, self.training)
            return functional.normalize(_in_float32(self.output, inner), dim=-1)


def _in_float32(layer: nn.Linear, vectors: Tensor) -> Tensor:
    return functional.linear(vectors.float(), layer.weight.float(), layer.bias.float())


def check_layers(layers: int, encoder: Any) -> None:
    """Refuse to read more layers than an encoder has.

    Args:
        layers: how many of its last are read.
        encoder: its configuration, of transformers.

    Raises:
        InputError: fewer than one, or more than there are.
    """
    if not 1 <= layers <= encoder.num_hidden_layers:
        raise InputError(
            f"matcher layers should be 1 to {encoder.num_hidden_layers}, as many as the text encoder has, but are "
            f"{layers}."
        )


class KeptStates:
    """What a frozen encoder said of texts, so that each is read once, however many epochs there are.

    Args:
        size: bytes of memory that the states may take; texts beyond it are read anew each time.
        first: whether those of first pieces are all that is asked for.
    """

    def __init__(self, size: int, first: bool = False) -> None:
        self._left, self._first = size, first
        self._states: dict[bytes, Tensor] = {}  # pieces of a text -> (n, k · E), on the CPU

    def of(self, tokens: Tensor, padding_mask: Tensor, read: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """States of texts: those that were kept, and of the others what `read` says now.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, T, k · E), 0 at padding, and, if so chosen, behind the first piece
        """
        real = ~padding_mask.cpu()
        asked = ~padding_mask
        if self._first:
            asked[:, 1:] = False
        pieces = [row[mask] for row, mask in zip(tokens.cpu(), real)]
        texts = [each.numpy().tobytes() for each in pieces]
        new = [row for row, text in enumerate(texts) if text not in self._states]
        said: dict[int, Tensor] = {}
        if new:
            width = max(1, int((real[new] * torch.arange(1, real.shape[1] + 1)).amax()))
            rows = torch.tensor(new, device=tokens.device)
            states = read(tokens[rows, :width], padding_mask[rows, :width])
            said = {row: states[place, asked[row, :width]] for place, row in enumerate(new)}
            for row, found in said.items():
                self._keep(texts[row], found)
        known = [said[row] if row in said else self._states[text].to(tokens.device) for row, text in enumerate(texts)]
        found = known[0].new_zeros(*tokens.shape, known[0].shape[-1])
        found[asked] = torch.cat(known)
        return found

    def _keep(self, text: bytes, states: Tensor) -> None:
        size = states.numel() * states.element_size()
        if text not in self._states and size <= self._left:
            self._states[text] = states.cpu()
            self._left -= size


def mean_of_tokens(tokens: Tensor) -> Tensor:
    """A sentence's vector from those of its tokens: their mean, of length 1; 0 where it has no token.

    Shapes:
        tokens: (B, T, D) float32, 0 at padding
        returns: (B, D)
    """
    return functional.normalize(tokens.sum(dim=1), dim=-1)  # a number of tokens would only change its length


class TokenImageMatcher(nn.Module):
    """How well an image fits a token of a sentence (VOK §3.2).

        r(w_i, x; s) = f(w_i; s) · g(x)
        f(w_i; s) = w_mlp(h_i) / |w_mlp(h_i)|     h_i = last k layers of the encoder at token i, one behind another
        g(x) = x_mlp(e) / |x_mlp(e)|              e = mean of the image's features

    f -> `encode_tokens`, g -> `encode_images`. The encoder is frozen: it is never in training mode, and no graph leads
    into it: what it says of a text may be kept (`keep_states`). With `sentence_level` f is that of the first piece
    alone, BERT's `[CLS]` (VOK A.4).

    Args:
        config: sizes.
        encoder: a transformers encoder; it loses its pooler, whose output isn't used.

    Shapes:
        tokens: (B, T);  token_padding_mask: (B, T), True = padding
        features: (B, R, F);  feature_padding_mask: (B, R), True = absent
        returns: tokens (B, T, D), or sentences (B, D) with `sentence_level`, and images (B, D), float32

    Raises:
        InputError: the encoder has fewer layers than are read; a size below 1, or a dropout outside of 0..1.
    """

    def __init__(self, config: TokenImageMatcherConfig, encoder: Any) -> None:
        super().__init__()
        check_layers(config.layers, encoder.config)
        check_at_least_one(joint_size=config.joint_size, matcher_hidden_size=config.hidden_size)
        if not 0 <= config.dropout < 1:
            raise InputError(f"matcher dropout should be at least 0 and less than 1, but is {config.dropout}.")
        sizes = (config.hidden_size, config.joint_size, config.dropout)
        self.config = config
        self.text = MatchingMLP(config.layers * encoder.config.hidden_size, *sizes)
        self.image = MatchingMLP(config.image_feature_size, *sizes)
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None
        self.encoder = encoder.requires_grad_(False).eval()
        self._kept: KeptStates | None = None

    def keep_states(self, size: int) -> None:
        """Keep what the encoder says of texts, in so many bytes of memory."""
        self._kept = KeptStates(size, first=self.config.sentence_level)

    def train(self, mode: bool = True) -> "TokenImageMatcher":
        """Switch to training; the encoder stays in evaluation mode."""
        super().train(mode)
        self.encoder.eval()
        return self

    def hidden_states(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """What the encoder says of each token: its last k layers in ascending order, one behind another.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, T, k · E), without a graph; anything at padding, and, where states are kept for sentences,
                behind their first piece
        """
        if self._kept is not None:
            return self._kept.of(tokens, padding_mask, self._read)
        return self._read(tokens, padding_mask)

    def _read(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        rows, width = tokens.shape
        if tokens.device.type == "cpu" and rows >= 4 * _GROUPS:
            ends = (~padding_mask * torch.arange(1, width + 1)).amax(dim=1)  # (B,) behind the last piece
            if ends.sum() < _DENSE * tokens.numel():
                return self._states_by_length(tokens, padding_mask, ends)
        return self._states(tokens, padding_mask)

    def _states_by_length(self, tokens: Tensor, padding_mask: Tensor, ends: Tensor) -> Tensor:
        """The same, sentences of similar length together, so that less padding is computed: it has a share in the time.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T);  ends: (B,)
            returns: (B, T, k · E), 0 where it wasn't computed
        """
        groups = ends.argsort(stable=True).chunk(_GROUPS)
        widths = [max(1, int(ends[rows].max())) for rows in groups]
        parts = [self._states(tokens[rows, :w], padding_mask[rows, :w]) for rows, w in zip(groups, widths)]
        found = parts[0].new_zeros(*tokens.shape, parts[0].shape[-1])
        for rows, width, part in zip(groups, widths, parts):
            found[rows, :width] = part
        return found

    def _states(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        # A sentence without a token may look at its padding: to attend to nothing isn't a number.
        seen = ~padding_mask | padding_mask.all(dim=1, keepdim=True)
        with torch.no_grad():
            found = self.encoder(input_ids=tokens, attention_mask=seen.long(), output_hidden_states=True)
        return torch.cat(found.hidden_states[-self.config.layers :], dim=-1)

    def encode_tokens(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of tokens, special pieces included; exactly 0 at padding.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, T, D) float32
        """
        vectors = self.text(self.hidden_states(tokens, padding_mask))
        return vectors.masked_fill(padding_mask.unsqueeze(2), 0.0)

    def encode_text(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of sentences; 0 for one without a token. That of the first piece, or the mean of all tokens.

        Assumption: the paper has no sentence vector of a token-level matcher; it is the mean of all that were trained,
        special pieces included.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T), True after the last piece
            returns: (B, D) float32
        """
        if not self.config.sentence_level:
            return mean_of_tokens(self.encode_tokens(tokens, padding_mask))
        vectors = self.text(self.hidden_states(tokens, padding_mask)[:, 0])
        return vectors.masked_fill(padding_mask.all(dim=1, keepdim=True), 0.0)

    def encode_images(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of images; exactly 0 for one without a region.

        Shapes:
            features: (B, R, F);  padding_mask: (B, R)
            returns: (B, D) float32
        """
        vectors = self.image(masked_mean(features.float(), padding_mask))
        return vectors.masked_fill(padding_mask.all(dim=1, keepdim=True), 0.0)

    def forward(
        self, tokens: Tensor, token_padding_mask: Tensor, features: Tensor, feature_padding_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Both sides, as they are trained.

        Shapes:
            tokens: (B, T);  token_padding_mask: (B, T)
            features: (B, R, F);  feature_padding_mask: (B, R)
            returns: tokens (B, T, D), or sentences (B, D) with `sentence_level`; images (B, D)
        """
        encode = self.encode_text if self.config.sentence_level else self.encode_tokens
        return encode(tokens, token_padding_mask), self.encode_images(features, feature_padding_mask)


def matcher_config_of_state(state: dict[str, Tensor], choices: dict[str, Any]) -> TokenImageMatcherConfig:
    """The configuration of trained weights: the features' size from the weights, the rest from training's choices."""
    chosen = {name: choices[flag] for name, flag in TRAINING_CHOICES.items()}
    return TokenImageMatcherConfig(image_feature_size=state["image.hidden.weight"].shape[1], **chosen)
