"""Text and images in two encoders: a naive twin, the placeholder, ranks, masks, and what is frozen."""

import pytest
import torch
from small_grounded import make_encoder

from visual_grounding.errors import InputError
from visual_grounding.modules.grounded_encoder import GroundedEncoder, GroundedWordHead, region_regression_loss
from visual_grounding.modules.pretrained_encoder import read_layers

FEATURES = 6


@pytest.fixture(scope="module")
def choices(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    found = {}
    for name, kind, size in (("small", "bert", 16), ("large", "albert", 24)):
        read = read_layers(str(make_encoder(folder / name, kind, size)))
        found[name] = {**read.choices, "opening": [0], "closes": True, "max_positions": 23}
        found[name]["config"]["pad_token_id"] = 1
    return found


def make(choices, text="small", cross_modal="small", features=FEATURES, ranks=3, seed=0, standardise=False):
    torch.manual_seed(seed)
    return GroundedEncoder(choices[text], choices[cross_modal], features, ranks, standardise).eval()


def batch(rows=2, images=2, regions=2):
    torch.manual_seed(3)
    tokens = torch.tensor([[6, 7, 8, 2], [9, 10, 2, 1]])[:rows]
    absent = torch.zeros(rows, images, regions, dtype=torch.bool)
    return tokens, {"features": torch.randn(rows, images, regions, FEATURES), "padding_mask": absent}


def test_states_agree_with_a_naive_twin(choices):
    encoder = make(choices)
    tokens, visual = batch()
    visual["padding_mask"][0, 1, 1] = True
    visual["padding_mask"][1] = True  # this line has no image
    found = encoder(tokens, visual)
    for row, length in ((0, 5), (1, 4)):
        states, _ = encoder.text(tokens[row : row + 1, : length - 1])
        positions = [states[0, place] for place in range(length)]
        if row == 1:
            positions.append(encoder.image_placeholder)
        for image in range(2):
            for region in range(2):
                if not visual["padding_mask"][row, image, region]:
                    weight, bias = encoder.image_projection.weight, encoder.image_projection.bias
                    projected = weight @ (visual["features"][row, image, region] / 6**0.5) + bias
                    positions.append(projected + encoder.image_ranks.weight[image])
        x = torch.stack(positions)[None]
        expected = encoder.cross_modal(x, torch.zeros(1, x.shape[1], dtype=torch.bool))[0]
        assert torch.allclose(found.text[row, :length], expected[:length], atol=1e-5)
        if row == 0:
            assert torch.allclose(found.regions[0, :3], expected[length:], atol=1e-5)
    assert found.region_padding_mask.tolist() == [[False] * 3 + [True], [True] * 4]
    assert found.text_padding_mask.tolist() == [[False] * 5, [False] * 4 + [True]]


def test_no_images_and_absent_ones_are_the_same(choices):
    encoder = make(choices)
    tokens, visual = batch()
    visual["padding_mask"][:] = True
    without, absent = encoder(tokens), encoder(tokens, visual)
    there = ~without.text_padding_mask
    assert torch.allclose(without.text[there], absent.text[there], atol=1e-6)
    assert without.regions.shape == (2, 0, 16)
    with torch.no_grad():
        encoder.image_placeholder.add_(torch.randn(16))
    assert not torch.allclose(encoder(tokens).text[there], without.text[there], atol=1e-3)


def test_the_placeholder_says_nothing_beside_an_image(choices):
    encoder = make(choices)
    tokens, visual = batch()
    before = encoder(tokens, visual).text
    with torch.no_grad():
        encoder.image_placeholder.fill_(9)
    assert torch.equal(encoder(tokens, visual).text, before)


def test_ranks_tell_images_apart(choices):
    encoder = make(choices)
    tokens, visual = batch()
    swapped = {name: each.flip(1) for name, each in visual.items()}
    one, other = encoder(tokens, visual).text, encoder(tokens, swapped).text
    assert not torch.allclose(one[0], other[0], atol=1e-4)
    with torch.no_grad():
        encoder.image_ranks.weight.fill_(0.5)
    assert torch.allclose(encoder(tokens, visual).text[0], encoder(tokens, swapped).text[0], atol=1e-5)


def test_standardised_features_are_those_of_the_regions_that_are_seen(choices):
    plain, encoder = make(choices), make(choices, standardise=True)
    encoder.load_state_dict(plain.state_dict(), strict=False)
    tokens, visual = batch()
    masked = torch.zeros(2, 2, 2, dtype=torch.bool)
    masked[0, 0, 1] = visual["padding_mask"][1, 1, 0] = True
    seen = ~(masked | visual["padding_mask"])
    features = visual["features"] * 3 + 5
    chosen = features[seen]  # (6, F)
    expected = features.clone()
    expected[seen] = (chosen - chosen.mean(0)) / (chosen.var(0, unbiased=False) + 1e-5).sqrt()
    for module in encoder.modules():  # no dropout; statistics of the batch
        module.training = module is encoder.standardise.norm or module is encoder.standardise
    found = encoder(tokens, {**visual, "features": features}, masked).text
    assert torch.allclose(found, plain(tokens, {**visual, "features": expected}, masked).text, atol=1e-5)
    assert torch.allclose(encoder.standardise.norm.running_mean, 0.1 * chosen.mean(0), atol=1e-5)


def test_statistics_are_learned_where_all_regions_are_hidden(choices):
    """Of one region an image, t2i hides it always: what is asked later with images must not get them as they are."""
    encoder = make(choices, standardise=True)
    tokens, visual = batch()
    visual["padding_mask"][1, 1, 0] = True
    masked = ~visual["padding_mask"]
    for module in encoder.modules():
        module.training = module is encoder.standardise.norm or module is encoder.standardise
    shown = encoder(tokens, visual, masked)
    chosen = visual["features"][masked]
    assert torch.allclose(encoder.standardise.norm.running_mean, 0.1 * chosen.mean(0), atol=1e-5)
    other = {**visual, "features": torch.randn_like(visual["features"])}
    assert torch.equal(encoder(tokens, other, masked).text, shown.text)  # and nothing is told of them


def test_a_masked_region_shows_nothing_but_its_rank(choices):
    encoder = make(choices)
    tokens, visual = batch()
    masked = torch.zeros(2, 2, 2, dtype=torch.bool)
    masked[0, 1, 0] = True
    shown = encoder(tokens, visual, masked)
    other = {**visual, "features": visual["features"].clone()}
    other["features"][0, 1, 0] = 7.0
    assert torch.equal(encoder(tokens, other, masked).text, shown.text)
    other["features"][0, 1, 0] = 0.0
    assert torch.allclose(encoder(tokens, other).text, shown.text, atol=1e-6)
    assert not torch.allclose(encoder(tokens, visual).text[0], shown.text[0], atol=1e-4)


def test_more_padding_and_other_lines_change_nothing(choices):
    encoder = make(choices)
    tokens, visual = batch()
    both = encoder(tokens, visual)
    wide = torch.cat([tokens, torch.ones(2, 3, dtype=torch.long)], dim=1)
    alone = encoder(wide[1:], {name: each[1:] for name, each in visual.items()})
    assert torch.allclose(alone.text[0, :4], both.text[1, :4], atol=1e-5)
    assert torch.allclose(alone.regions[0], both.regions[1], atol=1e-5)


@pytest.mark.parametrize(("text", "cross_modal"), [("small", "large"), ("large", "small")])
def test_encoders_of_different_sizes_are_bridged(choices, text, cross_modal):
    encoder = make(choices, text, cross_modal)
    tokens, visual = batch()
    assert encoder(tokens, visual).text.shape == (2, 5, encoder.size)
    assert isinstance(encoder.bridge, torch.nn.Linear)
    assert isinstance(make(choices).bridge, torch.nn.Identity)


def test_every_weight_gets_a_gradient_and_frozen_ones_none(choices):
    encoder = make(choices, "large", "small").train()
    tokens, visual = batch()
    visual["padding_mask"][1] = True
    encoder(tokens, visual).text.square().sum().backward()
    assert [name for name, weight in encoder.named_parameters() if weight.grad is None] == []
    encoder.zero_grad(set_to_none=True)
    encoder.freeze_text()
    encoder.train()
    assert not encoder.text.training and encoder.cross_modal.training
    encoder(tokens, visual).text.square().sum().backward()
    for name, weight in encoder.named_parameters():
        assert (weight.grad is None) == name.startswith("text."), name


def test_a_frozen_text_encoder_drops_nothing_out(choices):
    encoder = make(choices).train()
    tokens, _ = batch()
    assert not torch.equal(encoder.text(tokens)[0], encoder.text(tokens)[0])
    encoder.freeze_text()
    encoder.train()
    assert torch.equal(encoder.text(tokens)[0], encoder.text(tokens)[0])
    assert not torch.equal(encoder(tokens).text, encoder(tokens).text)


def test_what_does_not_fit_is_refused(choices):
    encoder = make(choices, ranks=1)
    with pytest.raises(InputError, match=r"tells 1 images of a sentence apart, but there are 2"):
        encoder(*batch())
    with pytest.raises(ValueError, match="built without images"):
        make(choices, features=0)(*batch())


def test_the_word_head_is_berts():
    head = GroundedWordHead(3, 2, 5)
    hidden = torch.tensor([[1.0, -2.0, 0.5]])
    dense, _, norm = head.transform
    inner = torch.nn.functional.gelu(hidden @ dense.weight.T + dense.bias)[0]
    expected = (inner - inner.mean()) / (inner.var(unbiased=False) + norm.eps).sqrt()
    assert torch.allclose(head(hidden)[0], expected, atol=1e-5)
    assert head.bias.tolist() == [0] * 5
    assert 0.018 < GroundedWordHead(200, 100, 5).transform[0].weight.std().item() < 0.022  # as BERT's


def test_region_loss_agrees_with_an_example_worked_by_hand():
    predicted, features = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [3.0, -1.0]])
    # |1|, |-2|, |-3|, |1|: their mean is 7/4, of squares 15/4.
    assert region_regression_loss(predicted, features, 1.0).item() == 1.75
    assert region_regression_loss(predicted, features, 2.0).item() == 3.75
    half = region_regression_loss(predicted.half(), features.half(), 1.0)
    assert half.dtype == torch.float32 and half.item() == 1.75
