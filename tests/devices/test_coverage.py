"""Nothing that computes with tensors is added without a run on a device: what none reaches is listed here, or fails."""

from types import CodeType, ModuleType

import pytest
import torch
from devices.chains import CHAINS
from devices.forwards import FORWARDS
from devices.pretended_device import pretended_cuda
from devices.recording import computing_classes, computing_functions, recorded

import visual_grounding

# Functions that compute nothing, or only on the CPU; a whole module is listed by its name alone.
ON_THE_CPU_ONLY = {
    "analysis.overlay": "draws",
}


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[type], set[CodeType]]:
    """What all runs on the pretended device reach."""
    with recorded() as found, pretended_cuda():
        for run in FORWARDS.values():
            with torch.device("cuda"), torch.no_grad():
                run(torch.float32)
        for name, chain in CHAINS.items():
            chain(tmp_path_factory.mktemp(name), "cuda")
    return found


def unreached_classes(package: ModuleType, reached: set[type]) -> list[str]:
    """Modules and criterions of which neither they nor a subclass ran."""
    classes = computing_classes(package).items()
    return sorted(name for name, found in classes if not any(issubclass(ran, found) for ran in reached))


def unreached_functions(package: ModuleType, reached: set[CodeType]) -> list[str]:
    """Functions with tensors that weren't called and aren't listed."""
    functions = computing_functions(package).items()
    return sorted(name for name, function in functions if function.__code__ not in reached and not listed(name))


def listed(name: str) -> bool:
    return name in ON_THE_CPU_ONLY or name.partition(":")[0] in ON_THE_CPU_ONLY


def test_every_module_and_criterion_runs_on_a_device(reached: tuple[set[type], set[CodeType]]) -> None:
    assert len(computing_classes(visual_grounding)) > 25
    assert not unreached_classes(visual_grounding, reached[0]), "give each a run in forwards.py or chains.py"


def test_every_function_with_tensors_runs_on_a_device_or_is_listed(reached: tuple[set[type], set[CodeType]]) -> None:
    assert len(computing_functions(visual_grounding)) > 80
    missing = unreached_functions(visual_grounding, reached[1])
    assert not missing, "give each a run in forwards.py or chains.py, or list it in ON_THE_CPU_ONLY with the reason"
