"""Selective attention: by hand, naive, and without images."""

import math

import pytest
import torch

from visual_grounding.modules.selective_attention import SelectiveAttention


def test_selective_attention_matches_hand_worked_example():
    # One region with value 8, so H_a = 8 whatever the query; the gate's bias ln 3 gives λ = 3/4: 0.25·2 + 0.75·8 = 6.5.
    fusion = SelectiveAttention(1)
    for layer in (fusion.attention.value, fusion.attention.output):
        layer.weight.data.fill_(1)
    fusion.text_gate.weight.data.zero_()
    fusion.image_gate.weight.data.zero_()
    fusion.text_gate.bias.data.fill_(math.log(3))
    result = fusion(torch.full((1, 1, 1), 2.0), torch.full((1, 1, 1), 8.0), torch.zeros(1, 1, dtype=torch.bool))
    assert result.item() == pytest.approx(6.5)


def test_selective_attention_agrees_with_naive_loop():
    torch.manual_seed(2)
    fusion = SelectiveAttention(4)
    attention = fusion.attention
    text, images, mask = torch.randn(3, 2, 4), torch.randn(2, 5, 4), torch.tensor([[0, 1, 0, 0, 1], [1] * 5]).bool()
    expected = text.clone()  # the second sentence has no image
    for t in range(3):
        h = text[t, 0]
        present = [images[0, m] for m in (0, 2, 3)]
        scores = torch.stack([attention.query(h) @ attention.key(image) / 2 for image in present])  # √d = 2
        weights = scores.exp() / scores.exp().sum()
        attended = attention.output(sum(w * attention.value(image) for w, image in zip(weights, present)))
        gate = torch.sigmoid(fusion.text_gate(h) + fusion.image_gate(attended))
        expected[t, 0] = (1 - gate) * h + gate * attended
    torch.testing.assert_close(fusion(text, images, mask), expected)
    torch.testing.assert_close(fusion(text, None, None), text)


def test_selective_attention_gradient_reaches_every_parameter():
    fusion = SelectiveAttention(4, heads=2)
    fusion(torch.randn(3, 2, 4), torch.randn(2, 5, 4), torch.zeros(2, 5, dtype=torch.bool)).pow(2).sum().backward()
    for name, parameter in fusion.named_parameters():
        # A bias on the keys moves all scores alike, and softmax doesn't see it.
        assert parameter.grad.abs().sum() > 0 or name == "attention.key.bias", name
