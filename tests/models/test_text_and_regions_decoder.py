"""The decoder over text and regions against fairseq's own with the same weights, and what it has beyond it."""

import copy
from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import FairseqDropout
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from small_text_and_regions import D, small_batch, small_config, small_dictionary, small_model, small_words
from torch import Tensor

from visual_grounding import InputError
from visual_grounding.models.text_and_regions_decoder import TextAndRegionsDecoder

KINDS = {
    "after": {},
    "before": {"decoder_normalize_before": True, "layernorm_embedding": True, "decoder_learned_pos": True},
    "narrow": {"no_scale_embedding": True, "activation_fn": "gelu", "share_decoder_input_output_embed": True},
}


def fairseqs(model: Any, **flags: Any) -> TransformerDecoderBase:
    """fairseq's decoder with a model's weights: by the very same names."""
    dictionary = small_dictionary()
    decoder = TransformerDecoderBase(small_config(**flags), dictionary, small_words(dictionary))
    decoder.load_state_dict(model.decoder.state_dict())
    return decoder


def encode(model: Any, batch: dict[str, Any]) -> dict[str, list[Tensor]]:
    return model.encoder(batch["src_tokens"], visual=batch["visual"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("images", [True, False])
def test_decoder_equals_fairseqs_in_training(kind: str, images: bool) -> None:
    model, batch = small_model(**KINDS[kind]).double(), small_batch()
    batch["visual"] = batch["visual"] if images else None
    twin = fairseqs(model, **KINDS[kind]).double()
    encoded = encode(model, batch)
    seen = (batch["prev_output_tokens"] != 1).unsqueeze(2)
    gradients = []
    for decoder in (model.decoder, twin):
        scores = decoder(batch["prev_output_tokens"], encoder_out=encoded)[0]
        gradients.append((scores * seen, torch.autograd.grad((scores * seen).pow(2).sum(), decoder.parameters())))
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_decoder_equals_fairseqs_step_by_step_while_beams_move(kind: str) -> None:
    """Hypotheses change places within their sentence, then a sentence ends: as fairseq's generator asks for."""
    model, batch = small_model(**KINDS[kind]).eval(), small_batch()
    twin = fairseqs(model, **KINDS[kind]).eval()
    encoded = model.encoder.reorder_encoder_out(encode(model, batch), torch.tensor([0, 0, 1, 1, 2, 2]))
    tokens = torch.tensor([[2, 4, 5, 6], [2, 5, 5, 7], [2, 6, 6, 6], [2, 7, 8, 9], [2, 9, 8, 7], [2, 4, 4, 4]])
    states: tuple[dict, dict] = ({}, {})
    orders = {2: torch.tensor([1, 0, 2, 3, 5, 4]), 3: torch.tensor([2, 3, 4, 5])}
    for step in range(1, 5):
        if step in orders:
            order = orders[step]
            tokens, encoded = tokens[order], model.encoder.reorder_encoder_out(encoded, order)
            for decoder, state in zip((model.decoder, twin), states):
                decoder.reorder_incremental_state_scripting(state, order)
        ours, theirs = (
            decoder(tokens[:, :step], encoder_out=encoded, incremental_state=state)
            for decoder, state in zip((model.decoder, twin), states)
        )
        assert ours[0].shape == (len(tokens), 1, 12)
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
        whole = model.decoder(tokens[:, :step], encoder_out=encoded)[0][:, -1:]
        torch.testing.assert_close(ours[0], whole, rtol=1e-5, atol=1e-5)


def test_decoder_projects_its_memory_once_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = small_model().eval(), small_batch()
    calls = []
    for layer in model.decoder.layers:
        layer.encoder_attn.k_proj.register_forward_hook(lambda *_: calls.append(1))
    encoded, state = encode(model, batch), {}
    for step in range(1, 5):
        model.decoder(batch["prev_output_tokens"][:, :step], encoder_out=encoded, incremental_state=state)
    model.decoder(batch["prev_output_tokens"], encoder_out=encoded, attend_apart=(0, 1), watch_attention=True)
    assert len(calls) == 2 + 2  # in each layer once for the four steps, once for the three looks


def test_attended_apart_is_what_fairseqs_attention_makes_of_each_half() -> None:
    """Inputs of each layer's cross-attention go through its own weights once more, with the other half masked."""
    model, batch = small_model(), small_batch()
    queries: dict[int, Tensor] = {}
    for number, layer in enumerate(model.decoder.layers):
        layer.encoder_attn.q_proj.register_forward_hook(lambda _, given, __, n=number: queries.update({n: given[0]}))
    encoded = encode(model, batch)
    extra = model.decoder(batch["prev_output_tokens"], encoder_out=encoded, attend_apart=(0, 1))[1]
    memory, padding = encoded["encoder_out"][0], encoded["encoder_padding_mask"][0]
    twin = fairseqs(model)
    for number, (text, regions) in extra["attended_apart"].items():
        attention = twin.layers[number].encoder_attn
        attention.out_proj = torch.nn.Linear(D, D)
        torch.nn.init.eye_(attention.out_proj.weight)
        torch.nn.init.zeros_(attention.out_proj.bias)
        for found, part in ((text, slice(0, 5)), (regions, slice(5, None))):
            rows = 3 if part.start == 0 else 2  # the third sentence has no region: fairseq's softmax would be NaN
            expected, _ = attention(
                queries[number][:, :rows], memory[part, :rows], memory[part, :rows], padding[:rows, part]
            )
            torch.testing.assert_close(found[:rows], expected.transpose(0, 1), rtol=1e-5, atol=1e-5)
        assert torch.equal(regions[2], torch.zeros(4, D))
    assert list(extra["attended_apart"]) == [0, 1]


def test_looking_apart_or_watching_changes_no_scores() -> None:
    model, batch = small_model(), small_batch()
    plain, extra = model(**batch)
    looked, more = model(**batch, attend_apart=(1,), watch_attention=True)
    assert torch.equal(plain, looked)
    assert extra["attended_apart"] == {} and "cross_attention" not in extra and extra["attn"] == [None]
    assert list(more["attended_apart"]) == [1] and len(more["cross_attention"]) == 2
    with pytest.raises(ValueError, match=r"layers to attend apart in should be 0\.\.1, but are \(0, 2\)"):
        model(**batch, attend_apart=(0, 2))


def test_gradients_of_the_second_look_reach_encoder_and_projections() -> None:
    model, batch = small_model(), small_batch()
    apart = model(**batch, attend_apart=(1,))[1]["attended_apart"][1]
    sum(h.pow(2).sum() for h in apart).backward()
    last = model.decoder.layers[1].encoder_attn
    for weight in (last.q_proj.weight, last.k_proj.weight, last.v_proj.weight, model.encoder.image_projection.weight):
        assert weight.grad.isfinite().all() and weight.grad.any()
    assert last.out_proj.weight.grad is None  # h is taken before it


def test_gradients_of_the_whole_model_reach_every_parameter() -> None:
    model = small_model()
    model(**small_batch())[0].pow(2).sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 1e-12]
    assert all(name.endswith("k_proj.bias") for name in silent), silent  # softmax doesn't see it


def test_sentence_without_regions_is_translated_as_without_images() -> None:
    model, batch = small_model().eval(), small_batch()
    seeing, blind = model(**batch)[0], model(**{**batch, "visual": None})[0]
    torch.testing.assert_close(seeing[2], blind[2])
    assert not torch.allclose(seeing[0], blind[0]) and not torch.allclose(seeing[1], blind[1])


def test_watched_attention_is_the_mean_of_fairseqs_heads_in_every_layer() -> None:
    model, batch = small_model().eval(), small_batch()
    twin, encoded = fairseqs(model).eval(), encode(model, batch)
    extra = model.decoder(batch["prev_output_tokens"], encoder_out=encoded, watch_attention=True)[1]
    for layer in range(2):
        theirs = twin(batch["prev_output_tokens"], encoder_out=encoded, alignment_layer=layer)[1]["attn"][0]
        torch.testing.assert_close(extra["cross_attention"][layer], theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(extra["cross_attention"][0].sum(2), torch.ones(3, 4))


def test_alignment_is_over_the_columns_of_the_source() -> None:
    model, batch = small_model().eval(), small_batch()
    watched = model(**batch, watch_attention=True)[1]
    attn = watched["attn"][0]
    assert attn.shape == (3, 4, 4)
    torch.testing.assert_close(attn[0], watched["cross_attention"][1][0, :, 1:5])  # behind the mark
    assert not attn[1, :, 0].any() and not attn[2, :, :2].any()  # padding
    one_head = model(**batch, alignment_layer=0, alignment_heads=1)[1]["attn"][0]
    other = fairseqs(model).eval()(
        batch["prev_output_tokens"], encoder_out=encode(model, batch), alignment_layer=0, alignment_heads=1
    )[1]["attn"][0]
    torch.testing.assert_close(one_head[0], other[0, :, 1:5], rtol=1e-5, atol=1e-6)


def test_generator_of_fairseq_translates_and_aligns() -> None:
    """As fairseq-generate does, with and without --print-alignment; the second look costs nothing there."""
    batch = small_batch()
    sample = {"net_input": {name: value for name, value in batch.items() if name != "prev_output_tokens"}}
    found = {}
    for kind, options in ((SequenceGenerator, {}), (SequenceGeneratorWithAlignment, {"print_alignment": "hard"})):
        model = small_model()
        model.prepare_for_inference_(Namespace(generation=Namespace(beam=3, print_alignment=options)))
        generator = kind([model, copy.deepcopy(model)], small_dictionary(), beam_size=3, max_len_b=6, **options)
        found[kind] = generator.generate([model, model], sample)
    plain, aligned = found.values()
    for row, (one, other) in enumerate(zip(plain, aligned)):
        assert torch.equal(one[0]["tokens"], other[0]["tokens"])
        assert one[0]["attention"].numel() == 0 and other[0]["attention"].shape[0] == 4
        words = {source for source, _ in other[0]["alignment"]}
        assert words and words <= set(range(int(batch["src_lengths"][row]) - 1))


def test_generator_finds_what_a_search_without_cache_finds() -> None:
    model, batch = small_model().eval(), small_batch()
    sample = {"net_input": {name: value for name, value in batch.items() if name != "prev_output_tokens"}}
    generator = SequenceGenerator([model], small_dictionary(), beam_size=1, max_len_b=6)
    for row, found in enumerate(generator.generate([model], sample)):
        tokens = [2]
        encoded = model.encoder.reorder_encoder_out(encode(model, batch), torch.tensor([row]))
        for _ in range(len(found[0]["tokens"]) - 1):
            scores = model.decoder(torch.tensor([tokens]), encoder_out=encoded)[0][0, -1]
            scores[1] = float("-inf")  # never padding
            if len(tokens) == 1:
                scores[2] = float("-inf")  # nor an empty sentence
            tokens.append(int(scores.argmax()))
        assert tokens[1:] == found[0]["tokens"][:-1].tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_model_runs_in_half_precision(dtype: torch.dtype) -> None:
    model, batch = small_model().to(dtype).eval(), small_batch()
    scores, extra = model(**batch, attend_apart=(0, 1), watch_attention=True)
    assert scores.dtype == dtype and scores.isfinite().all()
    assert all(h.dtype == dtype and h.isfinite().all() for pair in extra["attended_apart"].values() for h in pair)
    torch.testing.assert_close(scores.float(), small_model().eval()(**batch)[0], rtol=0.1, atol=0.1)


def test_autocast_of_amp_reaches_every_gradient() -> None:
    model, batch = small_model(), small_batch()
    with torch.autocast("cpu", torch.bfloat16):
        scores, extra = model(**batch, attend_apart=(1,))
        (scores.float().pow(2).sum() + extra["attended_apart"][1][1].float().sum()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_dropout_is_everywhere_where_fairseqs_decoder_has_it() -> None:
    """How often each is called; attention's own are inside the fused kernels."""
    model, batch = small_model(dropout=0.1, activation_dropout=0.1).train(), small_batch()
    calls: list[list[str]] = [[], []]
    for decoder, called in zip((model.decoder, fairseqs(model).train()), calls):
        for name, module in decoder.named_modules():
            if isinstance(module, FairseqDropout) and "_attn." not in name:
                module.register_forward_hook(lambda *_, n=name, c=called: c.append(n))
        decoder(batch["prev_output_tokens"], encoder_out=encode(model, batch))
    assert calls[0] == calls[1] and len(calls[0]) == 1 + 2 * 4


def test_dropout_of_the_cross_attention_is_for_training_or_where_it_is_kept() -> None:
    """In all three looks; `--retain-dropout` keeps it in generation."""
    model, batch = small_model(attention_dropout=0.5), small_batch()
    encoded = encode(model, batch)
    attention = model.decoder.layers[0].encoder_attn
    query = torch.randn(4, 3, D)

    def looks() -> list[Tensor]:
        memory, mask = encoded["encoder_out"][0], encoded["encoder_padding_mask"][0]
        attended, _, text, regions = attention(query, memory, mask, 6, apart=True)
        return [attended, text, regions]

    def differ(others: list[Tensor]) -> list[bool]:
        return [not torch.allclose(look, other) for look, other in zip(looks(), others)]

    whole = attention.eval() and looks()
    assert differ(whole) == [False] * 3
    attention.dropout_module.apply_during_inference = True
    assert differ(whole) == [True] * 3
    attention.dropout_module.apply_during_inference = False
    attention.train()
    assert differ(whole) == [True] * 3


def test_activation_checkpointing_changes_no_gradient() -> None:
    gradients = []
    for flags in ({}, {"checkpoint_activations": True}):
        model = small_model(**flags).train()
        scores, extra = model(**small_batch(), attend_apart=(0, 1))
        (
            scores.pow(2).sum() + sum(h.pow(2).sum() for pair in extra["attended_apart"].values() for h in pair)
        ).backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*gradients)
    for offloads in (False, True):
        flags = {"checkpoint_activations": True, "offload_activations": offloads}
        assert small_model(**flags).decoder.layers[0].forward.args[1] is offloads  # fairseq's wrapper has it there


def test_layer_that_was_left_out_is_not_attended_apart() -> None:
    model = small_model(decoder_layerdrop=0.5).train()
    seen = set()
    for seed in range(12):
        torch.manual_seed(seed)
        seen.add(tuple(model(**small_batch(), attend_apart=(0, 1))[1]["attended_apart"]))
    assert seen == {(), (0,), (1,), (0, 1)}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"cross_self_attention": True}, "--cross-self-attention"),
        ({"no_cross_attention": True}, "--no-cross-attention"),
        ({"base_layers": 1}, "--base-layers"),
    ],
)
def test_flags_that_the_decoder_has_not_are_refused(flags: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=f"^a decoder over text and regions has no {named}: leave it out"):
        small_model(**flags)


def test_decoder_without_an_encoders_output_is_refused() -> None:
    dictionary = small_dictionary()
    decoder = TextAndRegionsDecoder(small_config(), dictionary, small_words(dictionary))
    with pytest.raises(ValueError, match="needs the output of their encoder, but has None"):
        decoder(torch.tensor([[2]]))
