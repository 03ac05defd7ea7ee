"""Both pretended devices catch what a GPU would refuse, and let through what it takes."""

import pkgutil
from collections.abc import Callable

import pytest
import torch
from devices.forgetting import FORGETFUL, forgetting, without_device
from devices.forwards import FORWARDS, run
from devices.pretended_device import fake_cuda, pretended_cuda
from torch import Tensor, nn

from visual_grounding.modules import weldon_pooling

DEVICES = pytest.mark.parametrize("device", [fake_cuda, pretended_cuda])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
REFUSED = "Expected all tensors to be on the same device"


class ForgottenDevice(nn.Module):
    """Adds positions without saying where they are."""

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors (T, D) -> (T, D)."""
        return vectors + torch.arange(len(vectors)).unsqueeze(1)


class ForgottenBuffer(nn.Module):
    """Keeps its scale as a plain attribute, which doesn't follow the module to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(3)

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors (T, 3) -> (T, 3)."""
        return vectors * self.scale


@DEVICES
@pytest.mark.parametrize("module", [ForgottenDevice, ForgottenBuffer])
def test_a_tensor_that_stays_on_the_cpu_is_caught(device: Callable, module: type[nn.Module]) -> None:
    module()(torch.ones(2, 3))  # nobody notices on the CPU
    with device(), pytest.raises(RuntimeError, match=REFUSED):
        module().to("cuda")(torch.ones(2, 3, device="cuda"))


@DEVICES
@DTYPES
@pytest.mark.parametrize("name", ["weldon_pooling", "joint_embedding_bag_weldon"])
def test_a_forward_that_forgets_the_device_of_its_positions_is_caught(
    device: Callable, dtype: torch.dtype, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.arange(R)`, where the pooling says `torch.arange(R, device=regions.device)`."""
    monkeypatch.setattr(weldon_pooling, "torch", without_device("arange"))
    run(name, dtype, "cpu")  # nobody notices on the CPU
    with device(), torch.no_grad(), pytest.raises(RuntimeError, match=REFUSED):
        run(name, dtype, "cuda")


@DTYPES
@pytest.mark.parametrize("target, name", [(each.target, each.forward) for each in FORGETFUL])
def test_a_forgetful_model_criterion_or_search_is_caught(
    target: str, name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, forgetting(pkgutil.resolve_name(target)))
    run(name, dtype, "cpu")  # nobody notices on the CPU
    with pretended_cuda(), torch.no_grad(), pytest.raises(RuntimeError, match=REFUSED):
        run(name, dtype, "cuda")


def test_the_default_device_of_a_call_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a forgotten device isn't missed."""
    monkeypatch.setitem(FORWARDS, "here", lambda dtype: (torch.get_default_device, ()))
    with pretended_cuda():
        assert run("here", torch.float32, "cuda").type == "cpu"


@DEVICES
@pytest.mark.parametrize(
    "mixed",
    [
        lambda ours, cpu: torch.cat([ours, cpu]),
        lambda ours, cpu: torch.where(ours > 0, ours, cpu),
        lambda ours, cpu: ours.masked_fill(cpu > 0, 0),
        lambda ours, cpu: cpu.masked_fill(ours > 0, 0),
        lambda ours, cpu: ours @ cpu.T,
        lambda ours, cpu: cpu.add_(ours),
    ],
)
def test_two_devices_in_one_operation_are_refused(device: Callable, mixed: Callable) -> None:
    with device(), pytest.raises(RuntimeError, match=REFUSED):
        mixed(torch.ones(2, 3, device="cuda"), torch.ones(2, 3))


@pytest.mark.parametrize(
    "mixed",
    [
        lambda ours, cpu: cpu.add_(ours),  # a sum that was begun on the CPU
        lambda ours, cpu: torch.stack([ours, cpu]),
        lambda ours, cpu: ours.view(1).index_select(0, cpu.long()),
    ],
)
def test_a_number_from_the_cpu_is_refused_where_a_device_takes_none(mixed: Callable) -> None:
    with pretended_cuda(), pytest.raises(RuntimeError, match=REFUSED):
        mixed(torch.tensor(2.0, device="cuda"), torch.tensor(0.0))


@DEVICES
def test_what_a_device_takes_is_taken(device: Callable) -> None:
    """A number from the CPU, an index from the CPU, and moving."""
    with device():
        vectors, number, index = torch.ones(2, 3, device="cuda"), torch.tensor(2.0), torch.tensor([1])
        assert (vectors * number).device.type == (number + vectors).device.type == vectors[index].device.type == "cuda"
        assert vectors.add_(number).device.type == "cuda"
        assert torch.zeros(2, 3).copy_(vectors).device.type == "cpu"
        assert vectors.cpu().to("cuda").device.type == "cuda"


def test_the_pretended_device_has_numbers_but_not_for_numpy() -> None:
    with pretended_cuda():
        vectors = torch.tensor([[1.0, 2.0], [0.0, 4.0]], device="cuda")
        assert vectors.nonzero().tolist() == [[0, 0], [0, 1], [1, 1]] and vectors.sum().item() == 7
        assert vectors[vectors > 1].tolist() == [2.0, 4.0]
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            vectors.numpy()
        assert vectors.cpu().numpy().tolist() == [[1.0, 2.0], [0.0, 4.0]]


def test_the_pretended_device_moves_modules_and_follows_autocast() -> None:
    with pretended_cuda():
        layer = nn.Linear(3, 2).cuda().half()
        assert layer.weight.dtype == torch.float16
        assert layer(torch.ones(1, 3, device="cuda", dtype=torch.float16)).device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16):
            assert layer.float()(torch.ones(1, 3, device="cuda")).dtype == torch.bfloat16


def test_the_pretended_device_ends() -> None:
    available = torch.cuda.is_available()
    with pretended_cuda():
        assert torch.cuda.is_available() and torch.ones(1, device="cuda").device.type == "cuda"
    assert torch.cuda.is_available() == available and torch.ones(1).device.type == "cpu"
