"""The simple recurrent unit: a recurrence so light that every matrix product is done for all steps at once.

Lei, Zhang, Wang, Dai, Artzi: Simple Recurrent Units for Highly Parallelizable Recurrence, EMNLP 2018, section 3.
VA names it as the text encoder of its retriever (§2.1).
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

# Assumption: the paper leaves the start of b_f open. At 0 a state forgets half at every step, so the output at the last
# word hardly knows the first ones; sigmoid(2) = 0.88 keeps a half over five words.
FORGET_BIAS = 2.0


class SRULayer(nn.Module):
    """One layer of simple recurrent units.

        f_t = sigmoid(W_f x_t + v_f * c_{t-1} + b_f)        forget gate
        c_t = f_t * c_{t-1} + (1 - f_t) * (W x_t)           state
        r_t = sigmoid(W_r x_t + v_r * c_{t-1} + b_r)        reset gate
        h_t = r_t * c_t + (1 - r_t) * x_t * alpha           highway

    x -> inputs, h -> returned, W, W_f, W_r -> the three blocks of `input_weight`, v -> `state_weight`, b -> `bias`.
    alpha = sqrt(1 + 2 exp(b_r at the start)) keeps the variance of h equal to that of x. Where input and output sizes
    differ, x in the last line is W_x x_t, a fourth block.

    Shapes:
        inputs: (T, B, input size)  time first
        returns: (T, B, D)
    """

    def __init__(
        self, input_size: int, output_size: int, reset_bias: float = 0.0, forget_bias: float = FORGET_BIAS
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.blocks = 3 if input_size == output_size else 4
        self.alpha = math.sqrt(1 + 2 * math.exp(reset_bias))
        self.input_weight = nn.Parameter(torch.empty(self.blocks * output_size, input_size))
        self.state_weight = nn.Parameter(torch.empty(2, output_size))
        self.bias = nn.Parameter(torch.zeros(2, output_size))
        # Uniform with variance 1 / input size, the paper's section 3.2; the state weights are one "row" of 1 input.
        nn.init.uniform_(self.input_weight, -math.sqrt(3 / input_size), math.sqrt(3 / input_size))
        nn.init.uniform_(self.state_weight, -math.sqrt(3 / output_size), math.sqrt(3 / output_size))
        nn.init.constant_(self.bias[0], forget_bias)
        nn.init.constant_(self.bias[1], reset_bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Run over all steps from c_0 = 0.

        Shapes:
            inputs: (T, B, input size)
            returns: (T, B, D)
        """
        # The recurrence runs in float32 under autocast: half precision would lose what it sums up over the steps.
        projected = functional.linear(inputs, self.input_weight).to(self.bias.dtype)  # (T, B, blocks * D)
        candidate, forget_input, reset_input, *rest = projected.split(self.output_size, dim=-1)
        highway = (rest[0] if rest else inputs.to(self.bias.dtype)) * self.alpha
        states, gates = [], []
        state = torch.zeros_like(candidate[0])
        for x, f, r in zip(
            candidate.unbind(), (forget_input + self.bias[0]).unbind(), (reset_input + self.bias[1]).unbind()
        ):
            forget = torch.sigmoid(torch.addcmul(f, self.state_weight[0], state))
            gates.append(torch.addcmul(r, self.state_weight[1], state))
            state = torch.lerp(x, state, forget)
            states.append(state)
        return torch.lerp(highway, torch.stack(states), torch.sigmoid(torch.stack(gates)))


class SRU(nn.Module):
    """Layers of simple recurrent units, one above the other, with dropout before each.

    Dropout masks are drawn once a sentence and shared by its steps, as the SRU paper does for recurrent models.

    Shapes:
        inputs: (T, B, input size)  time first; padding after the last real step doesn't change the real ones
        returns: (T, B, D)
    """

    def __init__(self, input_size: int, output_size: int, layers: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        sizes = [input_size] + [output_size] * layers
        self.layers = nn.ModuleList(SRULayer(before, after) for before, after in pairwise(sizes))
        self.dropout = dropout

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of the last layer at every step.

        Shapes:
            inputs: (T, B, input size)
            returns: (T, B, D)
        """
        hidden = inputs
        for layer in self.layers:
            mask = functional.dropout(torch.ones_like(hidden[0]), self.dropout, self.training)
            hidden = layer(hidden * mask)
        return hidden
