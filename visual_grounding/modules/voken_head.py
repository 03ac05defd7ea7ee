"""Voken classification (VOK §2.2): which image goes with a token, of all that there are."""

from torch import Tensor, nn
from torch.nn import functional

from ..errors import InputError
from .linear_cross_entropy import UNASKED, Answers, linear_cross_entropy

HEADS = ("linear", "deep")


class VokenHead(nn.Module):
    """The voken of each token, from the language model's state of it.

        p_i(v | s) = softmax_v(W h_i + b)
        L = − Σ_i log p_i(v(w_i; s) | s)      (VOK §2.2)

    W, b -> `output`, h -> `hidden`. The deep head of the paper's code has a linear layer, GELU and LayerNorm before
    that, as a masked language model's head has, but of its own. A token without a voken isn't looked at.

    Args:
        size: D of the states.
        vokens: V, how many there are.
        kind: one of `HEADS`: "linear" as in the paper, or "deep" as in its code.
        epsilon: of LayerNorm.
        spread: standard deviation of the weights that it begins with.

    Shapes:
        hidden: (..., D);  vokens: (...), −1 where there is none
        returns: () the summed loss;  (P,) bool, which of the P tokens with a voken are right, in their order

    Raises:
        InputError: there is no such kind, as a checkpoint may say.
    """

    def __init__(
        self, size: int, vokens: int, kind: str = "linear", epsilon: float = 1e-12, spread: float = 0.02
    ) -> None:
        super().__init__()
        if kind not in HEADS:
            raise InputError(f"the voken head should be {' or '.join(HEADS)}, but is {kind!r:.80}.", "voken_head")
        self.transform = nn.Sequential()
        if kind == "deep":
            self.transform = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size, eps=epsilon))
        self.output = nn.Linear(size, vokens)
        for layer in (*self.transform, self.output):
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=spread)
                nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor, vokens: Tensor) -> Answers:
        """hidden (..., D), vokens (...) -> (), (P,)."""
        there = vokens != UNASKED
        states = self.transform(hidden[there])  # (P, D)
        return linear_cross_entropy(states, self.output.weight, self.output.bias, vokens[there])

    def scores(self, hidden: Tensor) -> Tensor:
        """What the softmax is taken of, for a few tokens: all of it is in memory.

        Shapes:
            hidden: (..., D)
            returns: (..., V)
        """
        return functional.linear(self.transform(hidden), self.output.weight, self.output.bias)
