"""The three architectures: what they do with images that are there, few, many, or not there."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from small_models import ARCHITECTURES, SIZE, Task, build

from visual_grounding import InputError


def batch(images: int = 3, regions: int = 2) -> dict[str, object]:
    generator = torch.Generator().manual_seed(5)
    tokens = torch.tensor([[4, 5, 6, 2], [7, 8, 2, 1]])
    return {
        "src_tokens": tokens,
        "src_lengths": torch.tensor([4, 3]),
        "prev_output_tokens": torch.tensor([[2, 4, 5], [2, 6, 1]]),
        "visual": {
            "features": torch.randn(2, images, regions, SIZE, generator=generator),
            "padding_mask": torch.zeros(2, images, regions, dtype=torch.bool),
        },
    }


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("images", "regions"), [(1, 1), (8, 1), (3, 4)])
def test_every_architecture_uses_its_images_in_any_number(arch, images, regions):
    model = build(arch).eval()
    inputs = batch(images, regions)
    seeing = model(**inputs)[0]
    assert seeing.shape == (2, 3, 12)
    inputs["visual"]["features"] = inputs["visual"]["features"].flip(0)
    assert not torch.allclose(seeing, model(**inputs)[0])


def test_encoder_keeps_the_states_of_its_layers_for_who_asks():
    encoder, inputs = build("visual_aware_transformer").encoder.eval(), batch()
    given = {name: inputs[name] for name in ("src_tokens", "src_lengths", "visual")}
    assert encoder(**given)["encoder_states"] == []
    assert len(encoder(**given, return_all_hiddens=True)["encoder_states"]) == 2  # words, and a layer


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_without_images_ignores_the_store(arch):
    model = build(arch).eval()
    inputs = batch()
    text_only = model(**{**inputs, "visual": None})[0]
    inputs["visual"]["padding_mask"][:] = True
    torch.testing.assert_close(model(**inputs)[0], text_only)
    inputs["visual"]["features"] *= 1000
    torch.testing.assert_close(model(**inputs)[0], text_only)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_treats_each_sentence_alone(arch):
    """A sentence without images beside one with images; more padding, in text or images, changes nothing."""
    model = build(arch).eval()
    inputs = batch()
    inputs["visual"]["padding_mask"][1] = True
    together = model(**inputs)[0]
    torch.testing.assert_close(together[1], model(**{**inputs, "visual": None})[0][1])
    one = {
        "src_tokens": inputs["src_tokens"][:1],
        "src_lengths": inputs["src_lengths"][:1],
        "prev_output_tokens": inputs["prev_output_tokens"][:1],
        "visual": {
            "features": torch.cat([inputs["visual"]["features"][:1], torch.ones(1, 2, 2, SIZE)], 1),
            "padding_mask": torch.tensor([[[False] * 2] * 3 + [[True] * 2] * 2]),
        },
    }
    torch.testing.assert_close(model(**one)[0][0], together[0])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_gets_gradient_in_every_parameter(arch):
    model = build(arch, visual_ffn_dim=8)
    model(**batch())[0].pow(2).sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 1e-12]
    # A bias on attention's keys moves all scores alike, and softmax doesn't see it.
    assert all(name.endswith(("k_proj.bias", "attention.key.bias")) for name in silent), silent


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_every_architecture_runs_in_half_precision(arch, precision):
    model = build(arch).to(precision).eval()
    inputs = batch()
    inputs["visual"]["features"] = inputs["visual"]["features"].half()
    assert model(**inputs)[0].dtype == precision and model(**inputs)[0].isfinite().all()


@pytest.mark.parametrize(
    ("preset", "layers", "size", "ffn", "heads"),
    [("", 6, 512, 2048, 8), ("_tiny", 4, 128, 256, 4), ("_iwslt", 6, 512, 1024, 4), ("_base", 6, 512, 2048, 8),
     ("_big", 6, 1024, 4096, 16)],
)  # fmt: skip
def test_presets_set_the_sizes_of_both_sides(preset, layers, size, ffn, heads):
    for arch in ARCHITECTURES:
        args = Namespace()
        ARCH_CONFIG_REGISTRY[arch + preset](args)
        for side in ("encoder", "decoder"):
            assert getattr(args, f"{side}_layers") == layers
            assert getattr(args, f"{side}_embed_dim") == size
            assert getattr(args, f"{side}_ffn_embed_dim") == ffn
            assert getattr(args, f"{side}_attention_heads") == heads
        given = Namespace(encoder_layers=2)
        ARCH_CONFIG_REGISTRY[arch + preset](given)
        assert given.encoder_layers == 2  # a flag beats the preset


def test_flags_reach_their_modules():
    model = build("visual_aware_transformer", visual_attention_heads=4, visual_dropout=0.25, visual_ffn_dim=7)
    assert model.encoder.fusion.attention.heads == 4
    assert model.encoder.image_projection.dropout.p == 0.25
    assert model.encoder.image_projection.hidden.out_features == 7
    assert build("visual_aware_transformer").encoder.fusion.attention.heads == 2  # the encoder's
    assert build("gated_fusion_transformer", visual_gate="interpolate").encoder.fusion.interpolate
    assert build("selective_attention_transformer").encoder.fusion.attention.heads == 1


def test_model_refuses_to_be_built_without_images_or_for_another_size():
    with pytest.raises(InputError, match=r"visual_aware_transformer needs images.*--arch text_only_transformer\.$"):
        build("visual_aware_transformer", Task(0))
    with pytest.raises(InputError, match="image features of size 9, but features/some has size 6"):
        build("visual_aware_transformer", visual_feature_size=9)
    inputs = batch()
    inputs["visual"]["features"] = torch.zeros(2, 3, 2, SIZE + 1)
    with pytest.raises(InputError, match="trained on image features of size 6, but these have 7"):
        build("visual_aware_transformer")(**inputs)


def test_model_names_the_weights_that_do_not_fit_a_checkpoint():
    state = build("visual_aware_transformer", encoder_layers=2).state_dict()
    with pytest.raises(InputError, match=r"has 16 superfluous \(encoder\.layers\.1\..*other model flags"):
        build("visual_aware_transformer").load_state_dict(state)
    state = build("visual_aware_transformer", Task(9)).state_dict()
    with pytest.raises(
        InputError, match=r"1 of another shape \(.*image_projection.output.weight is \(16, 9\), not \(16, 6\)\)"
    ):
        build("visual_aware_transformer").load_state_dict(state)


@pytest.mark.parametrize("arch", ["visual_aware_transformer", "selective_attention_transformer"])
def test_model_refuses_heads_that_do_not_divide_its_size(arch):
    with pytest.raises(InputError, match="--visual-attention-heads should divide the encoder's size, 16, but is 3"):
        build(arch, visual_attention_heads=3)
    with pytest.raises(InputError, match="--visual-attention-heads should be 0 to 1048576, but is -1"):
        build(arch, visual_attention_heads=-1)


def test_model_says_once_that_it_has_no_images(caplog):
    build("visual_aware_transformer", Task(0), visual_feature_size=SIZE)
    assert caplog.text.count("without --image-features it has none") == 1


@pytest.mark.parametrize("arch", ["visual_aware_transformer", "selective_attention_transformer"])
def test_attention_dropout_reaches_the_images(arch):
    fusion = build(arch, attention_dropout=0.25).encoder.fusion
    assert fusion.attention.dropout == 0.25
