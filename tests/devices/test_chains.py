"""Whole commands on a CUDA device that isn't there give what they give on the CPU."""

from pathlib import Path

import numpy as np
import pytest
from devices.chains import CHAINS
from devices.pretended_device import pretended_cuda

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
