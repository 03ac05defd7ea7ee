"""BERT over text, tags and regions as one stream (VLP §3.2), and what it is asked in pre-training."""

import logging
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import InputError
from ..shares import share
from ..text.tokenizer_bridge import BOS, EOS
from ..text.words import PAD
from .region_embedding import RegionProjection

logger = logging.getLogger(__name__)


class Stream(NamedTuple):
    """What BERT gives for a batch.

    The L positions of text are `[CLS]`, the T columns of the source, the G columns of tags, and `[SEP]`; the M regions
    follow. What isn't there is padding, wherever it stands.

    Shapes:
        hidden: (B, L + M, D);  text_padding_mask: (B, L);  region_padding_mask: (B, M), M = 0 without images
        read_tags: (B, G) bool, the tags that there are positions for, G = 0 without tags
    """

    hidden: Tensor
    text_padding_mask: Tensor
    region_padding_mask: Tensor
    read_tags: Tensor


class VisionLanguageBert(nn.Module):
    """BERT's layers over text, object tags and regions of images.

        Cat[Emb(Cat[x, t]), FFN(v)]      (VLP eq. 1)

    x -> `[CLS] source [SEP]`, t -> `tags [SEP]`, Emb -> BERT's own embedding, FFN -> `RegionProjection`. Numbers are
    fairseq's, whose `</s>` stands for `[SEP]` and ends the source. A sentence without tags has no second `[SEP]`.
    Without tags and images this is BERT itself.

    Assumption: tags are BERT's second segment, as the second of two sentences; positions go on in them; regions have
    neither segment nor position but their box, and BERT's dropout.

    Args:
        config: of transformers, of kind "bert", whose vocabulary is the dictionary's.
        feature_size: F of the regions; 0 for a model of text alone.

    Attributes:
        max_positions: the longest source that there are positions for, its `</s>` included.

    Shapes:
        tokens: (B, T), each row ending in `</s>`, padded on either side;  tags: (B, G), padded on the right
        features: (B, N, R, F);  boxes: (B, N, R, 4);  padding_mask: (B, N, R), True = absent

    Raises:
        InputError: a source is longer than there are positions.
        ValueError: images for a model of text alone.
    """

    def __init__(self, config: Any, feature_size: int) -> None:
        from transformers import BertModel

        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.max_positions: int = config.max_position_embeddings - 1
        self.size: int = config.hidden_size
        self._tags_segment = min(1, config.type_vocab_size - 1)
        if feature_size:
            self.image_projection = RegionProjection(
                feature_size, config.hidden_size, config.hidden_dropout_prob, config.initializer_range
            )
        self.feature_size = feature_size
        self._said = False

    @property
    def words(self) -> Tensor:
        """BERT's word embedding, which the head shares.

        Shapes:
            returns: (V, D)
        """
        weight: Tensor = self.bert.embeddings.word_embeddings.weight
        return weight

    def forward(self, tokens: Tensor, visual: dict[str, Tensor] | None = None) -> Stream:
        """Encode a batch.

        Args:
            visual: the batch's `net_input["visual"]`, with boxes, and with tags where they are read.

        Shapes:
            tokens: (B, T);  visual: as the class says
            returns: hidden (B, L + M, D), and masks
        """
        tags = visual.get("tags") if visual else None
        tags = tokens[:, :0] if tags is None else tags
        numbers, present, segments, read_tags = self._text(tokens, tags)
        positions = (present.long().cumsum(dim=1) - 1).clamp(min=0)  # (B, L): padding takes none
        x = self.bert.embeddings(input_ids=numbers, token_type_ids=segments, position_ids=positions)
        absent = present[:, :0]
        if visual is not None:
            if not self.feature_size:
                raise ValueError("a model that was built for text alone is given images")
            absent = visual["padding_mask"].flatten(1)  # (B, N, R) -> (B, M)
            regions = self.image_projection(visual["features"].flatten(1, 2), visual["boxes"].flatten(1, 2))
            x = torch.cat([x, regions.to(x.dtype)], dim=1)  # (B, L + M, D)
        attended = torch.cat([present, ~absent], dim=1)[:, None, None]  # (B, 1, 1, L + M), True where attention goes
        hidden = self.bert.encoder(x, attention_mask=attended).last_hidden_state
        return Stream(hidden, ~present, absent, read_tags)

    def _text(self, tokens: Tensor, tags: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Numbers, presence and segments of the L positions, and which tags are among them.

        Shapes:
            tokens: (B, T);  tags: (B, G)
            returns: (B, L) each, L = 1 + T + G + 1, or 1 + T where no sentence has tags; (B, G)
        """
        rows, limit = len(tokens), self.max_positions + 1
        opening = tokens.new_full((rows, 1), BOS)
        text = torch.cat([opening, tokens], dim=1)
        used = (text != PAD).sum(dim=1, keepdim=True)  # (B, 1)
        given = tags != PAD  # (B, G)
        read = given
        if text.shape[1] + tags.shape[1] + 1 > limit:  # by the shapes alone: no device is asked in most batches
            self._check_length(used, limit)
            read = given & (used + given.long().cumsum(dim=1) < limit)  # a place is left for [SEP]
            self._warn_of_cut_tags(given & ~read, limit)
        segments = torch.zeros_like(text)
        if not tags.shape[1]:
            return text, text != PAD, segments, read
        closing = torch.where(read.any(dim=1, keepdim=True), EOS, PAD)  # (B, 1)
        after = torch.cat([tags.masked_fill(~read, PAD), closing], dim=1)  # (B, G + 1)
        numbers = torch.cat([text, after], dim=1)
        return numbers, numbers != PAD, torch.cat([segments, torch.full_like(after, self._tags_segment)], dim=1), read

    def _check_length(self, used: Tensor, limit: int) -> None:
        longest = int(used.max())
        if longest > limit:
            raise InputError(
                f"a sentence should have at most {limit - 1} pieces with its end, as BERT has {limit} positions, but "
                f"one has {longest - 1}. Cut the text with: visual-grounding prepare pieces --max-pieces {limit - 2}"
            )

    def _warn_of_cut_tags(self, cut: Tensor, limit: int) -> None:
        sentences = 0 if self._said else int(cut.any(dim=1).sum())
        if sentences:
            self._said = True
            logger.warning(
                f"{share(sentences, len(cut), 'sentences of a batch')} have more tags than BERT's {limit} positions "
                "hold behind the text: the least confident are left out, here and in later batches."
            )


class MaskedWordHead(nn.Module):
    """Which word a mask hides: BERT's own head, whose output layer is its word embedding.

        logits = E LayerNorm(gelu(W h + b)) + c

    E -> `words`, c -> `bias`, the rest -> `transform`.

    Args:
        config: of transformers, of kind "bert".

    Shapes:
        hidden: (K, D);  words: (V, D)
        returns: (K, V)
    """

    def __init__(self, config: Any) -> None:
        from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        nn.init.normal_(self.transform.dense.weight, std=config.initializer_range)
        nn.init.zeros_(self.transform.dense.bias)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        """hidden (K, D), words (V, D) -> (K, V)."""
        return functional.linear(self.transform(hidden), words, self.bias)


class PairedImageHead(nn.Module):
    """Whether the images are the sentence's own: one number from `[CLS]`, positive for its own (VLP §3.2).

    Args:
        config: of transformers, of kind "bert".

    Shapes:
        first: (B, D), the state of `[CLS]`
        returns: (B,)
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.output = nn.Linear(config.hidden_size, 1)
        nn.init.normal_(self.output.weight, std=config.initializer_range)
        nn.init.zeros_(self.output.bias)

    def forward(self, first: Tensor) -> Tensor:
        """first (B, D) -> (B,)."""
        return self.output(first).squeeze(1)
