"""A softmax over very many classes for very many rows: its loss without all scores ever being in memory at once.

With 50,000 vokens the scores of 256 blocks of 126 pieces are 1.6 billion numbers, 6 GB in float32, and a loss that is
written down plainly keeps several such tensors until its gradient is there. Here the rows pass in chunks. A chunk's
gradient is computed beside its loss, while its scores are there, so none are kept, and none computed again.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

UNASKED = -1  # the class of what isn't asked for: no row of it comes here
_SCORES = 2**24  # of a chunk: 64 MB in float32, and as much again where products are in half precision
# In float16 a probability of one in millions would be 0, and gradients with it; the power of two is taken back later.
_FLOAT16_SCALE = 64.0


class Answers(NamedTuple):
    """How well rows were told their classes.

    Shapes:
        loss: () in float32, summed over the rows
        right: (P,) bool, where the highest score is that of the right class, the first of equal ones
    """

    loss: Tensor
    right: Tensor


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, classes: Tensor) -> Answers:
    """`cross_entropy(hidden weight^T + bias, classes)`, summed, and which rows are right; exact, gradients included.

        Σ_p log Σ_v exp(w_v·h_p + b_v) − (w_t·h_p + b_t),   t = classes_p

    Products have the precision of the weight, or of autocast where that is on; all else is float32. Gradients of
    gradients there are none.

    Shapes:
        hidden: (P, D);  weight: (V, D);  bias: (V,);  classes: (P,) in 0..V−1
        returns: () and (P,) bool

    >>> hidden, weight, bias = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [0.0]]), torch.zeros(2)
    >>> loss, right = linear_cross_entropy(hidden, weight, bias, torch.tensor([0, 1]))  # ln 2 each; the first of equals
    >>> round(loss.item(), 6), right.tolist()
    (1.386294, [True, False])
    """
    device = hidden.device.type
    autocast = torch.is_autocast_enabled(device)
    precision = torch.get_autocast_dtype(device) if autocast else torch.promote_types(hidden.dtype, weight.dtype)
    given = hidden, weight, bias
    if not torch.is_grad_enabled() or not any(each.requires_grad for each in given):
        return _by_chunks(*given, classes, precision, (False, False, False))[0]
    return Answers(*_LossWithGradients.apply(*given, classes, precision))


class _LossWithGradients(torch.autograd.Function):
    """The loss, whose gradients are there already when they are asked for."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, classes: Tensor, precision: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """hidden (P, D), weight (V, D), bias (V,), classes (P,) -> (), (P,)."""
        answers, gradients = _by_chunks(hidden, weight, bias, classes, precision, ctx.needs_input_grad[:3])
        ctx.save_for_backward(*gradients)
        ctx.precisions = hidden.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(answers.right)
        return answers.loss, answers.right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """() -> (P, D), (V, D), (V,)."""
        parts = zip(ctx.saved_tensors, ctx.precisions)
        # Out of place: a graph that is kept may ask twice.
        return *(None if part is None else (part * factor).to(dtype) for part, dtype in parts), None, None


def _are_first(scores: Tensor, own: Tensor, highest: Tensor) -> Tensor:
    """Whether a row's own class has its highest score, the first of equal ones.

    Where the highest scores are is asked of those rows alone whose own class may be it: on a CPU it takes four times as
    long as how high they are.

    Shapes:
        scores: (C, V);  own: (C,);  highest: (C,) bool, whether the own class has a score as high
        returns: (C,) bool
    """
    if highest.device.type != "cpu":
        return scores.argmax(dim=1) == own
    right = highest.clone()
    right[highest] = scores[highest].argmax(dim=1) == own[highest]
    return right


def _by_chunks(
    hidden: Tensor, weight: Tensor, bias: Tensor, classes: Tensor, precision: torch.dtype, wanted: tuple[bool, ...]
) -> tuple[Answers, tuple[Tensor | None, ...]]:
    """The answers, and the gradients of their loss that are wanted: of hidden, weight, bias.

    Shapes:
        hidden: (P, D);  weight: (V, D);  bias: (V,);  classes: (P,)
        returns: () and (P,);  (P, D), (V, D), (V,)
    """
    exact = torch.promote_types(precision, torch.float32)
    scale = _FLOAT16_SCALE if precision == torch.float16 else 1.0
    with torch.autocast(hidden.device.type, enabled=False), torch.no_grad():
        multiplied, bias = weight.to(precision), bias.to(exact)
        loss = hidden.new_zeros((), dtype=exact)
        right = torch.empty_like(classes, dtype=torch.bool)
        of_hidden, of_weight, of_bias = (
            torch.zeros_like(each, dtype=exact) if want else None for each, want in zip((hidden, weight, bias), wanted)
        )
        size = max(1, _SCORES // len(weight))
        for start in range(0, len(hidden), size):
            rows, own = hidden[start : start + size], classes[start : start + size]  # (C, D), (C,)
            rows = rows.to(precision)
            if precision == exact:
                scores = torch.addmm(bias, rows, multiplied.t())  # (C, V)
            else:
                scores = torch.mm(rows, multiplied.t()).to(exact).add_(bias)
            highest = scores.amax(dim=1)  # (C,)
            owns = scores.gather(1, own.unsqueeze(1)).squeeze(1)  # (C,)
            right[start : start + size] = _are_first(scores, own, owns == highest)
            weights = scores.sub_(highest.unsqueeze(1)).exp_()  # (C, V), the softmax times its sum
            total = weights.sum(dim=1)  # (C,)
            loss += (total.log() + highest - owns).sum()
            # The gradient of the scores is softmax − one: both parts apart, so that the second needs no product.
            share = total.reciprocal()  # (C,)
            if of_bias is not None:
                of_bias.addmv_(weights.t(), share)
                of_bias.index_add_(0, own, -torch.ones_like(share))
            weights = weights.to(precision)
            if of_hidden is not None:
                drawn = torch.mm(weights, multiplied).to(exact) * share.unsqueeze(1)  # (C, D)
                of_hidden[start : start + size] = drawn - weight[own].to(exact)
            if of_weight is not None:
                shared = (rows.to(exact) * (share * scale).unsqueeze(1)).to(precision)  # (C, D)
                if precision == exact:
                    of_weight.addmm_(weights.t(), shared)
                else:
                    of_weight.add_(torch.mm(weights.t(), shared), alpha=1 / scale)
                of_weight.index_add_(0, own, -rows.to(exact))
        return Answers(loss, right), (of_hidden, of_weight, of_bias)
