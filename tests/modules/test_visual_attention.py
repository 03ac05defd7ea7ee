"""VA eq. 2 and 3: by hand, against a naive loop, and at the limits."""

import math

import pytest
import torch

from visual_grounding.modules.visual_attention import ImageProjection, TextToImageAttention, VisualAttention


def identity_attention(size: int, heads: int) -> TextToImageAttention:
    attention = TextToImageAttention(size, heads)
    for layer in (attention.query, attention.key, attention.value, attention.output):
        torch.nn.init.eye_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return attention


def naive_attention(attention: TextToImageAttention, text, images, mask):
    """One query, one head, one image at a time."""
    T, B, D = text.shape
    size = D // attention.heads
    result = torch.zeros(T, B, D)
    for b in range(B):
        present = [m for m in range(images.shape[1]) if not mask[b, m]]
        for t in range(T):
            if not present:
                continue
            parts = []
            for h in range(attention.heads):
                part = slice(h * size, (h + 1) * size)
                q = attention.query(text[t, b])[part]
                keys = [attention.key(images[b, m])[part] for m in present]
                values = [attention.value(images[b, m])[part] for m in present]
                weights = [math.exp(float(q @ k) / math.sqrt(size)) for k in keys]
                parts.append(sum(w * v for w, v in zip(weights, values)) / sum(weights))
            result[t, b] = attention.output(torch.cat(parts))
    return result


def test_text_to_image_attention_matches_hand_worked_example():
    # One token h = (2, 0), two images (1, 0) and (0, 1), one head, identity projections, √d = √2.
    # Scores 2/√2 = √2 and 0, so the weights are e^√2 / (e^√2 + 1) and its complement, and the values are the images.
    attention = identity_attention(2, 1)
    weight = math.exp(math.sqrt(2)) / (math.exp(math.sqrt(2)) + 1)  # 0.8044
    result = attention(torch.tensor([[[2.0, 0.0]]]), torch.eye(2)[None], torch.zeros(1, 2, dtype=torch.bool))
    torch.testing.assert_close(result, torch.tensor([[[weight, 1 - weight]]]))


def test_visual_attention_matches_hand_worked_example():
    # One image (0, 4): whatever the query, H' = (0, 4). H = (2, 0), W = I, b = 0: LayerNorm((2, 4)) = (−1, 1).
    layer = VisualAttention(2, 1)
    layer.attention = identity_attention(2, 1)
    torch.nn.init.eye_(layer.output.weight)
    torch.nn.init.zeros_(layer.output.bias)
    result = layer(torch.tensor([[[2.0, 0.0]]]), torch.tensor([[[0.0, 4.0]]]), torch.zeros(1, 1, dtype=torch.bool))
    torch.testing.assert_close(result, torch.tensor([[[-1.0, 1.0]]]), atol=1e-4, rtol=0)


def some_attention(heads: int) -> tuple[TextToImageAttention, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention, text (5, 3, 8), images (3, 6, 8) and which are absent (3, 6): all of the second sentence."""
    torch.manual_seed(heads)
    attention = TextToImageAttention(8, heads)
    text, images = torch.randn(5, 3, 8), torch.randn(3, 6, 8)
    mask = torch.rand(3, 6) < 0.4
    mask[1] = True
    return attention, text, images, mask


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_text_to_image_attention_agrees_with_naive_loop(heads):
    attention, text, images, mask = some_attention(heads)
    with torch.no_grad():
        torch.testing.assert_close(attention(text, images, mask), naive_attention(attention, text, images, mask))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_weights_are_those_that_the_fused_kernels_use(heads):
    attention, text, images, mask = some_attention(heads)
    with torch.no_grad():
        weights = attention.weights(text, images, mask)  # (B, H, T, M)
        values = attention.value(images).view(3, 6, heads, -1).transpose(1, 2)  # (B, H, M, D/H)
        found = attention.output((weights @ values).transpose(1, 2).flatten(2)).transpose(0, 1)
        found[:, 1] = 0
        torch.testing.assert_close(found, attention(text, images, mask))
    assert not weights[1].any() and not weights.transpose(1, 3)[mask].any()
    torch.testing.assert_close(weights[[0, 2]].sum(dim=3), torch.ones(2, heads, 5))


def test_visual_attention_agrees_with_naive_equation_3():
    """H'' = LayerNorm(W (H + H') + b), any W, b and LayerNorm."""
    torch.manual_seed(5)
    layer = VisualAttention(8, 2).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    _, text, images, mask = some_attention(2)
    with torch.no_grad():
        seen = naive_attention(layer.attention, text, images, mask)  # (T, B, D), 0 without image
        W, b, norm = layer.output.weight, layer.output.bias, layer.norm
        for t in range(5):
            for sentence in range(3):
                h = W @ (text[t, sentence] + seen[t, sentence]) + b
                h = (h - h.mean()) / (h.var(unbiased=False) + norm.eps).sqrt() * norm.weight + norm.bias
                torch.testing.assert_close(layer(text, images, mask)[t, sentence], h, atol=1e-4, rtol=1e-4)


def test_visual_attention_without_image_is_the_text_path_alone():
    layer = VisualAttention(8, 2).eval()
    text = torch.randn(4, 2, 8)
    absent = torch.ones(2, 3, dtype=torch.bool)
    expected = layer.norm(layer.output(text))
    torch.testing.assert_close(layer(text, None, None), expected)
    for images in (torch.randn(2, 3, 8), torch.full((2, 3, 8), 1e4)):
        torch.testing.assert_close(layer(text, images, absent), expected)


def test_visual_attention_ignores_order_and_padding_of_images():
    layer = VisualAttention(8, 2).eval()
    text, images = torch.randn(4, 2, 8), torch.randn(2, 3, 8)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    expected = layer(text, images, mask)
    torch.testing.assert_close(layer(text, images[:, [2, 0, 1]], mask), expected)
    padded = torch.cat([images, torch.full((2, 2, 8), 7.0)], 1)
    padded_mask = torch.cat([mask, torch.ones(2, 2, dtype=torch.bool)], 1)
    torch.testing.assert_close(layer(text, padded, padded_mask), expected)


def test_visual_attention_gradient_reaches_every_parameter_and_is_finite_when_some_are_blind():
    layer, projection = VisualAttention(8, 2), ImageProjection(5, 8, ffn_size=4)
    mask = torch.tensor([[False, False], [True, True]])
    layer(torch.randn(3, 2, 8), projection(torch.randn(2, 2, 1, 5), mask[:, :, None]), mask).pow(3).sum().backward()
    for name, parameter in [*layer.named_parameters(), *projection.named_parameters()]:
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        # A bias on the keys moves all scores alike, and softmax doesn't see it.
        assert parameter.grad.abs().sum() > 0 or name == "attention.key.bias", name


def test_text_to_image_attention_refuses_shapes_that_disagree():
    attention = TextToImageAttention(8, 2)
    with pytest.raises(ValueError, match=r"\(4, 2, 8\).*\(3, 1, 8\)"):
        attention(torch.randn(4, 2, 8), torch.randn(3, 1, 8), torch.zeros(3, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="8 isn't one of 3"):
        TextToImageAttention(8, 3)


def test_image_projection_matches_hand_worked_example():
    # v = (1, 2): one layer W = (3, 4): 3 + 8 = 11. Two layers: ReLU(−11) = 0 -> bias 5.
    one = ImageProjection(2, 1)
    one.output.weight.data, one.output.bias.data = torch.tensor([[3.0, 4.0]]), torch.zeros(1)
    features = torch.tensor([1.0, 2.0]).reshape(1, 1, 1, 2)
    present = torch.zeros(1, 1, 1, dtype=torch.bool)
    assert one(features, present).item() == 11
    two = ImageProjection(2, 1, ffn_size=1)
    two.hidden.weight.data, two.hidden.bias.data = torch.tensor([[-3.0, -4.0]]), torch.zeros(1)
    two.output.weight.data, two.output.bias.data = torch.tensor([[2.0]]), torch.tensor([5.0])
    assert two(features, present).item() == 5


def test_image_projection_lays_regions_of_images_side_by_side_and_takes_half_precision():
    projection = ImageProjection(4, 4)
    torch.nn.init.eye_(projection.output.weight)
    torch.nn.init.zeros_(projection.output.bias)
    features = torch.arange(2 * 3 * 5 * 4).reshape(2, 3, 5, 4).half()
    result = projection(features, torch.zeros(2, 3, 5, dtype=torch.bool))
    assert result.shape == (2, 15, 4) and result.dtype == torch.float32
    torch.testing.assert_close(result[1, 2 * 5 + 3], features[1, 2, 3].float())


def test_image_projection_standardises_over_the_regions_that_are_there():
    # Present: 1 and 3, mean 2, variance 1, so −1 and 1; the absent 50 changes nothing and stays finite.
    projection = ImageProjection(1, 1, standardise=True)
    projection.output.weight.data.fill_(1)
    projection.output.bias.data.zero_()
    features = torch.tensor([1.0, 50.0, 3.0]).reshape(1, 3, 1, 1)
    mask = torch.tensor([False, True, False]).reshape(1, 3, 1)
    result = projection(features, mask)
    torch.testing.assert_close(result[0, [0, 2], 0], torch.tensor([-1.0, 1.0]), atol=1e-4, rtol=0)
    assert result.isfinite().all()
    torch.testing.assert_close(projection.standardise.norm.running_mean, torch.tensor([0.2]))  # 0.1 · 2 after one batch
    # One region alone has no variance: the running values (mean 0.2, variance 0.9 + 0.1 · 2) serve, as in evaluation.
    expected = (torch.tensor(50.0) - 0.2) / (1.1 + 1e-5) ** 0.5
    torch.testing.assert_close(projection(features, ~mask)[0, 1, 0], expected)
    torch.testing.assert_close(projection.eval()(features, ~mask)[0, 1, 0], expected)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_image_projection_keeps_its_statistics_in_full_precision(precision):
    torch.manual_seed(0)
    half, full = ImageProjection(4, 4, standardise=True).to(precision), ImageProjection(4, 4, standardise=True)
    mask = torch.zeros(32, 2, 1, dtype=torch.bool)
    for _ in range(60):
        features = (300 + 300 * torch.randn(32, 2, 1, 4)).half()
        half(features, mask)
        full(features, mask)
    assert half.standardise.norm.running_var.dtype == torch.float32
    torch.testing.assert_close(half.standardise.norm.running_mean, full.standardise.norm.running_mean)
    torch.testing.assert_close(half.standardise.norm.running_var, full.standardise.norm.running_var)
    assert half.eval()(features, mask).dtype == precision


def test_dropout_leaves_out_attention_in_training_alone():
    attention, text, images, mask = some_attention(2)
    dropping = TextToImageAttention(text.shape[2], 2, dropout=0.5)
    dropping.load_state_dict(attention.state_dict())
    torch.manual_seed(0)
    assert not torch.allclose(dropping.train()(text, images, mask), dropping(text, images, mask))
    torch.testing.assert_close(dropping.eval()(text, images, mask), attention(text, images, mask))
    layer = VisualAttention(text.shape[2], 2, 0.5)
    assert layer.attention.dropout == 0.5
