"""Heads of understanding: the states that are asked, the losses by hand (doctests), dropout in training alone."""

import torch

from visual_grounding.modules.prediction_head import PredictionHead, answer_loss, states_at

STATES = torch.arange(24.0).view(2, 4, 3)  # (B, T', D)


def test_a_sentence_is_its_first_state():
    assert torch.equal(states_at(STATES, None, 1), STATES[:, 0])


def test_words_are_at_their_first_pieces():
    found = states_at(STATES, torch.tensor([[0, 2, -1], [1, -1, -1]]), 1)
    assert torch.equal(found[0], STATES[0, [1, 3, 0]]) and torch.equal(found[1], STATES[1, [2, 0, 0]])
    assert torch.equal(states_at(STATES, torch.tensor([2, -1]), 1), torch.stack([STATES[0, 3], STATES[1, 0]]))


def test_the_head_is_linear_and_drops_in_training_alone():
    head = PredictionHead(3, 2, dropout=0.5)
    assert head.output.weight.any() and not head.output.bias.any()  # at first no class is likelier
    with torch.no_grad():
        head.output.bias.fill_(1)
    expected = STATES @ head.output.weight.T + 1
    assert torch.allclose(head.eval()(STATES), expected)
    torch.manual_seed(0)
    assert not torch.allclose(head.train()(STATES), expected)


def test_tags_without_an_answer_are_left_out_of_loss_and_gradient():
    outputs = torch.randn(1, 3, 4, requires_grad=True)
    target = torch.tensor([[2, -2, -1]])
    loss, count = answer_loss(outputs, target, values=False)
    assert count == 1 and torch.allclose(loss, -outputs[0, 0].log_softmax(-1)[2])
    loss.backward()
    assert outputs.grad[0, 0].abs().sum() > 0 and not outputs.grad[0, 1:].any()


def test_nothing_to_answer_is_a_loss_of_zero():
    outputs = torch.randn(2, 3, requires_grad=True)
    loss, count = answer_loss(outputs, torch.tensor([-1, -1]), values=False)
    loss.backward()
    assert (loss.item(), count) == (0, 0) and not outputs.grad.any()
