"""From the tokens of a sentence to one vector: recurrent, a bag of words, or a pretrained encoder."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..text.pretrained_tokenizer import load_pretrained
from ..text.words import PAD
from .sru import SRU


def masked_mean(vectors: Tensor, padding_mask: Tensor) -> Tensor:
    """Mean over the real steps; 0 where there are none.

    Shapes:
        vectors: (B, T, D);  padding_mask: (B, T)
        returns: (B, D)
    """
    real = (~padding_mask).to(vectors.dtype)  # (B, T)
    return torch.einsum("btd,bt->bd", vectors, real) / real.sum(dim=1, keepdim=True).clamp(min=1)


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
    """Mean of learned word vectors, dropout, one linear layer.

    Shapes:
        tokens: (B, T);  padding_mask: (B, T)
        returns: (B, D)
    """

    def __init__(self, vocabulary_size: int, embed_size: int, output_size: int, dropout: float) -> None:
        super().__init__()
        self.embedding = embed_words(vocabulary_size, embed_size)
        self.projection = nn.Linear(embed_size, output_size)
        self.dropout = dropout

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Encode sentences.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D)
        """
        mean = masked_mean(self.embedding(tokens), padding_mask)
        return self.projection(functional.dropout(mean, self.dropout, self.training))


class PretrainedSentenceEncoder(nn.Module):
    """A BERT-style encoder, the mean of its last layer over real tokens, dropout, one linear layer.

    Args:
        encoder: a transformers model with `config.hidden_size`.
        output_size: D.
        dropout: on the mean.
        freeze: keep the encoder as it is, without its own dropout.

    Shapes:
        tokens: (B, T);  padding_mask: (B, T)
        returns: (B, D)
    """

    def __init__(self, encoder: nn.Module, output_size: int, dropout: float, freeze: bool) -> None:
        super().__init__()
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None  # its output isn't used, and a parameter without gradient breaks distributed training
        self.encoder = encoder
        self.projection = nn.Linear(encoder.config.hidden_size, output_size)
        self.dropout = dropout
        self.freeze = freeze
        if freeze:
            encoder.requires_grad_(False)

    def train(self, mode: bool = True) -> "PretrainedSentenceEncoder":
        """Switch to training; a frozen encoder stays in evaluation mode."""
        super().train(mode)
        if self.freeze:
            self.encoder.eval()
        return self

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Encode sentences.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D)
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            hidden = self.encoder(input_ids=tokens, attention_mask=(~padding_mask).long()).last_hidden_state
        mean = masked_mean(hidden, padding_mask)
        return self.projection(functional.dropout(mean, self.dropout, self.training))


def load_pretrained_encoder(name: str) -> nn.Module:
    """A transformers model in float32, from a hub name or a folder.

    Raises:
        InputError: nothing loads from there.
    """
    from transformers import AutoModel

    return load_pretrained(AutoModel, name).float()
