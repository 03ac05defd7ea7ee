"""Encoders whose output is text and regions in one sequence: what they return, and how beam search reorders it."""

from typing import Optional

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor

_TIME_FIRST = {"encoder_out", "encoder_states"}


class TextAndRegionsEncoder(FairseqEncoder):
    """Base of encoders whose output is text first, regions last; a subclass's `forward` ends in `text_and_regions_out`.

    What it returns is fairseq's dict of lists, so beam search, ensembles and fairseq's own decoders take it:

        encoder_out            [(L + M, B, D)]  L positions of text, with whatever the model puts around its words
                                                (</s>, [CLS], tags); then M = N·R regions, none without images
        encoder_padding_mask   [(B, L + M)]     True = padding or absent
        region_padding_mask    [(B, M)]         the end of it; L is what is before it, so no device is asked for a size
        source_positions       [(B, T)] int64   which of the L positions a column of src_tokens is, −1 for padding: so
                                                attention can be given back over the source's own words
        encoder_embedding, encoder_states, src_tokens, src_lengths      as fairseq's; empty where they aren't given
    """

    def text_and_regions_out(
        self,
        x: Tensor,
        text_padding_mask: Tensor,
        region_padding_mask: Optional[Tensor],
        source_positions: Tensor,
        **others: list[Tensor],
    ) -> dict[str, list[Tensor]]:
        """What `forward` returns.

        Args:
            others: `encoder_embedding` [(B, L + M, D)], `encoder_states` [(L + M, B, D), …], `src_tokens` [(B, T)],
                `src_lengths` [(B, 1)]: those that the encoder has.

        Shapes:
            x: (L + M, B, D);  text_padding_mask: (B, L);  region_padding_mask: (B, M), None without images.
            source_positions: (B, T), −1 where src_tokens is padding.

        Raises:
            ValueError: the masks are of another size than `x`.
        """
        if region_padding_mask is None:
            region_padding_mask = text_padding_mask[:, :0]
        padding_mask = torch.cat([text_padding_mask, region_padding_mask], dim=1)  # (B, L + M)
        if padding_mask.shape != (x.shape[1], x.shape[0]):
            raise ValueError(
                f"a sequence (L + M, B, D) of {tuple(x.shape)} needs masks of as many positions, but that of the text "
                f"is {tuple(text_padding_mask.shape)} and that of the regions {tuple(region_padding_mask.shape)}"
            )
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding_mask],
            "region_padding_mask": [region_padding_mask],
            "source_positions": [source_positions],
            "encoder_embedding": [],
            "encoder_states": [],
            "src_tokens": [],
            "src_lengths": [],
            **others,
        }

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """The sentences in another order, some of them several times, as beam search asks for.

        Shapes:
            encoder_out: as above;  new_order: (B',) rows of the batch
        """
        return {
            name: [tensor.index_select(1 if name in _TIME_FIRST else 0, new_order) for tensor in tensors]
            for name, tensors in encoder_out.items()
        }
