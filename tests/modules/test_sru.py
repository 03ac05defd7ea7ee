"""Simple recurrent units: a hand-worked step, a naive twin, padding, gradients."""

import math

import torch
from torch import Tensor

from visual_grounding.modules.sru import SRU, SRULayer


def naive_layer(layer: SRULayer, inputs: Tensor) -> Tensor:
    """The paper's equations, one step, one sentence and one channel after the other."""
    steps, batch, _ = inputs.shape
    size = layer.output_size
    outputs = torch.zeros(steps, batch, size)
    for b in range(batch):
        for d in range(size):
            c = torch.tensor(0.0)
            for t in range(steps):
                x = inputs[t, b]
                rows = [layer.input_weight[block * size + d] @ x for block in range(layer.blocks)]
                f = torch.sigmoid(rows[1] + layer.state_weight[0, d] * c + layer.bias[0, d])
                r = torch.sigmoid(rows[2] + layer.state_weight[1, d] * c + layer.bias[1, d])
                c = f * c + (1 - f) * rows[0]
                highway = rows[3] if layer.blocks == 4 else x[d]
                outputs[t, b, d] = r * c + (1 - r) * highway * layer.alpha
    return outputs


def test_sru_layer_agrees_with_two_steps_worked_by_hand() -> None:
    layer = SRULayer(1, 1, forget_bias=0.0)
    with torch.no_grad():
        layer.input_weight.copy_(torch.tensor([[2.0], [0.0], [0.0]]))  # W = 2, W_f = W_r = 0
        layer.state_weight.copy_(torch.tensor([[0.0], [math.log(3)]]))  # v_f = 0, v_r = log 3
    # Both gates are 1/2 while the state is 0. alpha = sqrt(1 + 2 e^0) = sqrt 3.
    # x = 1: f = 1/2, c = 1/2 * 0 + 1/2 * 2 = 1, r = 1/2, h = 1/2 * 1 + 1/2 * 1 * sqrt 3
    # x = 3: f = 1/2, c = 1/2 * 1 + 1/2 * 6 = 7/2, r = sigmoid(log 3 * 1) = 3/4, h = 3/4 * 7/2 + 1/4 * 3 * sqrt 3
    outputs = layer(torch.tensor([[[1.0]], [[3.0]]])).flatten()
    root = math.sqrt(3)
    torch.testing.assert_close(outputs, torch.tensor([0.5 + 0.5 * root, 2.625 + 0.75 * root]))


def test_sru_layer_agrees_with_its_naive_twin_for_both_highways() -> None:
    torch.manual_seed(0)
    for input_size, output_size in ((4, 4), (3, 5)):
        layer = SRULayer(input_size, output_size, reset_bias=-1.0)
        torch.nn.init.normal_(layer.bias)
        inputs = torch.randn(6, 2, input_size)
        torch.testing.assert_close(layer(inputs), naive_layer(layer, inputs))


def test_sru_real_steps_do_not_change_when_padding_follows() -> None:
    torch.manual_seed(0)
    sru = SRU(3, 4, layers=3)
    inputs = torch.randn(5, 2, 3)
    padded = torch.cat([inputs, 100 * torch.randn(4, 2, 3)])
    torch.testing.assert_close(sru(padded)[:5], sru(inputs))


def test_sru_gradient_reaches_every_parameter() -> None:
    sru = SRU(3, 4, layers=2, dropout=0.1)
    sru(torch.randn(3, 2, 3)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in sru.parameters())


def test_sru_dropout_is_off_in_evaluation_and_shared_by_all_steps_in_training() -> None:
    sru = SRU(8, 8, layers=1, dropout=0.5)
    inputs = torch.randn(4, 2, 8)
    assert not torch.equal(sru(inputs), sru(inputs))
    sru.eval()
    assert torch.equal(sru(inputs), sru(inputs))
    sru.train()
    with torch.no_grad():  # candidate and gates off: what remains is the highway, 1/2 * alpha * masked input
        sru.layers[0].input_weight.zero_()
        sru.layers[0].state_weight.zero_()
        dropped = sru(torch.ones(6, 2, 8)) == 0
    assert dropped.any() and not dropped.all()
    assert (dropped == dropped[:1]).all()


def test_sru_runs_under_autocast():
    sru = SRU(4, 4, 2)
    inputs = torch.randn(5, 3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = sru(inputs)
    torch.testing.assert_close(result.float(), sru(inputs), atol=0.05, rtol=0.05)
    assert result.isfinite().all()
