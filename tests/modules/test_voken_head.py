"""Voken classification: by hand, against a loop over tokens, tokens without a voken, both heads."""

import math

import pytest
import torch
from torch.nn import functional

from visual_grounding.errors import InputError
from visual_grounding.modules.voken_head import HEADS, VokenHead


def head(kind: str, size: int = 6, vokens: int = 9) -> VokenHead:
    torch.manual_seed(1)
    made = VokenHead(size, vokens, kind)
    with torch.no_grad():
        for weight in made.parameters():  # norms and biases, too
            weight.normal_()
    return made


def test_a_head_of_another_name_is_refused():
    with pytest.raises(InputError, match="the voken head should be linear or deep, but is 'Linear'"):
        VokenHead(1, 2, "Linear")


def test_example_by_hand():
    """Scores (0, ln 3) of the first token, whose voken is 1: 3/4; of the second (0, 0), whose voken is 0: 1/2.

    − ln 3/4 − ln 1/2 = ln 8/3. The third has no voken.
    """
    made = VokenHead(1, 2)
    with torch.no_grad():
        made.output.weight.copy_(torch.tensor([[0.0], [math.log(3)]]))
    loss, right = made(torch.tensor([[[1.0], [0.0], [5.0]]]), torch.tensor([[1, 0, -1]]))
    assert loss.item() == pytest.approx(math.log(8 / 3)) and right.tolist() == [True, True]


@pytest.mark.parametrize("kind", HEADS)
def test_loss_is_that_of_a_loop_over_the_tokens(kind):
    made, hidden = head(kind).requires_grad_(False), torch.randn(3, 4, 6)
    vokens = torch.randint(-3, 9, (3, 4)).clamp(min=-1)
    loss, right = made(hidden, vokens)
    expected, hits = 0.0, []
    for row in range(3):
        for place in range(4):
            if vokens[row, place] >= 0:
                states = hidden[row, place]
                if kind == "deep":
                    inner, _, norm = made.transform
                    states = functional.gelu(inner.weight @ states + inner.bias)
                    spread = states.var(unbiased=False) + norm.eps
                    states = (states - states.mean()) / spread.sqrt() * norm.weight + norm.bias
                scores = made.output.weight @ states + made.output.bias
                expected -= float(scores.log_softmax(dim=0)[vokens[row, place]])
                hits.append(bool(scores.argmax() == vokens[row, place]))
    assert 0 < len(hits) < 12 and right.tolist() == hits
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(
        functional.cross_entropy(made.scores(hidden).flatten(0, 1), vokens.flatten(), ignore_index=-1, reduction="sum"),
        loss,
    )


@pytest.mark.parametrize("kind", HEADS)
def test_a_gradient_reaches_every_parameter_and_none_the_tokens_without_a_voken(kind):
    made, hidden = head(kind), torch.randn(2, 3, 6, requires_grad=True)
    made(hidden, torch.tensor([[1, -1, 2], [-1, -1, 3]])).loss.backward()
    assert all(weight.grad.abs().sum() > 0 for weight in made.parameters())
    assert (hidden.grad.abs().sum(dim=-1) > 0).tolist() == [[True, False, True], [False, False, True]]


def test_tokens_without_a_voken_are_not_even_looked_at():
    hidden = torch.full((1, 2, 6), float("nan"))
    hidden[0, 0] = 1.0
    loss, right = head("deep")(hidden, torch.tensor([[3, -1]]))
    assert loss.isfinite() and len(right) == 1


def test_it_begins_small_and_without_biases():
    torch.manual_seed(1)
    made = VokenHead(64, 500, "deep")
    assert made.output.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not made.output.bias.any() and not made.transform[0].bias.any()


def test_norm_of_the_deep_head_has_the_epsilon_that_is_given():
    assert VokenHead(4, 3, "deep", epsilon=0.5).transform[2].eps == 0.5
