"""Nothing that computes with tensors is added without a run on a device: what none reaches is listed here, or fails."""

import inspect
from types import CodeType, ModuleType

import pytest
import torch
from devices.chains import CHAINS
from devices.forwards import FORWARDS
from devices.pretended_device import pretended_cuda
from devices.recording import computing_classes, computing_functions, recorded
from torch import nn

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


def unreached_classes(package: ModuleType, classes: set[type], codes: set[CodeType]) -> list[str]:
    """Modules and criterions whose `forward` didn't run, nor a subclass's; without a `forward`, none of whose parts."""
    unreached = []
    for name, found in computing_classes(package).items():
        ran = any(issubclass(each, found) for each in classes)
        if found.forward is nn.Module.forward:
            ran |= any(part.__code__ in codes for part in vars(found).values() if inspect.isfunction(part))
        if not ran:
            unreached.append(name)
    return sorted(unreached)


def unreached_functions(package: ModuleType, reached: set[CodeType]) -> list[str]:
    """Functions with tensors that weren't called and aren't listed."""
    functions = computing_functions(package).items()
    return sorted(name for name, function in functions if function.__code__ not in reached and not listed(name))


def listed(name: str) -> bool:
    return name in ON_THE_CPU_ONLY or name.partition(":")[0] in ON_THE_CPU_ONLY


def test_every_module_and_criterion_runs_on_a_device(reached: tuple[set[type], set[CodeType]]) -> None:
    assert len(computing_classes(visual_grounding)) > 25
    assert unreached_classes(visual_grounding, *reached) == [], "give each a run in forwards.py or chains.py"


def test_every_function_with_tensors_runs_on_a_device_or_is_listed(reached: tuple[set[type], set[CodeType]]) -> None:
    assert len(computing_functions(visual_grounding)) > 80
    missing = unreached_functions(visual_grounding, reached[1])
    print(*missing, sep="\n")
    assert missing == [], "give each a run in forwards.py or chains.py, or list it in ON_THE_CPU_ONLY with the reason"
