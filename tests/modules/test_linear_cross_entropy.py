"""The loss in chunks: by hand, against torch's own, its gradients, how much memory it takes, half precision."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from visual_grounding.modules import linear_cross_entropy as module
from visual_grounding.modules.linear_cross_entropy import linear_cross_entropy


def given(rows: int = 11, classes: int = 7, size: int = 5, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """hidden (P, D), weight (V, D), bias (V,) that want gradients, and classes (P,)."""
    torch.manual_seed(1)
    drawn = torch.randn(rows, size), torch.randn(classes, size), torch.randn(classes)
    return [*(each.to(dtype).requires_grad_() for each in drawn), torch.randint(classes, (rows,))]


def naive(hidden: Tensor, weight: Tensor, bias: Tensor, classes: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(hidden, weight, bias).float(), classes, reduction="sum")


def gradients(loss: Tensor, parts: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(3 * loss, parts[:3]))


def test_example_by_hand():
    """Scores (1, 0) and (0, 2) of two rows, both of class 0: ln(1 + e^-1) = 0.3133, and ln(1 + e^2) = 2.1269.

    Softmax − one of the rows: (−0.2689, 0.2689) and (−0.8808, 0.8808). Those are the rows of the bias's gradient, and
    times the weights, 1 and 0 in row 0 and column 0, the hidden ones.
    """
    hidden = torch.tensor([[1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    weight, bias = torch.eye(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    loss, right = linear_cross_entropy(hidden, weight, bias, torch.tensor([0, 0]))
    assert loss.item() == pytest.approx(0.3133 + 2.1269, abs=1e-4) and right.tolist() == [True, False]
    loss.backward()
    torch.testing.assert_close(hidden.grad, torch.tensor([[-0.2689, 0.2689], [-0.8808, 0.8808]]), atol=1e-4, rtol=0)
    torch.testing.assert_close(bias.grad, torch.tensor([-1.1497, 1.1497]), atol=1e-4, rtol=0)
    torch.testing.assert_close(weight.grad, torch.tensor([[-0.2689, -1.7616], [0.2689, 1.7616]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("rows_at_once", [1, 3, 11, 50])
def test_loss_gradients_and_hits_are_those_of_torch(monkeypatch, rows_at_once):
    monkeypatch.setattr(module, "_SCORES", 7 * rows_at_once)
    parts = given()
    loss, right = linear_cross_entropy(*parts)
    torch.testing.assert_close(loss, naive(*parts), rtol=1e-6, atol=0)
    for own, expected in zip(gradients(loss, parts), gradients(naive(*parts), parts)):
        torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-6)
    hidden, weight, bias, classes = parts
    assert torch.equal(right, functional.linear(hidden, weight, bias).argmax(dim=1) == classes)
    assert 0 < right.sum() < len(right)


def test_gradients_are_exact_in_double_precision(monkeypatch):
    monkeypatch.setattr(module, "_SCORES", 20)
    hidden, weight, bias, classes = given(rows=5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *parts: linear_cross_entropy(*parts, classes).loss, (hidden, weight, bias))


def test_scores_of_thousands_make_no_infinity():
    hidden, weight, bias, classes = given()
    parts = [hidden.detach().mul(1e4).requires_grad_(), weight, bias, classes]
    loss, _ = linear_cross_entropy(*parts)
    torch.testing.assert_close(loss, naive(*parts))
    assert all(each.isfinite().all() for each in gradients(loss, parts))


def test_graph_that_is_kept_gives_the_same_gradients_twice():
    parts = given()
    loss = linear_cross_entropy(*parts).loss
    first = torch.autograd.grad(loss, parts[:3], retain_graph=True)
    assert all(torch.equal(*pair) for pair in zip(first, torch.autograd.grad(loss, parts[:3])))


def test_only_wanted_gradients_are_made_and_in_evaluation_there_is_no_graph():
    hidden, weight, bias, classes = given()
    loss = linear_cross_entropy(hidden, weight.detach(), bias.detach(), classes).loss
    assert torch.autograd.grad(loss, hidden)[0].shape == hidden.shape
    with torch.no_grad():
        evaluated = linear_cross_entropy(hidden, weight, bias, classes)
    assert evaluated.loss.grad_fn is None and not evaluated.loss.requires_grad
    assert torch.equal(evaluated.loss, loss.detach())


def test_no_rows_are_a_loss_of_0_with_gradients_of_0():
    parts = given(rows=0)
    loss, right = linear_cross_entropy(*parts)
    assert loss.item() == 0 and right.shape == (0,)
    assert all(not each.any() for each in gradients(loss, parts))


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that is made, and all products' multiplications."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = self.multiplied = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        made = function(*arguments, **(options or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, Tensor) and function is not torch.ops.aten.t.default:
                self.numbers = max(self.numbers, each.numel())
        if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm_.default, torch.ops.aten.addmm.default):
            one, other = [each for each in arguments if isinstance(each, Tensor) and each.dim() == 2][-2:]
            self.multiplied += one.shape[0] * one.shape[1] * other.shape[1]
        return made


def test_no_tensor_is_larger_than_a_chunk_or_the_weight_and_no_product_is_made_twice(monkeypatch):
    """2,000 rows of 500 classes are a million scores; a chunk here has 20,000 at most, the weight 4,000."""
    monkeypatch.setattr(module, "_SCORES", 20_000)
    parts = given(rows=2000, classes=500, size=8)
    with Largest() as plain:
        gradients(naive(*parts), parts)
    with Largest() as chunked:
        gradients(linear_cross_entropy(*parts).loss, parts)
    with Largest() as evaluated, torch.no_grad():
        linear_cross_entropy(*parts)
    assert plain.numbers == 1_000_000 and chunked.numbers == evaluated.numbers == 20_000
    assert plain.multiplied == chunked.multiplied == 3 * 2000 * 500 * 8 == 3 * evaluated.multiplied


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("how", ["autocast", "half"])
def test_half_precision_is_near_to_float32(dtype, how):
    """The loss is off by the rounding of the products alone; gradients have the precision of what they are of."""
    wanted, parts = given(rows=40, classes=30, size=16), given(rows=40, classes=30, size=16)
    if how == "half":
        parts = [*(each.detach().to(dtype).requires_grad_() for each in parts[:3]), parts[3]]
    with torch.autocast("cpu", dtype, enabled=how == "autocast"):
        loss, right = linear_cross_entropy(*parts)
    coarse, exact = torch.finfo(dtype).eps, linear_cross_entropy(*wanted)
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(exact.loss.item(), rel=coarse)
    assert right.float().mean().item() == pytest.approx(exact.right.float().mean().item(), abs=0.1)
    for own, expected, part in zip(gradients(loss, parts), gradients(exact.loss, wanted), parts):
        assert own.dtype == part.dtype
        assert (own.float() - expected).norm() < 2 * coarse * expected.norm()


def test_gradients_of_rare_classes_survive_float16():
    """Of 60,000 classes, all alike, each has a probability of 1.7e-5, times 0.01: below what float16 can hold."""
    hidden = torch.full((4, 2), 0.01, dtype=torch.float16, requires_grad=True)
    weight = torch.zeros(60_000, 2, dtype=torch.float16, requires_grad=True)
    bias = torch.zeros(60_000, dtype=torch.float16)
    loss, _ = linear_cross_entropy(hidden, weight, bias, torch.tensor([0, 1, 2, 3]))
    (own,) = torch.autograd.grad(loss * 1024, weight)  # as a loss that is scaled
    assert own[9, 0].item() == pytest.approx(1024 * 4 * 0.01 / 60_000, rel=0.01)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_first_of_equal_scores_is_right_however_it_is_computed(device: str) -> None:
    """On a GPU, which no row is looked at apart."""
    scores = torch.tensor([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0], [0.0, 3.0, 3.0], [1.0, 2.0, 3.0]])
    own = torch.tensor([1, 0, 2, 0])
    highest = scores.gather(1, own[:, None])[:, 0] == scores.max(dim=1).values
    asked: Any = highest if device == "cpu" else SimpleNamespace(device=torch.device(device))
    assert module._are_first(scores, own, asked).tolist() == [True, True, False, False]
