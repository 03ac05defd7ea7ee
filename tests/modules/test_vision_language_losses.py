"""The losses of VLP's pre-training: by hand, naive, of nothing."""

import math

import pytest
import torch

from visual_grounding.modules.vision_language_losses import masked_word_loss, paired_image_loss


def test_masked_word_loss_matches_hand_worked_example():
    """softmax (1, 3) / 4 -> −ln 1/4;  (1, 1) / 2 -> −ln 1/2: the mean of ln 4 and ln 2."""
    logits = torch.tensor([[0.0, math.log(3)], [5.0, 5.0]])
    assert masked_word_loss(logits, torch.tensor([0, 1])).item() == pytest.approx(1.5 * math.log(2))


def test_paired_image_loss_matches_hand_worked_example():
    """σ(ln 3) = 3/4: own gives −ln 3/4, another's −ln 1/4; the third has no image."""
    logits = torch.full((3,), math.log(3))
    expected = (math.log(4 / 3) + math.log(4)) / 2
    assert paired_image_loss(logits, torch.tensor([1, 0, -1])).item() == pytest.approx(expected)


def test_losses_agree_with_naive_loops():
    torch.manual_seed(1)
    logits, words = torch.randn(7, 5), torch.randint(5, (7,))
    expected = sum(-math.log(float(row.softmax(0)[word])) for row, word in zip(logits, words)) / 7
    assert masked_word_loss(logits, words).item() == pytest.approx(expected, abs=1e-5)
    pairs = [1, 0, -1, 0, 1, 1, -1]
    terms = []
    for logit, paired in zip(logits[:, 0].tolist(), pairs):
        own = 1 / (1 + math.exp(-logit))
        terms += [] if paired < 0 else [-math.log(own if paired else 1 - own)]
    assert paired_image_loss(logits[:, 0], torch.tensor(pairs)).item() == pytest.approx(sum(terms) / 5, abs=1e-5)


def test_nothing_to_predict_is_a_loss_of_0_with_a_gradient_of_0():
    logits = torch.randn(3, requires_grad=True)
    loss = paired_image_loss(logits, torch.full((3,), -1)) + masked_word_loss(
        logits[None, :][:0], torch.tensor([]).long()
    )
    loss.backward()
    assert loss.item() == 0 and not logits.grad.any()


def test_half_precision_is_summed_in_float32():
    logits = torch.full((4000,), 60.0).half()
    assert paired_image_loss(logits, torch.zeros(4000).long()).item() == pytest.approx(60)
    assert masked_word_loss(torch.tensor([[40.0, 0.0]] * 4000).half(), torch.ones(4000).long()).item() == pytest.approx(
        40
    )
