"""Whole commands on a CUDA device that isn't there give what they give on the CPU."""

import pkgutil
from pathlib import Path

import numpy as np
import pytest
from devices.chains import CHAINS
from devices.forgetting import FORGETFUL, forgetting, without_device
from devices.pretended_device import pretended_cuda

from visual_grounding.modules import weldon_pooling

REFUSED = "Expected all tensors to be on the same device"
NEARLY = {"extraction_in_half_precision": 0.1}  # what a device rounds is its own choice there


@pytest.mark.parametrize("name", CHAINS)
def test_chain_gives_on_a_pretended_cuda_device_what_it_gives_on_the_cpu(name: str, tmp_path: Path) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        (tmp_path / device).mkdir()
        if device == "cpu":
            found[device] = CHAINS[name](tmp_path / device, device)
        else:
            with pretended_cuda():
                found[device] = CHAINS[name](tmp_path / device, device)
    assert found["cpu"] and len(found["cpu"]) == len(found["cuda"])
    for ours, theirs in zip(found["cuda"], found["cpu"]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=NEARLY.get(name, 1e-4))


@pytest.mark.parametrize("target, name", [(each.target, each.chain) for each in FORGETFUL])
def test_a_forgetful_model_criterion_or_search_is_caught(
    target: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, forgetting(pkgutil.resolve_name(target)))
    with pretended_cuda(), pytest.raises(RuntimeError, match=REFUSED):
        CHAINS[name](tmp_path, "cuda")


def test_pooling_that_forgets_the_device_of_its_positions_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weldon_pooling, "torch", without_device("arange"))
    with pretended_cuda(), pytest.raises(RuntimeError, match=REFUSED):
        CHAINS["heat_map"](tmp_path, "cuda")
