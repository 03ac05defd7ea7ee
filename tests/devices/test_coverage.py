"""Nothing that computes with tensors is added without a run on a device: what none reaches is listed here, or fails."""

import importlib
import inspect
import sys
from pathlib import Path
from types import CodeType, ModuleType

import pytest
import torch
from devices.chains import CHAINS
from devices.forwards import FORWARDS, run
from devices.pretended_device import pretended_cuda
from devices.recording import computing_classes, computing_functions, recorded
from torch import nn

import visual_grounding
from visual_grounding.retrieval.products import fastest_product

pytestmark = pytest.mark.slow  # it repeats what test_forwards.py and test_chains.py run, watching every call

# Functions that never see a tensor on a device, or move tensors there themselves; a module is listed by its name alone.
ON_THE_CPU_ONLY = {
    "data.sentence_pairs:SentencePairs.sentences": "reads sentences from a file",
    "features.backbones.torchvision_networks:download": "reads a file",
    "features.detectors.onnx_detectors": "onnxruntime has devices of its own; its maps are pooled as others",
    "features.image_network:restore_image_network": "builds a network from a file; it is moved afterwards",
    "data.caption_mixture": "puts captions behind text in a data loader's worker",
    "data.labelled_examples": "reads and collates in a data loader's worker",
    "data.grounded_text": "hides words and regions in a data loader's worker",
    "data.image_tags": "names what is seen in a data loader's worker",
    "data.region_masking:without_answers": "leaves columns out in a data loader's worker",
    "data.masked_pairs": "masks words in a data loader's worker",
    "models.visual_aware_bert:_take_encoder": "reads an encoder from files",
    "models.pretrained_start": "copies weights of a file into a model that is on the CPU still",
    "models.visual_model": "compares weights of a file with those of a model, by names and shapes",
    "modules.joint_embedding:config_of_state": "reads shapes",
    "modules.token_image_matcher:matcher_config_of_state": "reads shapes",
    "modules.token_image_matcher:TokenImageMatcher._states_by_length": "a way that only the CPU takes, by its input",
    "modules.pretrained_bert:PretrainedBert.__init__": "holds what was read from a file",
    "modules.pretrained_encoder:ReadEncoder.__init__": "holds what was read from a file",
    "modules.pretrained_encoder:CrossModalEncoder.load_encoder": "begins with weights of a file, on the CPU still",
    "modules.pretrained_bert:shift_positions": "rows of a file",
    "retrieval.caption_vectors:CaptionVectors._images": "reads what a search on the CPU found",
    "retrieval.export": "reads a checkpoint, and writes its weights into a folder",
    "retrieval.products:product_of_onednn": "oneDNN multiplies on the CPU alone",
    "retrieval.products:product_of_numpy": "numpy multiplies on the CPU alone",
    "retrieval.products:is_float32": "tries products of the CPU",
    "retrieval.products:_others": "names products of the CPU",
    "retrieval.products:FastestProduct._next": "chooses among products of the CPU",
    "retrieval.retriever:Retriever.embed_cells": "refuses, for kinds that can't",
    "retrieval.search:refuse_broken": "reads a broken index, on the CPU, to name its row",
    "retrieval.search:_refuse_broken_rows": "reads rows of a broken index, to name one",
    "retrieval.search:_where": "a way that only the CPU takes, of `_Best`",
    "retrieval.search:_Best._set_aside": "a way that only the CPU takes, by the device of what it is offered",
    "storage.checkpoints": "reads files",
    "probes.last_word:_batches": "collates; what it gives is moved to the model's device afterwards",
    "probes.predictions": "puts what it predicted together, on the CPU",
    "tasks.understanding:UnderstandingTask._scores_of_split": "scores what was handed over, on the CPU",
    "vokenization.language_model_folder": "writes weights of a file into another",
    "tasks.frozen_weights": "has nothing to do without an optimizer's step, which needs backward",
}


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[type], set[CodeType]]:
    """What all runs on the pretended device reach."""
    fastest_product.cache_clear()  # a test before this one may have made some of what it remembers
    with recorded() as found, pretended_cuda():
        with torch.no_grad():
            for name in FORWARDS:
                run(name, torch.float32, "cuda")
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
    assert missing == [], "give each a run in forwards.py or chains.py, or list it in ON_THE_CPU_ONLY with the reason"


def test_listed_functions_exist_and_no_run_reaches_them(reached: tuple[set[type], set[CodeType]]) -> None:
    functions = computing_functions(visual_grounding)
    unreached = {name for name, function in functions.items() if function.__code__ not in reached[1]}
    modules = {name.partition(":")[0] for name in unreached}
    assert [name for name in ON_THE_CPU_ONLY if name not in unreached | modules] == []


@pytest.fixture
def package_with_additions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package with a module and a function that nobody runs."""
    (tmp_path / "additions").mkdir()
    (tmp_path / "additions/__init__.py").write_text("")
    (tmp_path / "additions/new.py").write_text(
        "from torch import Tensor, nn\n\n"
        "class Added(nn.Module):\n    def forward(self, x: Tensor) -> Tensor:\n        return x\n\n"
        "def doubled(x: Tensor) -> Tensor:\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("additions")


def test_an_added_module_or_function_is_missed_until_it_runs(package_with_additions: ModuleType) -> None:
    package, nothing = package_with_additions, set()
    assert unreached_classes(package, nothing, nothing) == ["new:Added"]
    assert unreached_functions(package, nothing) == ["new:Added.forward", "new:doubled"]
    new = sys.modules["additions.new"]
    with recorded() as (classes, codes):
        new.doubled(new.Added()(torch.ones(1)))
    assert unreached_classes(package, classes, codes) == unreached_functions(package, codes) == []
