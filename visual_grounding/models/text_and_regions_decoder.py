"""fairseq's transformer decoder over text and regions, and the base of the models that have it.

Its weights are those of fairseq's decoder, by name and shape. What it has beyond it: one cross-attention over the
positions of text and regions, by torch's fused kernels; a second look at each of the two apart, for the modality loss
(VLP §3.3); the weights of that attention, for probes.
"""

from collections.abc import Collection
from typing import Any, ClassVar, NamedTuple, Optional

from fairseq.data import Dictionary
from fairseq.distributed import fsdp_wrap
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from fairseq.modules import MultiheadAttention
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn

from ..errors import InputError
from ..modules.attention_apart import attend, attend_apart, attention_weights, side_by_side, weights_of_columns
from .visual_model import StrictLoading

EncoderOut = dict[str, list[Tensor]]
IncrementalState = dict[str, dict[str, Optional[Tensor]]]
# Of a layer's attention: its result, and what was asked for beside it; None for what wasn't.
Looked = tuple[Tensor, Optional[Tensor], Optional[Tensor], Optional[Tensor]]


class TextAndRegionsAttention(MultiheadAttention):
    """fairseq's cross-attention (its weights, their first values, its cache) with fused kernels and a second look.

    Keys and values are projected once: for the look at everything, for the looks apart, and in beam search for all
    steps of a sentence.
    """

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        memory: Tensor,
        padding_mask: Tensor,
        regions: int,
        incremental_state: Optional[IncrementalState] = None,
        apart: bool = False,
        weigh: bool = False,
    ) -> Looked:
        """Attend to all positions; if asked, to text and regions apart, and give the weights.

        Args:
            regions: M, the last positions of the memory.
            incremental_state: where keys and values are kept between the steps of beam search.

        Shapes:
            query: (U, B, D);  memory: (L + M, B, D_enc);  padding_mask: (B, L + M), True = padding or absent.
            returns: (U, B, D); with `weigh` (B, H, U, L + M); with `apart` h_x and h_v, (B, U, D) each.
        """
        q = self._heads(self.q_proj(query))  # (B, H, U, E)
        kept = self._get_input_buffer(incremental_state)
        if "prev_key" in kept:
            k, v, padding_mask = kept["prev_key"], kept["prev_value"], kept["prev_key_padding_mask"]  # type: ignore[assignment]
        else:
            k, v = self._heads(self.k_proj(memory)), self._heads(self.v_proj(memory))  # (B, H, L + M, E)
            if incremental_state is not None:
                made = {"prev_key": k, "prev_value": v, "prev_key_padding_mask": padding_mask}
                self._set_input_buffer(incremental_state, made)
        dropping = self.training or self.dropout_module.apply_during_inference
        dropout = self.dropout_module.p if dropping else 0.0
        attended = side_by_side(attend(q, k, v, padding_mask, dropout))  # (B, U, D)
        weights = attention_weights(q, k, padding_mask) if weigh else None
        text, images = attend_apart(q, k, v, padding_mask, regions, dropout) if apart else (None, None)
        return self.out_proj(attended.transpose(0, 1)), weights, text, images

    def _heads(self, x: Tensor) -> Tensor:
        """(K, B, D) -> (B, H, K, E)."""
        return x.unflatten(2, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)


class TextAndRegionsDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer with `TextAndRegionsAttention`."""

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> TextAndRegionsAttention:
        """Of the same sizes as fairseq's."""
        return TextAndRegionsAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        memory: Tensor,
        padding_mask: Tensor,
        regions: int,
        incremental_state: Optional[IncrementalState] = None,
        self_attn_mask: Optional[Tensor] = None,
        self_attn_padding_mask: Optional[Tensor] = None,
        apart: bool = False,
        weigh: bool = False,
    ) -> Looked:
        """Words among themselves, then at text and regions, then each alone.

        The result is flat, since activation checkpointing leads gradients through nothing else.

        Shapes:
            x: (U, B, D);  memory, padding_mask and the result: as in `TextAndRegionsAttention.forward`.
        """

        def words(x: Tensor) -> Tensor:
            return self.self_attn(
                x,
                x,
                x,
                key_padding_mask=self_attn_padding_mask,
                incremental_state=incremental_state,
                need_weights=False,
                attn_mask=self_attn_mask,
            )[0]

        def feed_forward(x: Tensor) -> Tensor:
            return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))

        x = self._add(x, words(self._before(x, self.self_attn_layer_norm)), self.self_attn_layer_norm)
        query = self._before(x, self.encoder_attn_layer_norm)
        looked = self.encoder_attn(query, memory, padding_mask, regions, incremental_state, apart, weigh)
        x = self._add(x, looked[0], self.encoder_attn_layer_norm)
        x = self._add(x, feed_forward(self._before(x, self.final_layer_norm)), self.final_layer_norm)
        return (x, *looked[1:])

    def _before(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x) if self.normalize_before else x

    def _add(self, x: Tensor, change: Tensor, norm: nn.Module) -> Tensor:
        x = self.residual_connection(self.dropout_module(change), x)
        return x if self.normalize_before else norm(x)


class TextAndRegionsDecoder(TransformerDecoderBase):
    """fairseq's decoder, whose cross-attention is over what a `TextAndRegionsEncoder` returns.

    Raises:
        InputError: `--cross-self-attention`, `--no-cross-attention` or `--base-layers`, which it hasn't.
    """

    def __init__(self, cfg: TransformerConfig, dictionary: Dictionary, embed_tokens: nn.Module, **options: Any) -> None:
        for flag, value in (
            ("--cross-self-attention", cfg.cross_self_attention),
            ("--no-cross-attention", cfg.no_cross_attention),
            ("--base-layers", cfg.base_layers),
        ):
            if value:
                raise InputError(f"a decoder over text and regions has no {flag}: leave it out.")
        super().__init__(cfg, dictionary, embed_tokens, **options)

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> nn.Module:
        """As fairseq's, with activation checkpointing and sharding where they are asked for."""
        layer = TextAndRegionsDecoderLayer(cfg, no_encoder_attn)
        if cfg.checkpoint_activations:
            layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[EncoderOut] = None,
        incremental_state: Optional[IncrementalState] = None,
        features_only: bool = False,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        attend_apart: Collection[int] = (),
        watch_attention: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As fairseq's decoder.

        Args:
            attend_apart: layers, from 0, that also look at text and regions apart (VLP eq. 2).
            watch_attention: give the weights of every layer's cross-attention.

        Shapes:
            prev_output_tokens: (B, U);  encoder_out: as `TextAndRegionsEncoder` says.
            returns: (B, U, V), or (B, U, D) with features_only; and a dict of
                attn: [(B, U, T)] weights over the columns of src_tokens in the alignment layer, mean of its heads; they
                    sum to 1 with those of the rest. [None] in training unless a layer is asked for, and where
                    fairseq-generate prints no alignment
                inner_states: [(U, B, D), …]
                attended_apart: {layer: (h_x, h_v)}, (B, U, D) each; h_v is 0 where every region is absent. A layer that
                    LayerDrop left out isn't in it
                cross_attention: [(B, U, L + M), …], mean of the heads, a layer each, with watch_attention
        """
        x, extra = self.extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
            attend_apart,
            watch_attention,
        )
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[EncoderOut],
        incremental_state: Optional[IncrementalState] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        attend_apart: Collection[int] = (),
        watch_attention: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """`forward` without the output layer.

        Shapes:
            prev_output_tokens: (B, U);  returns: (B, U, D) and the dict.

        Raises:
            ValueError: no encoder output, or there is no such layer.
        """
        if encoder_out is None:
            raise ValueError("a decoder over text and regions needs the output of their encoder, but has None")
        if not all(0 <= layer < self.num_layers for layer in attend_apart):
            raise ValueError(f"layers to attend apart in should be 0..{self.num_layers - 1}, but are {attend_apart}")
        memory, padding_mask = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"][0]
        regions = encoder_out["region_padding_mask"][0].shape[1]  # M
        x = self.embed(prev_output_tokens, incremental_state).transpose(0, 1)  # (U, B, D)
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
        future = None
        if incremental_state is None and not full_context_alignment:
            future = self.buffered_future_mask(x)

        numbers = {layer: number for number, layer in enumerate(self.layers.children())}
        aligning = self.num_layers - 1 if alignment_layer is None else alignment_layer
        attn: Optional[Tensor] = None
        inner_states, apart, watched = [x], {}, []
        for layer in self.layers:  # LayerDrop leaves some out
            number = numbers[layer]
            aligns = number == aligning and (alignment_layer is not None or (not self.training and layer.need_attn))
            x, weights, text, images = layer(
                x,
                memory,
                padding_mask,
                regions,
                incremental_state,
                self_attn_mask=future,
                self_attn_padding_mask=prev_output_tokens.eq(self.padding_idx),
                apart=number in attend_apart,
                weigh=aligns or watch_attention,
            )
            inner_states.append(x)
            if number in attend_apart:
                apart[number] = (text, images)
            if watch_attention:
                watched.append(weights.mean(dim=1))
            if aligns:
                attn = weights_of_columns(weights[:, :alignment_heads].mean(dim=1), encoder_out["source_positions"][0])
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)  # (B, U, D)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        extra: dict[str, Any] = {"attn": [attn], "inner_states": inner_states, "attended_apart": apart}
        if watch_attention:
            extra["cross_attention"] = watched
        return x, extra

    def embed(self, prev_output_tokens: Tensor, incremental_state: Optional[IncrementalState] = None) -> Tensor:
        """Tokens with their positions; in beam search the last one alone.

        Shapes:
            prev_output_tokens: (B, U);  returns: (B, U, D), U = 1 in beam search
        """
        positions = None
        if self.embed_positions is not None:
            positions = self.embed_positions(prev_output_tokens, incremental_state=incremental_state)
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
            positions = None if positions is None else positions[:, -1:]
        x = self.embed_scale * self.embed_tokens(prev_output_tokens.contiguous())
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)


class LooksApart(NamedTuple):
    """What a criterion has to know of a decoder before it has seen one of its outputs.

    Attributes:
        layers: how many there are.
        size: D.
        embedding_size: of the target's words.
    """

    layers: int
    size: int
    embedding_size: int


class TextAndRegionsModel(StrictLoading, FairseqEncoderDecoderModel):
    """Base of the registered models: a `TextAndRegionsEncoder` and a `TextAndRegionsDecoder`.

    Attributes:
        attends_to_regions: its decoder can look at text and regions apart, which the modality loss is made of.
    """

    attends_to_regions: ClassVar[bool] = True

    @property
    def looks_apart(self) -> LooksApart:
        """The sizes of `attended_apart`."""
        decoder = self.decoder
        return LooksApart(decoder.num_layers, decoder.embed_dim, decoder.embed_tokens.embedding_dim)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        return_all_hiddens: bool = True,
        features_only: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        visual: Optional[dict[str, Tensor]] = None,
        attend_apart: Collection[int] = (),
        watch_attention: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Scores of the next words, and what was asked for beside them.

        Shapes:
            src_tokens: (B, T);  prev_output_tokens: (B, U);  visual: the batch's `net_input["visual"]`.
            returns: as `TextAndRegionsDecoder.forward`.
        """
        encoded = self.encoder(src_tokens, src_lengths=src_lengths, visual=visual)
        return self.decoder(
            prev_output_tokens,
            encoder_out=encoded,
            features_only=features_only,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
            src_lengths=src_lengths,
            return_all_hiddens=return_all_hiddens,
            attend_apart=attend_apart,
            watch_attention=watch_attention,
        )
