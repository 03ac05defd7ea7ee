"""float16 and bfloat16 over the ranges that features have: nothing overflows that need not, and errors are bounded.

A feature store holds float16, so values up to 65504; networks give 0.01 to 100, random ones up to thousands. The bounds
are a few roundings of each type: float16 has 2^-11 = 0.0005, bfloat16 2^-8 = 0.004.
"""

from copy import deepcopy

import pytest
import torch
from devices.forwards import absent, joint_embedding, made, numbers, token_image_matcher
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from visual_grounding.modules.gated_fusion import GatedFusion, mean_of_present
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.modules.selective_attention import SelectiveAttention
from visual_grounding.modules.sentence_encoders import masked_mean
from visual_grounding.modules.sru import SRU
from visual_grounding.modules.standardisation import BatchStandardisation
from visual_grounding.modules.visual_attention import ImageProjection, VisualAttention
from visual_grounding.modules.weldon_pooling import weldon_pool

HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
BOUND = {torch.float16: 0.002, torch.bfloat16: 0.016}  # four roundings
SCALES = pytest.mark.parametrize("scale", [1e-4, 0.01, 0.5, 10.0, 1000.0, 10_000.0])
LARGEST = 65504.0


def features(scale: float, *shape: int) -> Tensor:
    """What a network with a ReLU gives, as a store holds it."""
    return (relu(numbers(*shape)) * scale).clamp(max=LARGEST).to(torch.float16)


def error(found: Tensor, exact: Tensor) -> float:
    """Relative to the largest: infinite where something overflowed."""
    with torch.no_grad():
        return float((found.float() - exact.float()).abs().max() / exact.float().abs().max())


def halved(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy in half precision, as `--fp16` makes it."""
    return deepcopy(module).to(dtype)


# --- sums that overflow though their mean doesn't ------------------------------------------------------------------


@HALVES
def test_mean_over_many_regions_has_no_overflow(dtype: torch.dtype) -> None:
    """1568 regions of about 100: the sum is 157,000, and the mean 100."""
    images = 100 + numbers(2, 8 * 196, 4)
    mask = torch.zeros(2, 8 * 196, dtype=torch.bool)
    mask[1, 3:] = True
    assert error(mean_of_present(images.to(dtype), mask), mean_of_present(images, mask)) < BOUND[dtype]


@HALVES
@pytest.mark.parametrize("mixed", [False, True])
def test_mean_over_a_long_sentence_has_no_overflow(dtype: torch.dtype, mixed: bool) -> None:
    """512 steps of about 200, as pretrained encoders have in single channels; autocast would halve it again."""
    vectors, mask = 200 + numbers(2, 512, 4), torch.zeros(2, 512, dtype=torch.bool)
    with torch.autocast("cpu", dtype, enabled=mixed):
        found = masked_mean(vectors if mixed else vectors.to(dtype), mask)
    assert error(found, masked_mean(vectors, mask)) < (1e-6 if mixed else BOUND[dtype])


@HALVES
@pytest.mark.parametrize("mixed", [False, True])
def test_weldon_pooling_of_large_values_has_no_overflow(dtype: torch.dtype, mixed: bool) -> None:
    """15 + 15 values of about 5000: their sum is 150,000, the result 10,000."""
    regions, mask = 5000 + 100 * numbers(2, 49, 4), torch.zeros(2, 49, dtype=torch.bool)
    mask[1, 20:] = True
    with torch.autocast("cpu", dtype, enabled=mixed):
        found = weldon_pool(regions if mixed else regions.to(dtype), mask)
    assert error(found, weldon_pool(regions, mask)) < (1e-6 if mixed else BOUND[dtype])


@HALVES
def test_sums_in_half_precision_keep_their_gradient(dtype: torch.dtype) -> None:
    mask = torch.zeros(1, 49, dtype=torch.bool)
    for pool in (mean_of_present, masked_mean, weldon_pool):
        vectors = (100 + numbers(1, 49, 4)).to(dtype).requires_grad_()
        pool(vectors, mask).sum().backward()
        assert vectors.grad is not None and bool(vectors.grad.isfinite().all()) and bool(vectors.grad.any())


# --- images into the model -------------------------------------------------------------------------------------------


@HALVES
@SCALES
def test_projected_features_are_nearly_those_of_float32(dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(0)
    projection = ImageProjection(2048, 64)
    images, mask = features(scale, 4, 2, 3, 2048), torch.zeros(4, 2, 3, dtype=torch.bool)
    found = halved(projection, dtype)(images, mask)
    assert error(found, projection(images, mask)) < BOUND[dtype]


@HALVES
@pytest.mark.parametrize("scale", [1e-4, 1.0, 10_000.0, LARGEST])
def test_standardised_features_may_be_as_large_as_a_store_holds(dtype: torch.dtype, scale: float) -> None:
    """Their variance is 65504^2: in float16 infinite. Statistics are float32 whatever the model is."""
    torch.manual_seed(0)
    projection = ImageProjection(256, 64, standardise=True).train()
    images, mask = features(scale, 64, 1, 1, 256), torch.zeros(64, 1, 1, dtype=torch.bool)
    half = halved(projection, dtype)
    assert error(half(images, mask), projection(images, mask)) < BOUND[dtype]
    assert error(half.eval()(images, mask), projection.eval()(images, mask)) < BOUND[dtype]


def test_features_too_large_for_a_projection_in_float16_are_infinite_and_standardising_helps() -> None:
    """Where it ends: 2048 features of 65504 have a weighted sum beyond float16. bfloat16 has it."""
    torch.manual_seed(0)
    projection = ImageProjection(2048, 64)
    images, mask = features(LARGEST, 4, 1, 1, 2048), torch.zeros(4, 1, 1, dtype=torch.bool)
    images[:] = LARGEST * (projection.output.weight[0].detach() > 0)
    assert not halved(projection, torch.float16)(images, mask).isfinite().all()
    assert halved(projection, torch.bfloat16)(images, mask).isfinite().all()
    standardised = ImageProjection(2048, 64, standardise=True).train()
    assert halved(standardised, torch.float16)(images, mask).isfinite().all()


@HALVES
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0, 1000.0])
@pytest.mark.parametrize(
    "fusion", [GatedFusion(16), GatedFusion(16, True), SelectiveAttention(16, 2), VisualAttention(16, 2)]
)
def test_fused_text_is_nearly_that_of_float32(dtype: torch.dtype, scale: float, fusion: nn.Module) -> None:
    """Also beside sentences with few images and none: a mask of -inf in float16 leaves no NaN."""
    fusion = made(fusion, torch.float32)
    text, images = numbers(5, 3, 16), scale * numbers(3, 6, 16, seed=1)
    mask = absent([0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1])
    # Rounded beforehand: a softmax over scores of thousands asks which image is nearest, and rounding may decide that.
    text, images = text.to(dtype).float(), images.to(dtype).float()
    found = halved(fusion, dtype)(text.to(dtype), images.to(dtype), mask)
    assert found.isfinite().all()
    if scale <= 1:
        assert error(found, fusion(text, images, mask)) < 4 * BOUND[dtype]


# --- the retriever --------------------------------------------------------------------------------------------------


@HALVES
@SCALES
@pytest.mark.parametrize("pooling", ["linear", "weldon"])
def test_image_vectors_are_unit_length_and_nearly_those_of_float32(
    dtype: torch.dtype, scale: float, pooling: str
) -> None:
    """A norm of 10,000 x sqrt(2048) and one of 1e-4 x sqrt(2048) are both taken in float32."""
    torch.manual_seed(0)
    embedding = JointEmbedding(JointEmbeddingConfig("bag", pooling, 2048, 64, 20, 5)).eval()
    regions = 49 if pooling == "weldon" else 1
    images, mask = features(scale, 4, regions, 2048), torch.zeros(4, regions, dtype=torch.bool)
    exact = embedding.encode_images(images.float(), mask)
    found = halved(embedding, dtype).encode_images(images.to(dtype), mask)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.norm(dim=1), torch.ones(4))
    assert float((found * exact).sum(dim=1).min().detach()) > 1 - BOUND[dtype] ** 2


@pytest.mark.parametrize("value", [LARGEST, 6e-8])
def test_cosine_of_the_largest_and_of_the_smallest_half_precision_vectors(value: float) -> None:
    """As a store of embeddings may have them: the norm of 512 x 65504 is beyond float16, and 6e-8 is under any eps."""
    vectors = torch.full((2, 512), value, dtype=torch.float16)
    assert bool(vectors.any())
    torch.testing.assert_close(normalize(vectors.float(), dim=1).norm(dim=1), torch.ones(2))
    assert not torch.isclose(normalize(vectors, dim=1).float().norm(dim=1), torch.ones(2)).all()  # why it is `.float()`


@HALVES
@pytest.mark.parametrize("encoder", ["sru", "bag", "pretrained"])
def test_sentence_vectors_are_nearly_those_of_float32(dtype: torch.dtype, encoder: str) -> None:
    tokens = torch.randint(4, 20, (5, 14), generator=torch.Generator().manual_seed(0))
    padding = torch.arange(14) >= torch.tensor([14, 3, 7, 1, 0]).unsqueeze(1)
    exact = joint_embedding(encoder, "linear", torch.float32).encode_text(tokens, padding)
    found = joint_embedding(encoder, "linear", dtype).encode_text(tokens, padding)
    assert found.isfinite().all() and not found[4].any()
    assert float((found * exact).sum(dim=1)[:4].min().detach()) > 1 - 4 * BOUND[dtype]


@HALVES
@pytest.mark.parametrize("mixed", [False, True])
def test_vectors_of_tokens_and_images_are_nearly_those_of_float32(dtype: torch.dtype, mixed: bool) -> None:
    """In half precision the encoder rounds, under autocast it alone; features may be as large as a store holds."""
    tokens = torch.randint(4, 20, (5, 14), generator=torch.Generator().manual_seed(0))
    padding = torch.arange(14) >= torch.tensor([14, 3, 7, 1, 0]).unsqueeze(1)
    images, mask = features(10_000.0, 5, 3, 6), torch.zeros(5, 3, dtype=torch.bool)
    with torch.no_grad():
        exact = token_image_matcher(torch.float32)(tokens, padding, images.float(), mask)
    with torch.autocast("cpu", dtype, enabled=mixed), torch.no_grad():
        matcher = token_image_matcher(torch.float32 if mixed else dtype)
        found = matcher(tokens, padding, images, mask)
    assert all(vectors.dtype == torch.float32 and vectors.isfinite().all() for vectors in found)
    assert torch.equal(found[0].any(dim=2), ~padding)
    assert float((found[0] * exact[0]).sum(dim=2)[~padding].min().detach()) > 1 - 4 * BOUND[dtype]
    assert float((found[1] * exact[1]).sum(dim=1).min().detach()) > 1 - (1e-6 if mixed else BOUND[dtype])


@HALVES
def test_recurrent_units_keep_what_they_sum_up_over_200_steps(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = SRU(16, 16, 4).eval()
    inputs = numbers(200, 2, 16)
    assert error(halved(layers, dtype)(inputs.to(dtype)), layers(inputs)) < 6 * BOUND[dtype]


@HALVES
def test_statistics_of_features_far_from_0_are_those_of_float32(dtype: torch.dtype) -> None:
    """Mean 3, deviation 0.1: running statistics in bfloat16 would stop more than a deviation short."""
    vectors = 3 + 0.1 * numbers(200, 8)
    exact, found = BatchStandardisation(8).train(), BatchStandardisation(8).to(dtype).train()
    for _ in range(100):
        exact(vectors), found(vectors.to(dtype))
    torch.testing.assert_close(found.norm.running_mean, exact.norm.running_mean, atol=0.01, rtol=0)
    assert found.norm.running_mean.dtype == torch.float32
