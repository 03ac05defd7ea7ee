"""The single stream: against a naive twin, with fused attention, and without what is absent."""

import pytest
import torch
from small_streams import LANGUAGES, SIZE, build_vtlm, region_inputs, stream_inputs
from torch.nn import functional

from visual_grounding import InputError
from visual_grounding.models.visual_stream import LanguageEmbedding, embedding_of


def naive(encoder, tokens, positions, languages, visual, mask):
    """Sentence by sentence: embeddings, then attention with an explicit softmax over what is there."""
    of_language = dict(zip(range(len(LANGUAGES)), encoder.embed_languages.parameters()))
    results = []
    for b in range(len(tokens)):
        rows = []
        for token, position, language in zip(tokens[b], positions[b], languages[b]):
            if token != 1:
                row = encoder.embed_tokens.weight[token] + encoder.embed_positions.weight[position]
                rows.append(encoder.layernorm_embedding(row + of_language[int(language)]))
        if visual is not None:
            for features, boxes, absent, masked in zip(
                *(visual[name][b].flatten(0, 1) for name in ("features", "boxes", "padding_mask", "masked"))
            ):
                if not absent:
                    region = encoder.image_embedding
                    seen = encoder.embed_tokens.weight[mask] if masked else region.feature(features.float()).relu()
                    rows.append(seen + region.box(boxes).relu() + region.language)
        x = torch.stack(rows)
        for layer in encoder.layers:
            attention, heads = layer.self_attn, layer.self_attn.num_heads
            q, k, v = (getattr(attention, f"{name}_proj")(x).view(len(x), heads, -1).transpose(0, 1) for name in "qkv")
            weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(dim=-1)
            attended = attention.out_proj((weights @ v).transpose(0, 1).flatten(1))
            x = layer.self_attn_layer_norm(x + attended)
            x = layer.final_layer_norm(x + layer.fc2(functional.gelu(layer.fc1(x))))
        results.append(x)
    return results


@pytest.mark.parametrize("images", [True, False])
def test_stream_agrees_with_naive_twin(images):
    encoder, inputs = build_vtlm().encoder, stream_inputs()
    visual = region_inputs() if images else None
    states, padding_mask, region_mask = encoder(**inputs, visual=visual, mask=12)
    expected = naive(encoder, *inputs.values(), visual, 12)
    assert states.shape == (7 + 4 * images, 2, 16) and region_mask.shape == (2, 4 * images)
    for b in range(2):
        torch.testing.assert_close(states[~padding_mask[b], b], expected[b], atol=1e-5, rtol=1e-5)
    assert torch.equal(padding_mask[:, 7:], region_mask)


def test_absent_regions_and_padding_change_nothing():
    encoder, inputs, visual = build_vtlm().encoder, stream_inputs(), region_inputs()
    before = encoder(**inputs, visual=visual, mask=12)[0]
    other = {name: value.clone() for name, value in visual.items()}
    for name in ("features", "boxes"):
        other[name][visual["padding_mask"]] = 100.0
    wider = {name: functional.pad(value, (0, 3), value=1 if name == "tokens" else 0) for name, value in inputs.items()}
    after = encoder(**wider, visual=other, mask=12)[0]
    absent = visual["padding_mask"].flatten(1)
    torch.testing.assert_close(after[:6], before[:6])
    torch.testing.assert_close(after[10:][~absent.T], before[7:][~absent.T])
    every = {**visual, "padding_mask": torch.ones_like(visual["padding_mask"])}
    torch.testing.assert_close(encoder(**inputs, visual=every)[0][:6], encoder(**inputs)[0][:6])


def test_states_are_normalised_at_the_end_where_layers_are_before_themselves():
    encoder = build_vtlm(encoder_normalize_before=True).encoder
    states, padding_mask, _ = encoder(**stream_inputs(), visual=region_inputs(), mask=12)
    seen = states.transpose(0, 1)[~padding_mask]  # (P, D); the norm's weight is 1, its bias 0
    torch.testing.assert_close(seen.mean(dim=1), torch.zeros(len(seen)), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.var(dim=1, unbiased=False), torch.ones(len(seen)), atol=1e-3, rtol=0)


def test_order_of_regions_does_not_matter():
    encoder, inputs, visual = build_vtlm().encoder, stream_inputs(), region_inputs()
    turned = {name: value.flip(1, 2) for name, value in visual.items()}
    before, after = (encoder(**inputs, visual=each, mask=12)[0] for each in (visual, turned))
    torch.testing.assert_close(before[:6], after[:6])
    torch.testing.assert_close(before[7:, 0][:3], after[7:, 0].flip(0)[:3])


def test_languages_and_positions_tell_words_apart():
    encoder, inputs = build_vtlm().encoder, stream_inputs()
    before = encoder(**inputs)[0]
    for name in ("languages", "positions"):
        assert not torch.allclose(before[0], encoder(**{**inputs, name: inputs[name] + (inputs[name] < 2)})[0][0])


def test_every_layer_reaches_the_fused_attention(monkeypatch):
    encoder, calls = build_vtlm().encoder.train(), []
    fused = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k))
    encoder(**stream_inputs(), visual=region_inputs(), mask=12)
    assert len(calls) == len(encoder.layers) == 2


@pytest.mark.parametrize("dropped", ["text", "regions", "attention"])
def test_each_dropout_works_where_it_is_named_and_in_training_alone(dropped):
    shares = {"dropout": "text", "visual_dropout": "regions", "attention_dropout": "attention"}
    encoder = build_vtlm(**{flag: 0.5 * (part == dropped) for flag, part in shares.items()}).encoder
    inputs, visual = stream_inputs(), region_inputs()
    looks = {
        "text": lambda: encoder.embed_text(**inputs),
        "regions": lambda: encoder.embed_regions(visual, 12)[0],
        "states": lambda: encoder(**inputs, visual=visual, mask=12)[0],
    }
    assert all(torch.equal(look(), look()) for look in looks.values())
    whole = looks[dropped]() if dropped in looks else None
    encoder.train()
    for part, look in looks.items():
        assert torch.equal(look(), look()) != (part in (dropped, "states")), part
    if whole is not None:
        kept = looks[dropped]()
        torch.testing.assert_close(kept[kept != 0], 2 * whole[kept != 0])


def test_regions_without_boxes_are_refused():
    visual = region_inputs()
    del visual["boxes"]
    with pytest.raises(InputError, match="regions enter the model with their boxes, but the feature store has none"):
        build_vtlm().encoder(**stream_inputs(), visual=visual)


def test_features_of_another_size_are_refused():
    visual = {**region_inputs(), "features": torch.ones(2, 2, 2, SIZE + 1)}
    with pytest.raises(InputError, match=f"features of size {SIZE}, but these have {SIZE + 1}"):
        build_vtlm().encoder(**stream_inputs(), visual=visual)


def test_embeddings_are_drawn_as_in_xlm():
    torch.manual_seed(0)
    weight = embedding_of(2000, 64, pad=1).weight
    assert not weight[1].any() and weight[2:].std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert build_vtlm().encoder.layernorm_embedding.eps == 1e-12


def test_weights_of_languages_have_their_names():
    embedding = LanguageEmbedding(["de", "to"], 4)
    assert sorted(embedding.state_dict()) == ["language_de", "language_to"]
    torch.testing.assert_close(embedding(torch.tensor([[1, 0]]))[0, 0], embedding.language_to)
    for name in ("", "zh.cn"):
        with pytest.raises(InputError, match=f"a name without a full stop, but one is {name!r}"):
            LanguageEmbedding(["en", name], 4)
