"""timm's networks against timm's own transforms and forward passes."""

import json
import os
from pathlib import Path

import pytest
import timm
import torch
from pictures import PICTURES, drawn_photo
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from tests.features.maps import extract_map
from visual_grounding.errors import InputError
from visual_grounding.features.backbones import Backbone, load_backbone
from visual_grounding.features.backbones.timm_networks import _DATA, _Map, _Own, preprocessing_of
from visual_grounding.features.map_extractor import Pooling
from visual_grounding.images.sources import UnreadableImage, open_images
from visual_grounding.storage.settings import check_settings

EFFICIENTNET = "tf_efficientnet_b1.ns_jft_in1k"  # GS's


def save_random(name: str, path: Path, **options: object) -> nn.Module:
    """A timm model of random weights, its batch norms' statistics too, as a file."""
    torch.manual_seed(0)
    model = timm.create_model(name, **options).eval()
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if key.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif key.endswith("running_var"):
                value.uniform_(0.5, 2)
    save_file(model.state_dict(), path)
    return model


def prepared(backbone: Backbone, image: Image.Image) -> torch.Tensor:
    pixels = torch.from_numpy(backbone.preprocessing.pixels(image))[None]
    return backbone.preprocessing.normalise(pixels)


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize(
    ("name", "prefix", "channels_last"),
    [
        (EFFICIENTNET, 0, False),
        ("test_vit.r160_in1k", 1, False),  # a class token
        ("test_mambaout", 0, True),  # (B, h, w, C)
        ("test_convnext.r160_in1k", 0, False),  # its head has a norm before the classifier
    ],
)
def test_network_gives_what_timm_gives(name: str, prefix: int, channels_last: bool, picture, tmp_path: Path) -> None:
    model = save_random(name, tmp_path / "w.safetensors")
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    image = picture()
    inputs = transform(image)[None]
    with torch.no_grad():
        features = model.forward_features(inputs)
        pooled = model.forward_head(features, pre_logits=True)
    if prefix:
        side = int((features.shape[1] - prefix) ** 0.5)
        features = features[:, prefix:].transpose(1, 2).reshape(1, -1, side, side)
    elif channels_last:
        features = features.permute(0, 3, 1, 2)

    backbone = load_backbone(f"timm:{name}", str(tmp_path / "w.safetensors"))
    found = prepared(backbone, image)
    torch.testing.assert_close(found, inputs, rtol=0, atol=1e-5)
    with torch.no_grad():
        own, found_map = backbone.own(found), backbone.network(found)
    assert found_map.shape == features.shape and own.shape == pooled.shape
    torch.testing.assert_close(found_map / features.abs().max(), features / features.abs().max(), rtol=0, atol=1e-5)
    torch.testing.assert_close(own / pooled.abs().max(), pooled / pooled.abs().max(), rtol=0, atol=1e-5)
    assert backbone.weights.startswith("sha256-")


@pytest.mark.parametrize("size", [(97, 130), (130, 97), (64, 64)])
def test_preprocessing_equals_timms_for_every_kind_of_weights(size: tuple[int, int]) -> None:
    configs = {}
    for name in timm.list_pretrained():
        data = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
        if data["input_size"][0] == 3 and max(data["input_size"]) <= 256:
            configs.setdefault(tuple(sorted(data.items())), data)
    modes = {data["crop_mode"] for data in configs.values()}
    some = next(iter(configs.values()))  # no small weights use borders; and wide pictures
    border = {**some, "crop_mode": "border", "crop_pct": 0.9, "input_size": (3, 64, 64)}
    assert len(configs) >= 60 and {"center", "squash"} <= modes
    for data in [*configs.values(), border, {**some, "input_size": (3, 48, 96)}]:
        preprocessing = preprocessing_of(data)
        expected = timm.data.create_transform(**data, is_training=False)(drawn_photo(*size))
        found = preprocessing.normalise(torch.from_numpy(preprocessing.pixels(drawn_photo(*size)))[None])[0]
        assert preprocessing.shape == tuple(expected.shape[1:])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5, msg=str(data))


def test_plans_differ_where_the_preprocessing_does() -> None:
    data = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(EFFICIENTNET).to_dict())
    plan = preprocessing_of(data).describe()
    assert plan == "timm center, share 0.882 bicubic, crop 240x240, normalise 0.485 0.456 0.406 0.229 0.224 0.225"
    assert preprocessing_of(data).summary == "272/240"
    others = [{"crop_mode": "squash"}, {"crop_pct": 1.0}, {"interpolation": "bilinear"}, {"mean": (0.5,) * 3}]
    assert len({plan, *(preprocessing_of({**data, **other}).describe() for other in others)}) == 5


def test_pictures_that_vanish_or_grow_endless_are_unreadable() -> None:
    data = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(EFFICIENTNET).to_dict())
    with pytest.raises(UnreadableImage, match=r"9000x2 pixels, too thin to resize its short side to 272"):
        preprocessing_of(data).pixels(Image.new("RGB", (9000, 2)))
    with pytest.raises(UnreadableImage, match=r"9000x2 pixels can't be resized: "):
        preprocessing_of({**data, "crop_mode": "border"}).pixels(Image.new("RGB", (9000, 2)))


def test_tokens_lie_where_their_patches_lie() -> None:
    class Tokens(nn.Module):
        num_prefix_tokens = 2

        def forward_features(self, images: torch.Tensor) -> torch.Tensor:
            return images

    tokens = torch.arange(8.0).reshape(1, 8, 1)  # two prefix tokens, then six of a 2x3 grid
    model = Tokens()
    with pytest.raises(InputError, match=r"^timm:x should give a map .* but gives \(1, 8, 1\)\. Take its own"):
        _Map(model, "timm:x")(tokens)
    assert _Map(model, "timm:x")(torch.arange(11.0).reshape(1, 11, 1)).tolist() == [
        [[[2, 3, 4], [5, 6, 7], [8, 9, 10]]]
    ]
    with pytest.raises(InputError, match=r"but gives \(1, 3, 1\)"):  # one token more than the prefix is no map
        _Map(model, "timm:x")(tokens[:, :3])
    model.patch_embed = nn.Module()
    model.patch_embed.grid_size = (2, 3)
    assert _Map(model, "timm:x")(tokens).tolist() == [[[[2, 3, 4], [5, 6, 7]]]]
    model.forward_features = lambda images: (images, images)
    with pytest.raises(InputError, match=r"but gives tuple"):
        _Map(model, "timm:x")(tokens)


@pytest.mark.slow
def test_every_kind_of_network_gives_a_map_of_its_features_or_says_that_it_has_none() -> None:
    maps = {
        "beit_base_patch16_224": 14, "botnet26t_256": 8, "convit_small": 14, "convmixer_768_32": 32,
        "convnext_atto": 7, "cs3darknet_focus_l": 8, "deit3_small_patch16_224": 14, "dla34": 7, "edgenext_small": 8,
        "efficientformer_l1": 7, "eva02_small_patch14_224": 16, "gmixer_12_224": 14, "hiera_small_224": 7,
        "inception_v3": 8, "levit_128": 4, "mambaout_femto": 7, "mobilevit_xxs": 8, "mvitv2_small": 7, "nest_small": 14,
        "nf_regnet_b0": 6, "pvt_v2_b0": 7, "resnet10t": 6, "swin_tiny_patch4_window7_224": 7,
        "swinv2_cr_tiny_ns_224": 7, "tf_efficientnet_b1": 8, "vit_tiny_patch16_224": 14, "vit_tiny_r_s16_p8_224": 7,
    }  # fmt: skip
    for name, side in maps.items():
        with torch.device("meta"):
            model = timm.create_model(name).eval()
            images = torch.empty(2, *timm.data.resolve_model_data_config(model)["input_size"])
        with torch.no_grad():
            assert _Map(model, name)(images).shape == (2, model.num_features, side, side), name
            assert _Own(model)(images).shape == (2, model.head_hidden_size), name
    for name, given in {
        "coat_lite_mini": r"\(2, 50, 512\)",
        "pit_ti_224": r"\(2, 1, 256\)",
        "crossvit_9_240": "list",
    }.items():
        with torch.device("meta"):
            model = timm.create_model(name).eval()
            images = torch.empty(2, *timm.data.resolve_model_data_config(model)["input_size"])
        with torch.no_grad(), pytest.raises(InputError, match=f"{name} should give a map .* gives {given}"):
            _Map(model, name)(images)


def test_another_image_size_resamples_the_positions_as_timm_does(tmp_path: Path) -> None:
    name = "test_vit.r160_in1k"
    save_random(name, tmp_path / "w.safetensors")
    overlay = {"file": str(tmp_path / "w.safetensors")}
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, img_size=192).eval()
    backbone = load_backbone(f"timm:{name}", str(tmp_path / "w.safetensors"), image_size=192)
    assert backbone.preprocessing.shape == (192, 192)
    inputs = prepared(backbone, drawn_photo())
    with torch.no_grad():
        expected = model.forward_head(model.forward_features(inputs), pre_logits=True)
        torch.testing.assert_close(backbone.own(inputs), expected, rtol=0, atol=1e-5)
    assert backbone.network(inputs).shape[2:] == (12, 12)
    assert load_backbone("timm:test_efficientnet.r160_in1k", "none", image_size=96).preprocessing.shape == (96, 96)


def test_folder_from_the_hub_brings_its_preprocessing(tmp_path: Path) -> None:
    name = "test_efficientnet.r160_in1k"
    save_random(name, tmp_path / "model.safetensors", num_classes=7)
    config = {"architecture": "test_efficientnet", "num_classes": 7}
    config["pretrained_cfg"] = {"mean": [0.1, 0.2, 0.3], "crop_mode": "squash", "input_size": [3, 128, 128]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    backbone = load_backbone(f"timm:{name}", str(tmp_path))
    assert backbone.preprocessing.mean == (0.1, 0.2, 0.3) and backbone.preprocessing.shape == (128, 128)
    assert backbone.preprocessing.describe().startswith("timm squash, ")
    with pytest.raises(InputError, match=r"hold a test_vit, because timm:test_vit is asked for, but is a test_effi"):
        load_backbone("timm:test_vit.r160_in1k", str(tmp_path))
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(InputError, match=r"config\.json should be timm's JSON, but can't be used: Expecting value"):
        load_backbone(f"timm:{name}", str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"should hold model\.safetensors or pytorch_model\.bin, but has neither"):
        load_backbone(f"timm:{name}", str(tmp_path))


NUMBERS = r"three numbers from 0\.0001 to 1000"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": 3}, r"three numbers from -1000 to 1000 as 'mean', but has 3\."),
        ({"mean": ["a", "b", "c"]}, r"as 'mean', but has \['a', 'b', 'c'\]\."),
        ({"mean": [0.5]}, r"as 'mean', but has \[0\.5\]\."),
        ({"mean": [0.5, float("nan"), 0.5]}, r"as 'mean', but has \[0\.5, nan, 0\.5\]\."),
        ({"std": [0, 0, 0]}, NUMBERS + r" as 'std', but has \[0, 0, 0\]\."),
        ({"std": [0.5, 0.5, -0.5]}, NUMBERS + r" as 'std', but has \[0\.5, 0\.5, -0\.5\]\."),
        ({"std": [0.5] * 4}, NUMBERS + r" as 'std', but has \[0\.5, 0\.5, 0\.5, 0\.5\]\."),
        ({"std": [float("inf")] * 3}, NUMBERS + r" as 'std', but has \[inf, inf, inf\]\."),
        ({"crop_pct": "x"}, r"a number from 0\.25 to 4 as 'crop_pct', but has 'x'\."),
        ({"crop_pct": -1}, r"as 'crop_pct', but has -1\."),
        ({"crop_pct": float("nan")}, r"as 'crop_pct', but has nan\."),
        ({"interpolation": "nothing"}, r"one of nearest, bilinear, .* as 'interpolation', but has 'nothing'\."),
        ({"interpolation": "random"}, r"as 'interpolation', but has 'random'\."),
        ({"interpolation": ["bicubic"]}, r"as 'interpolation', but has \['bicubic'\]\."),
        ({"crop_mode": "middle"}, r"one of center, squash, border as 'crop_mode', but has 'middle'\."),
        (
            {"input_size": [3, 10**9, 10**9]},
            r"3, a height and a width of at most 8192 as 'input_size', but has \[3, 10+",
        ),
        ({"input_size": [1, 64, 64]}, r"as 'input_size', but has \[1, 64, 64\]\."),
        ({"input_size": [64, 64]}, r"as 'input_size', but has \[64, 64\]\."),
        ({"input_size": [3, 64, 0]}, r"as 'input_size', but has \[3, 64, 0\]\."),
        ({"fixed_input_size": "no"}, r"true or false as 'fixed_input_size', but has 'no'\."),
        ({"num_classes": 10**9}, r"a whole number from 0 to 1048576 as 'num_classes', but has 1000000000\."),
    ],
)
def test_folder_whose_settings_make_no_sense_is_refused(tmp_path: Path, settings: dict, message: str) -> None:
    save_random("test_efficientnet.r160_in1k", tmp_path / "model.safetensors")
    config = {"architecture": "test_efficientnet", "pretrained_cfg": settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=rf"/config\.json should have .*{message}") as caught:
        load_backbone("timm:test_efficientnet.r160_in1k", str(tmp_path))
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_config_that_is_no_file_is_refused_instead_of_left_out(tmp_path: Path) -> None:
    save_random("test_efficientnet.r160_in1k", tmp_path / "model.safetensors")
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(
        InputError, match=r"config\.json should be timm's JSON, but can't be used: .*is a pipe or a dev"
    ):
        load_backbone("timm:test_efficientnet.r160_in1k", str(tmp_path))
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"config\.json should be timm's JSON, but can't be used: No such file"):
        load_backbone("timm:test_efficientnet.r160_in1k", str(tmp_path))


def test_settings_of_all_of_timms_weights_are_taken(tmp_path: Path) -> None:
    names = timm.list_pretrained()
    for name in names:
        settings = json.loads(json.dumps(timm.get_pretrained_cfg(name).to_dict()))
        check_settings(name, {key: value for key, value in settings.items() if value is not None}, _DATA)
    assert len(names) > 1000


@pytest.mark.parametrize(
    "settings",
    [
        {"crop_pct": None, "mean": None},
        {"interpolation": "lanczos", "crop_pct": 1},
        {"mean": [0, 0, 0], "std": [1, 1, 1]},
    ],
)
def test_settings_that_are_null_or_whole_numbers_are_taken(tmp_path: Path, settings: dict) -> None:
    model = save_random("test_efficientnet.r160_in1k", tmp_path / "model.safetensors")
    config = {"architecture": "test_efficientnet", "pretrained_cfg": settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    backbone = load_backbone("timm:test_efficientnet.r160_in1k", str(tmp_path))
    given = {key: value for key, value in settings.items() if value is not None}
    data = {**timm.data.resolve_model_data_config(model), **given}
    expected = timm.data.create_transform(**data, is_training=False)(drawn_photo())
    torch.testing.assert_close(prepared(backbone, drawn_photo())[0], expected, rtol=0, atol=1e-5)


def test_random_weights_repeat_by_seed_and_fit_float16() -> None:
    first, same, other = (load_backbone("timm:test_efficientnet.r160_in1k", "none", seed=seed) for seed in (1, 1, 2))
    inputs = prepared(first, drawn_photo())
    with torch.no_grad():
        outputs = [backbone.network(inputs) for backbone in (first, same, other)]
        own = first.own(inputs)
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
    assert 0.1 < outputs[0].square().mean().sqrt() < 10 and 0.1 < own.square().mean().sqrt() < 10
    assert (first.weights, other.weights) == ("random-1", "random-2")


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("timm:tf_efficientnet_b99", None, r"unknown to timm [\d.]+\. Did you mean .*timm:tf_efficientnet_b"),
        ("timm:qqqqqqqqqq", None, r"^timm:qqqqqqqqqq is unknown to timm [\d.]+\. All names: python -c"),
        (
            "timm:tf_efficientnet_b1.ns_jft",
            None,
            r"tf_efficientnet_b1 has no weights 'ns_jft'\. Did you mean ns_jft_in1k\? Known: .*aa_in1k.* or a file",
        ),
        (
            "timm:tf_efficientnet_b1",
            "ns_jft_in2k",
            r"tf_efficientnet_b1 has no weights 'ns_jft_in2k', and there is no such file or folder\. Did you mean",
        ),
        ("timm:test_vit.r160_in1k", "gone.pth", r"^gone\.pth should be a state_dict .*but doesn't exist"),
        ("tim:vit_base_patch16_224", None, r"is unknown\. Did you mean timm:vit_base_patch16_224\?"),
        ("vit_base_patch16_224", None, r"is unknown\. Did you mean timm:vit_base_patch16_224\?"),
    ],
)
def test_unknown_names_and_weights_are_refused(name: str, weights: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_backbone(name, weights)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_random("test_vit.r160_in1k", tmp_path / "w.safetensors")
    with pytest.raises(
        InputError, match=r"should hold the \d+ weights of timm:test_vit2\.r160_in1k, but has \d+ missi"
    ):
        load_backbone("timm:test_vit2.r160_in1k", str(tmp_path / "w.safetensors"))
    with pytest.raises(
        InputError, match=r"w\.safetensors doesn't fit timm:test_vit2\.r160_in1k for pictures of 192 pixels"
    ):
        load_backbone("timm:test_vit2.r160_in1k", str(tmp_path / "w.safetensors"), image_size=192)
    with pytest.raises(InputError, match=r"pictures of 7 pixels don't suit timm:test_vit.*: .*divisible by patch size"):
        load_backbone("timm:test_vit.r160_in1k", "none", image_size=7)


def test_weights_that_cannot_be_had_say_what_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", offline)
    expected = (
        r"weights of timm:tf_efficientnet_b1\.ns_jft_in1k can't be loaded as asked: no network\. Offline, copy "
        r"https://huggingface\.co/timm/tf_efficientnet_b1\.ns_jft_in1k \(model\.safetensors\) here and give model"
    )
    with pytest.raises(InputError, match=expected):
        load_backbone(f"timm:{EFFICIENTNET}")
    with pytest.raises(InputError, match=expected):
        load_backbone("timm:tf_efficientnet_b1", "ns_jft_in1k")


def test_own_pooling_of_a_network_without_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    drawn_photo(50, 50).save(tmp_path / "images/a.png")
    with pytest.raises(InputError, match=r"^scattering has no pooling of its own\. Choose mean, max or grid"):
        extract_map(open_images(tmp_path / "images"), load_backbone("scattering"), tmp_path / "out", Pooling("own"))
