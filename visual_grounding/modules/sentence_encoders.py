"""From the tokens of a sentence to one vector: recurrent, a bag of words, or a pretrained encoder."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..text.pretrained_tokenizer import check_vocabulary, load_pretrained, load_tokenizer
from ..text.words import PAD
from .sru import SRU


def masked_mean(vectors: Tensor, padding_mask: Tensor) -> Tensor:
    """Mean over the real steps; 0 where there are none.

    It is computed in float32, under autocast too: 512 steps with a value above 128, as pretrained encoders have them in
    single channels, have no sum in float16.

    Shapes:
        vectors: (B, T, D);  padding_mask: (B, T)
        returns: (B, D), of the same dtype
    """
    wide = torch.promote_types(vectors.dtype, torch.float32)
    real = (~padding_mask).to(wide)  # (B, T)
    with torch.autocast(vectors.device.type, enabled=False):
        mean = torch.einsum("btd,bt->bd", vectors.to(wide), real) / real.sum(dim=1, keepdim=True).clamp(min=1)
    return mean.to(vectors.dtype)


def embed_words(vocabulary_size: int, size: int) -> nn.Embedding:
    """Word vectors to be learned, uniform with variance 1 / size."""
    embedding = nn.Embedding(vocabulary_size, size, padding_idx=PAD)
    nn.init.uniform_(embedding.weight, -math.sqrt(3 / size), math.sqrt(3 / size))
    nn.init.zeros_(embedding.weight[PAD])
    return embedding


class SRUSentenceEncoder(nn.Module):
    """Word vectors, SRU layers, the output at the last real word (VA §2.1).

    Shapes:
        tokens: (B, T);  padding_mask: (B, T), True after the last word
        returns: (B, D)
    """

    def __init__(self, vocabulary_size: int, embed_size: int, output_size: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = embed_words(vocabulary_size, embed_size)
        self.sru = SRU(embed_size, output_size, layers, dropout)
        self.output_size = output_size

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Encode sentences.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D)
        """
        hidden = self.sru(self.embedding(tokens).transpose(0, 1))  # (T, B, D)
        last = (~padding_mask).sum(dim=1).clamp(min=1) - 1  # (B,)
        return hidden[last, torch.arange(len(last), device=last.device)]


class BagSentenceEncoder(nn.Module):
    """Mean of learned word vectors.

    Shapes:
        tokens: (B, T);  padding_mask: (B, T)
        returns: (B, E)
    """

    def __init__(self, vocabulary_size: int, embed_size: int) -> None:
        super().__init__()
        self.embedding = embed_words(vocabulary_size, embed_size)
        self.output_size = embed_size

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Encode sentences.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, E)
        """
        return masked_mean(self.embedding(tokens), padding_mask)


class PretrainedSentenceEncoder(nn.Module):
    """A BERT-style encoder and the mean of its last layer over real tokens, as sentence encoders are trained.

    Args:
        model: a transformers model with `config.hidden_size`.
        freeze: keep the model as it is, without its own dropout.

    Shapes:
        tokens: (B, T);  padding_mask: (B, T)
        returns: (B, E)
    """

    def __init__(self, model: Any, freeze: bool) -> None:
        super().__init__()
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # its output isn't used, and a parameter without gradient breaks distributed training
        self.model = model
        self.output_size: int = model.config.hidden_size
        self.freeze = freeze
        self._known: dict[bytes, Tensor] = {}
        self._known_limit = 0
        if freeze:
            model.requires_grad_(False)

    def remember_sentences(self, limit: int) -> None:
        """Encode each sentence once only, the first `limit` different ones; for the epochs of training a frozen model.

        Raises:
            ValueError: the model isn't frozen.
        """
        if not self.freeze:
            raise ValueError("only a frozen encoder may remember its sentences")
        self._known_limit = limit

    def train(self, mode: bool = True) -> "PretrainedSentenceEncoder":
        """Switch to training; a frozen model stays in evaluation mode."""
        super().train(mode)
        if self.freeze:
            self.model.eval()
        return self

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Encode sentences.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, E)
        """
        if not self._known_limit:
            return self._encode(tokens, padding_mask)
        lengths = (~padding_mask).sum(dim=1).tolist()
        names = [row[:length].tobytes() for row, length in zip(tokens.cpu().numpy(), lengths)]
        new = [row for row, name in enumerate(names) if name not in self._known]
        found: dict[bytes, Tensor] = {}
        if new:
            vectors = self._encode(tokens[new], padding_mask[new]).cpu()
            found = {names[row]: vector for row, vector in zip(new, vectors)}
            room = max(0, self._known_limit - len(self._known))
            self._known.update((name, vector.clone()) for name, vector in list(found.items())[:room])
        vectors = torch.stack([found[name] if name in found else self._known[name] for name in names])
        return vectors.to(tokens.device)

    def _encode(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Mean of the last layer.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, E)
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            hidden = self.model(input_ids=tokens, attention_mask=(~padding_mask).long()).last_hidden_state  # (B, T, E)
            return masked_mean(hidden, padding_mask)


def load_pretrained_encoder(name: str) -> Any:
    """A transformers model with its weights in float32, from a hub name or a folder.

    Raises:
        InputError: nothing loads from there, or what does has a decoder, too, or doesn't read text alone.
    """
    from transformers import AutoModel

    model = load_pretrained(AutoModel, name)
    if model.config.is_encoder_decoder or getattr(model, "decoder", None) is not None:
        # What it says of a text would be its decoder's states, or an error.
        raise InputError(f"{name} should be an encoder alone, such as a BERT or an ALBERT, but has a decoder, too.")
    sizes = [getattr(model.config, size, None) for size in ("hidden_size", "num_hidden_layers")]
    if model.main_input_name != "input_ids" or not all(type(size) is int for size in sizes):
        raise InputError(
            f"{name} should be an encoder of text alone, such as a BERT or an ALBERT, but is of kind "
            f"{model.config.model_type!r}. The text tower of a CLIP or SigLIP makes a retriever by itself: "
            "visual-grounding export --dual-encoder."
        )
    return model.float()


def load_text_encoder(name: str) -> Any:
    """The same for text that its own tokenizer cuts.

    Raises:
        InputError: as `load_pretrained_encoder`; its tokenizer doesn't load, or can't be its own.
    """
    model = load_pretrained_encoder(name)
    check_vocabulary(len(load_tokenizer(name)), len(model.get_input_embeddings().weight), name)
    return model


def build_pretrained_encoder(name: str) -> Any:
    """The same model without its weights, to be filled from a checkpoint.

    Raises:
        InputError: no configuration loads from there.
    """
    from transformers import AutoConfig, AutoModel

    return AutoModel.from_config(load_pretrained(AutoConfig, name)).float()
