"""Every forward on a CUDA device that isn't there: nothing of it stays on the CPU, in any precision."""

from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from devices.forwards import FORWARDS, run
from devices.pretended_device import fake_cuda, pretended_cuda
from devices.recording import package_functions
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._pytree import tree_leaves

import visual_grounding

DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException)
PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# Functions that can't go on under FakeTensorMode, which has no numbers; the pretended device runs them.
ASKS_FOR_NUMBERS = {
    "analysis.heat_map:stretch": "whether a map has differences",
    "criterions.hardest_negative_triplet:HardestNegativeTripletCriterion.forward": "which images are absent",
    "criterions.token_image_hinge:TokenImageHingeCriterion.forward": "how many tokens take part",
    "features.backbones.weights:scale_of": "how large the features of random weights are",
    "features.detectors.selection:Selection.of": "which boxes are confident, and which overlap",
    "models.grounded_albert:_rows": "which lines tell words, and which regions",
    "models.post_encoder_fusion:PostEncoderFusionEncoder.forward": "fairseq's encoder asks whether there is padding",
    "models.voken_lm:VokenLanguageModel.forward": "which words are to be told",
    "models.vtlm:VTLMModel.forward": "which words and regions are to be predicted",
    "modules.prediction_head:answer_loss": "how many answers there are to tell",
    "modules.encoder_input:EncoderInput._check_rows": "how many pieces there are",
    "modules.token_image_matcher:KeptStates.of": "which texts were read before",
    "modules.vision_language_bert:VisionLanguageBert._check_length": "how long the text is, where tags may not fit",
    "modules.standardisation:BatchStandardisation.forward": "which vectors are present",
    "modules.voken_head:VokenHead.forward": "which pieces have a voken",
    "retrieval.nearest:NearestImage.of": "whether a query is empty",
    "retrieval.recall:retrieval_ranks": "which images have a caption",
    "retrieval.recall:token_recall_summary": "which tokens there are",
    "retrieval.search:_largest_norm": "how long the longest image is",
    "retrieval.search:rerank": "whether a score is 0",
    "retrieval.search:top_k": "whether the k-th score is tied",
}
# Runs that can't, though no function of ours is to blame.
OTHERS_ASK_FOR_NUMBERS = {
    "siglip_image_tower": "transformers asks whether its random weights are in range",
    "text_only_transformer": "fairseq's encoder asks whether there is padding",
    "timm_tokens": "timm spreads a rate over its blocks",
}
ON_THE_CPU = {"exact_search", "nearest_image", "rerank"}  # by what they promise to return


def tensors_of(found: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]


@cache
def on_fake_cuda(name: str, dtype: torch.dtype) -> tuple[str | None, set[str]]:
    """What of a run asks for numbers, if anything does; otherwise the devices of its results."""
    try:
        with fake_cuda(), torch.no_grad():
            return None, {tensor.device.type for tensor in tensors_of(run(name, dtype, "cuda"))}
    except DATA_DEPENDENT as error:
        return name if name in OTHERS_ASK_FOR_NUMBERS else package_functions(error, visual_grounding)[-1], set()


@pytest.mark.parametrize("name", FORWARDS)
def test_forward_runs_on_a_fake_cuda_device(name: str) -> None:
    for precision, dtype in PRECISIONS.items():
        asking, devices = on_fake_cuda(name, dtype)
        if asking is None:
            assert devices == {"cuda"}, f"{name}, {precision}"
        else:
            assert asking in {*ASKS_FOR_NUMBERS, *OTHERS_ASK_FOR_NUMBERS}, f"{asking} asks for numbers, {precision}"


def test_functions_listed_as_asking_for_numbers_do_so() -> None:
    asking = {on_fake_cuda(name, torch.float32)[0] for name in FORWARDS} - {None}
    assert asking == {*ASKS_FOR_NUMBERS, *OTHERS_ASK_FOR_NUMBERS}


@cache
def on_the_cpu(name: str, dtype: torch.dtype) -> list[Tensor]:
    """What a run gives there."""
    torch.manual_seed(0)
    with torch.no_grad():
        return tensors_of(run(name, dtype, "cpu"))


@pytest.mark.parametrize("name", FORWARDS)
@pytest.mark.parametrize("precision", [*PRECISIONS, "autocast"])
def test_forward_gives_on_a_pretended_cuda_device_what_it_gives_on_the_cpu(name: str, precision: str) -> None:
    dtype = PRECISIONS.get(precision, torch.float32)
    expected = on_the_cpu(name, dtype)
    torch.manual_seed(0)
    with pretended_cuda(), torch.no_grad():
        half = torch.autocast("cuda", torch.float16) if precision == "autocast" else nullcontext()
        with half:
            found = tensors_of(run(name, dtype, "cuda"))
        assert {tensor.device.type for tensor in found} == {"cpu" if name in ON_THE_CPU else "cuda"}
        found = [tensor.cpu() for tensor in found]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert precision == "autocast" or ours.dtype == theirs.dtype
        bound = 0.0 if precision == "float32" else 0.05 * float(theirs.float().abs().max())
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=1e-5, atol=1e-5 + bound, equal_nan=True)
