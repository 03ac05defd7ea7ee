"""The same forwards and commands on a real CUDA device, against the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch
from devices.chains import CHAINS
from devices.forwards import FORWARDS, run
from devices.test_forwards import PRECISIONS, tensors_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("name", FORWARDS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_forward_gives_on_a_cuda_device_nearly_what_it_gives_on_the_cpu(name: str, precision: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        with torch.no_grad():
            found.append([tensor.float().cpu() for tensor in tensors_of(run(name, PRECISIONS[precision], device))])
    if name == "scaled_network":  # what it is scaled by comes from each device's own random numbers
        return
    for theirs, ours in zip(*found, strict=True):
        bound = (1e-4 if precision == "float32" else 0.05) * float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 + bound, equal_nan=True)


@pytest.mark.parametrize("name", FORWARDS)
def test_forward_can_be_differentiated_on_a_cuda_device(name: str) -> None:
    """Under autocast, as `--amp` trains; what is made of no weights has nothing to differentiate."""
    with torch.autocast("cuda", torch.float16):
        found = tensors_of(run(name, torch.float32, "cuda"))
    assert found
    learning = [tensor for tensor in found if tensor.requires_grad]
    if learning:
        sum(tensor.float().sum() for tensor in learning).backward()


@pytest.mark.parametrize("name", CHAINS)
def test_chain_gives_on_a_cuda_device_nearly_what_it_gives_on_the_cpu(name: str, tmp_path: Path) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        (tmp_path / device).mkdir()
        found[device] = CHAINS[name](tmp_path / device, device)
    for ours, theirs in zip(found["cuda"], found["cpu"], strict=True):
        assert ours.shape == theirs.shape
        # Rounding may swap two images that are equally near, or one word of a translation by random weights.
        different = ~np.isclose(ours.astype(float), theirs.astype(float), rtol=2e-2, atol=2e-2)
        assert different.mean() <= (0.0 if theirs.dtype.kind == "f" else 0.1), (name, different.mean())
