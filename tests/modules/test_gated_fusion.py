"""Gated fusion: by hand, naive, and without images."""

import math

import pytest
import torch

from visual_grounding.modules.gated_fusion import GatedFusion, mean_of_present


def test_mean_of_present_matches_hand_worked_example():
    images = torch.tensor([[[2.0], [4.0], [100.0]], [[1.0], [1.0], [1.0]]])
    mask = torch.tensor([[False, False, True], [True, True, True]])
    torch.testing.assert_close(mean_of_present(images, mask), torch.tensor([[3.0], [0.0]]))


@pytest.mark.parametrize(("interpolate", "expected"), [(False, 2 + 0.75 * 8), (True, 0.25 * 2 + 0.75 * 8)])
def test_gated_fusion_matches_hand_worked_example(interpolate, expected):
    # h = 2, v = mean(6, 10) = 8; W = 0, U = 0, bias = ln 3, so the gate is 3/4.
    fusion = GatedFusion(1, interpolate)
    fusion.image_gate.weight.data.zero_()
    fusion.text_gate.weight.data.zero_()
    fusion.text_gate.bias.data.fill_(math.log(3))
    result = fusion(torch.full((1, 1, 1), 2.0), torch.tensor([[[6.0], [10.0]]]), torch.zeros(1, 2, dtype=torch.bool))
    assert result.item() == pytest.approx(expected)


@pytest.mark.parametrize("interpolate", [False, True])
def test_gated_fusion_agrees_with_naive_loop(interpolate):
    torch.manual_seed(1)
    fusion = GatedFusion(4, interpolate)
    text, images, mask = torch.randn(5, 3, 4), torch.randn(3, 2, 4), torch.tensor([[0, 0], [0, 1], [1, 1]]).bool()
    expected = torch.empty_like(text)
    for b in range(3):
        present = [images[b, m] for m in range(2) if not mask[b, m]]
        for t in range(5):
            h = text[t, b]
            if not present:
                expected[t, b] = h
                continue
            v = sum(present) / len(present)
            gate = torch.sigmoid(fusion.image_gate.weight @ v + fusion.text_gate.weight @ h + fusion.text_gate.bias)
            expected[t, b] = (1 - gate) * h + gate * v if interpolate else h + gate * v
    torch.testing.assert_close(fusion(text, images, mask), expected)
    torch.testing.assert_close(fusion(text, None, None), text)


def test_gated_fusion_gradient_reaches_every_parameter():
    fusion = GatedFusion(4)
    fusion(torch.randn(3, 2, 4), torch.randn(2, 2, 4), torch.zeros(2, 2, dtype=torch.bool)).pow(2).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in fusion.parameters())
