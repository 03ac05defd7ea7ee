"""Embedding of regions: by hand, naive, masked."""

import pytest
import torch

from visual_grounding.modules.region_embedding import RegionEmbedding, RegionProjection


def test_region_embedding_matches_hand_worked_example():
    # F = 2, D = 2. Feature: W_f (1, 2) = (1 - 4, 2) -> ReLU (0, 2); box: W_b (0, .5, 1, 1) + b_b = (3, -1) -> (3, 0);
    # language (10, 20): together (13, 22). Masked, (100, 200) stands for the feature: (113, 220).
    embedding = RegionEmbedding(2, 2).eval()
    with torch.no_grad():
        embedding.feature.weight.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
        embedding.feature.bias.zero_()
        embedding.box.weight.copy_(torch.tensor([[0.0, 2.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]))
        embedding.box.bias.copy_(torch.tensor([0.0, -1.0]))
        embedding.language.copy_(torch.tensor([10.0, 20.0]))
    features = torch.tensor([[[1.0, 2.0], [1.0, 2.0]]])
    boxes = torch.tensor([[[0.0, 0.5, 1.0, 1.0], [0.0, 0.5, 1.0, 1.0]]])
    result = embedding(features, boxes, torch.tensor([[False, True]]), torch.tensor([100.0, 200.0]))
    torch.testing.assert_close(result, torch.tensor([[[13.0, 22.0], [113.0, 220.0]]]))


def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    masked = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]]).bool()
    return torch.randn(3, 4, 6), torch.rand(3, 4, 4), masked, torch.randn(8)


def test_region_embedding_agrees_with_naive_loop():
    features, boxes, masked, mask = inputs()
    embedding = RegionEmbedding(6, 8).eval()
    expected = torch.empty(3, 4, 8)
    for b in range(3):
        for m in range(4):
            seen = embedding.feature.weight @ features[b, m] + embedding.feature.bias
            place = embedding.box.weight @ boxes[b, m] + embedding.box.bias
            first = mask if masked[b, m] else seen.clamp(min=0)
            expected[b, m] = first + place.clamp(min=0) + embedding.language
    torch.testing.assert_close(embedding(features, boxes, masked, mask), expected)


def test_language_of_images_is_drawn_as_those_of_words():
    torch.manual_seed(0)
    assert RegionEmbedding(2, 2000).language.std().item() == pytest.approx(2000**-0.5, rel=0.1)


def test_masked_region_hides_its_feature_and_shows_its_box():
    features, boxes, masked, mask = inputs()
    embedding = RegionEmbedding(6, 8).eval()
    before = embedding(features, boxes, masked, mask)
    other_features = embedding(features + 1, boxes, masked, mask)
    other_boxes = embedding(features, boxes / 2, masked, mask)
    assert torch.equal(before[masked], other_features[masked])
    assert not torch.isclose(before[~masked], other_features[~masked]).all(dim=-1).any()
    assert not torch.isclose(before, other_boxes).all(dim=-1).any()
    torch.testing.assert_close(embedding(features, boxes, None, mask), embedding(features, boxes, masked & False, mask))


def test_stored_precision_of_features_is_taken():
    features, boxes, masked, mask = inputs()
    embedding = RegionEmbedding(6, 8).eval()
    stored = embedding(features.half(), boxes, masked, mask)
    torch.testing.assert_close(stored, embedding(features.half().float(), boxes, masked, mask))
    half = embedding.half()(features.half(), boxes, masked, mask.half())
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), stored, atol=1e-2, rtol=1e-2)


def test_gradient_reaches_every_parameter_and_the_mask():
    features, boxes, masked, mask = inputs()
    embedding = RegionEmbedding(6, 8)
    mask.requires_grad_()
    embedding(features, boxes, masked, mask).pow(2).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in [*embedding.parameters(), mask])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_dropout_works_in_training_alone(dropout):
    features, boxes, masked, mask = inputs()
    embedding = RegionEmbedding(6, 8, dropout)
    whole = embedding.eval()(features, boxes, masked, mask)
    torch.manual_seed(2)
    trained = embedding.train()(features, boxes, masked, mask)
    dropped = trained == 0
    assert dropped.any() == (dropout > 0)
    torch.testing.assert_close(trained[~dropped], whole[~dropped] / (1 - dropout))


def test_projection_matches_hand_worked_example():
    # f = 2, b = (0.25, 0, 0.75, 1), so w = 0.5, h = 1. Row 1: 3·2 + 1·0.5 + 0.5 = 7; row 2: 4·0.25 + 2·1 − 1 = 2.
    projection = RegionProjection(1, 2, dropout=0.5).eval()
    with torch.no_grad():
        projection.linear.weight.copy_(torch.tensor([[3.0, 0, 0, 0, 0, 1, 0], [0.0, 4, 0, 0, 0, 0, 2]]))
        projection.linear.bias.copy_(torch.tensor([0.5, -1.0]))
    found = projection(torch.tensor([[[2.0]]]).half(), torch.tensor([[[0.25, 0.0, 0.75, 1.0]]]))
    torch.testing.assert_close(found, torch.tensor([[[7.0, 2.0]]]))


def test_projection_drops_out_in_training_and_begins_as_small_as_bert():
    torch.manual_seed(1)
    projection = RegionProjection(200, 100, dropout=0.5, deviation=0.02)
    assert projection.linear.weight.std().item() == pytest.approx(0.02, rel=0.05) and not projection.linear.bias.any()
    features, boxes = torch.ones(1, 50, 200), torch.rand(1, 50, 4)
    assert (projection(features, boxes) == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert torch.equal(projection.eval()(features, boxes), projection(features, boxes))
