"""A registered name is the name of its file, and of its class in snake case: whoever sees one finds the others."""

import re

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from house.flags import ours

from visual_grounding.extensions import load_extension
from visual_grounding.retrieval.finder import METHODS, find_class
from visual_grounding.retrieval.retriever import KINDS

SUFFIXES = {
    "task": (TASK_REGISTRY, "Task"),
    "model": (MODEL_REGISTRY, "Model"),
    "criterion": (CRITERION_REGISTRY, "Criterion"),
}
PRESETS = ("tiny", "small", "iwslt", "base", "big", "6l_512h", "12l_768h")


def in_snake_case(name: str) -> str:
    """`GatedFusionTransformer` -> `gated_fusion_transformer`; letters in a row are one word."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def misnamed(name: str, registered: type, suffix: str) -> bool:
    """Whether a registered name differs from its file's or from its class's."""
    file = registered.__module__.rpartition(".")[2]
    return not name == file == in_snake_case(registered.__name__.removesuffix(suffix))


@pytest.mark.parametrize("kind", SUFFIXES)
def test_registered_name_is_that_of_the_file_and_of_the_class(kind: str) -> None:
    registry, suffix = SUFFIXES[kind]
    names = ours(registry)
    assert names
    assert [name for name in names if misnamed(name, registry[name], suffix)] == []


def test_architecture_is_a_model_or_a_preset_of_it() -> None:
    models = ours(MODEL_REGISTRY)
    allowed = {*models, *(f"{model}_{preset}" for model in models for preset in PRESETS)}
    assert set(ours(ARCH_MODEL_REGISTRY)) - allowed == set()


def test_finder_and_kind_of_retriever_are_named_as_their_files_and_classes() -> None:
    assert METHODS and KINDS
    assert [name for name in METHODS if misnamed(name, find_class(name), "Finder")] == []
    kinds = {name: load_extension(place, "retrievers", "the kind") for name, place in KINDS.items()}
    assert [name for name, kind in kinds.items() if misnamed(name, kind, "Retriever")] == []


def test_a_name_that_differs_is_found() -> None:
    class GroundedTranslationTask:
        """Named as ours."""

    GroundedTranslationTask.__module__ = "visual_grounding.tasks.grounded_translation"
    assert not misnamed("grounded_translation", GroundedTranslationTask, "Task")
    assert misnamed("translation_grounded", GroundedTranslationTask, "Task")
    GroundedTranslationTask.__module__ = "visual_grounding.tasks.translation"
    assert misnamed("grounded_translation", GroundedTranslationTask, "Task")
    assert in_snake_case("VTLMModel2D") == "vtlm_model2_d"
