"""Backbones against torchvision's own networks and transforms, and every way in which weights can be wrong."""

import urllib.error
from pathlib import Path

import pytest
import torch
from pictures import PICTURES, drawn_photo
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from visual_grounding.errors import InputError
from visual_grounding.features.backbones import Preprocessing, backbone_names, load_backbone
from visual_grounding.features.backbones.torchvision_networks import preprocessing_of, without_head
from visual_grounding.images.sources import MAX_PIXELS, UnreadableImage


def randomise_statistics(model: nn.Module, seed: int = 3) -> None:
    """Give the batch norms means and variances that matter."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("name", ["resnet50", "resnext50_32x4d", "efficientnet_b0"])
def test_network_and_preprocessing_give_what_torchvision_pools(name: str, picture, tmp_path: Path) -> None:
    model = models.get_model(name).eval()
    randomise_statistics(model)
    torch.save(model.state_dict(), tmp_path / "w.pth")
    pooled = []
    model.avgpool.register_forward_hook(lambda module, inputs, output: pooled.append((inputs[0], output)))
    transform = models.get_model_weights(name).DEFAULT.transforms()
    with torch.no_grad():
        model(transform(picture())[None])
    expected_map, expected_mean = pooled[0]

    backbone = load_backbone(name, str(tmp_path / "w.pth"))
    pixels = torch.from_numpy(backbone.preprocessing.pixels(picture()))[None]
    with torch.no_grad():
        found = backbone.network(backbone.preprocessing.normalise(pixels))
    scale = expected_map.abs().max()
    torch.testing.assert_close(found / scale, expected_map / scale, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.mean((2, 3)) / scale, expected_mean.flatten(1) / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet50", "efficientnet_b3", "efficientnet_v2_s"])
@pytest.mark.parametrize("size", [(300, 400), (500, 333), (97, 1000)])
def test_preprocessing_equals_the_transforms_of_each_of_torchvisions_weights(name: str, size: tuple[int, int]) -> None:
    image = drawn_photo(*size)
    for weights in models.get_model_weights(name):
        preprocessing = preprocessing_of(weights)
        found = preprocessing.normalise(torch.from_numpy(preprocessing.pixels(image))[None])[0]
        torch.testing.assert_close(found, weights.transforms()(image), rtol=0, atol=1e-6)


def test_every_name_gives_a_map_of_its_trained_size() -> None:
    names = [name for name in backbone_names() if name != "scattering"]
    assert {"resnet50", "resnet101", "resnet152", "resnext101_32x8d", "efficientnet_b0", "efficientnet_b7"} <= set(
        names
    )
    for name in names:
        with torch.device("meta"):
            model = models.get_model(name)
        trunk = without_head(model).eval()
        side = preprocessing_of(models.get_model_weights(name).DEFAULT).crop
        found = trunk(torch.empty(2, 3, side, side, device="meta")).shape
        head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        assert found == (2, head.in_features, -(-side // 32), -(-side // 32)), name


def test_random_weights_repeat_by_seed_and_leave_torchs_own_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second, other = (load_backbone("resnet18", "none", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    states = [dict(backbone.network.state_dict()) for backbone in (first, second, other)]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not torch.equal(states[0]["network.0.weight"], states[2]["network.0.weight"])
    assert (first.weights, other.weights) == ("random-1", "random-2")
    assert not any(module.training for module in first.network.modules())


@pytest.mark.parametrize("name", ["resnet152", "efficientnet_b0"])
def test_random_weights_give_features_within_float16(name: str) -> None:
    backbone = load_backbone(name, "none")
    with torch.no_grad():
        pixels = torch.from_numpy(backbone.preprocessing.pixels(drawn_photo()))[None]
        features = backbone.network(backbone.preprocessing.normalise(pixels))
    assert 0.1 < features.square().mean().sqrt() < 10


def test_scattering_needs_no_weights_and_sees_plain_colours() -> None:
    backbone = load_backbone("scattering")
    size = backbone.preprocessing.crop
    assert backbone.preprocessing == Preprocessing(size, size)
    pixels = backbone.preprocessing.normalise(torch.full((1, size, size, 3), 51, dtype=torch.uint8))
    torch.testing.assert_close(pixels, torch.full((1, 3, size, size), 0.2))
    assert load_backbone("scattering", image_size=96).preprocessing.crop == 96
    with pytest.raises(InputError, match=r"scattering has no weights to learn, but w\.pth was given as weights"):
        load_backbone("scattering", "w.pth")
    with pytest.raises(InputError, match=r"the image size doesn't suit scattering: .* but is 50"):
        load_backbone("scattering", image_size=50)


def test_image_size_keeps_the_framing() -> None:
    assert Preprocessing(256, 224).with_crop(448) == Preprocessing(512, 448)
    assert load_backbone("resnet18", "none", image_size=112).preprocessing.resize == 128
    with pytest.raises(InputError, match=r"the image size should be 1 to 8192 pixels, but is 0"):
        load_backbone("resnet18", "none", image_size=0)
    with pytest.raises(InputError, match=r"the image size should be 1 to 8192 pixels, but is 2000000000"):
        load_backbone("resnet18", "none", image_size=2_000_000_000)


def test_picture_too_thin_to_resize_is_unreadable() -> None:
    with pytest.raises(UnreadableImage, match=r"40000x10 pixels, too thin to resize its short side to 256"):
        Preprocessing(256, 224).pixels(Image.new("RGB", (40_000, 10)))
    assert 10 * MAX_PIXELS < 40_000 * 256**2
    assert Preprocessing(256, 224).pixels(Image.new("RGB", (1000, 10))).shape == (224, 224, 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet5", r"backbone resnet5 is unknown\. Did you mean .*resnet50.*Known: .*resnext101_32x8d.*scattering"),
        ("ResNet-50", r"backbone ResNet-50 is unknown\. Did you mean resnet50"),
        ("mobilenet_v2", r"backbone mobilenet_v2 is unknown\. Did you mean timm:mobilenetv2_\d+, timm:"),
        ("zzz", r"backbone zzz is unknown\. Known: "),
        ("onnx:d.onnx", r"onnx:d\.onnx finds regions: it is given as the detector, not as the backbone\."),
    ],
)
def test_unknown_backbone_is_refused_with_what_is_known(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_backbone(name)


def test_unknown_weights_are_refused_with_what_is_known() -> None:
    expected = r"IMAGENET9 is neither a file nor weights of resnet50, which has: IMAGENET1K_V1, IMAGENET1K_V2, none"
    with pytest.raises(InputError, match=expected):
        load_backbone("resnet50", "IMAGENET9")


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return models.resnet18().state_dict()


def test_weights_load_alike_from_pth_and_safetensors(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    torch.save(state, tmp_path / "w.pth")
    save_file(state, tmp_path / "w.safetensors")
    for name in ("w.pth", "w.safetensors"):
        backbone = load_backbone("resnet18", str(tmp_path / name))
        assert torch.equal(backbone.network.state_dict()["0.weight"], state["conv1.weight"])
        assert backbone.weights.startswith("sha256-") and len(backbone.weights) == 71


def test_weights_of_old_checkpoints_without_batch_counts_load(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    old = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "w.pth")
    assert torch.equal(
        load_backbone("resnet18", str(tmp_path / "w.pth")).network.state_dict()["0.weight"], state["conv1.weight"]
    )


def test_preprocessing_follows_the_file_name_that_torchvision_downloads_to(tmp_path: Path) -> None:
    names = models.ResNet50_Weights.IMAGENET1K_V1.url, models.ResNet50_Weights.IMAGENET1K_V2.url
    torch.save(models.resnet50().state_dict(), tmp_path / "w.pth")
    resizes = []
    for url in names:
        path = tmp_path / url.rsplit("/", 1)[-1]
        path.symlink_to(tmp_path / "w.pth")
        resizes.append(load_backbone("resnet50", str(path)).preprocessing.resize)
    assert resizes == [256, 232]


def test_weights_that_do_not_fit_are_refused_with_names(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    def refused(content: object, message: str) -> None:
        torch.save(content, tmp_path / "w.pth")
        with pytest.raises(InputError, match=message):
            load_backbone("resnet18", str(tmp_path / "w.pth"))

    fewer = {key: value for key, value in state.items() if key != "layer1.0.conv1.weight"}
    refused(fewer, r"w\.pth should hold the 122 weights of resnet18, but has 1 missing \(layer1\.0\.conv1\.weight\)")
    refused({**state, "extra": torch.zeros(1)}, r"has 1 superfluous \(extra\)")
    refused({**state, "fc.bias": torch.zeros(7)}, r"1 of another shape \(fc\.bias is \(7,\), not \(1000,\)\)")
    refused(models.resnet34().state_dict(), r"\d+ superfluous \(layer1\.2\.conv1\.weight")
    refused({"model": state}, r"should be a state_dict \(name -> tensor\), but is a dict with 'model'")
    refused([1], r"should be a state_dict \(name -> tensor\), but is a list")


def test_weights_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.pth should be a state_dict.*but doesn't exist"):
        load_backbone("resnet18", str(tmp_path / "gone.pth"))
    for name in ("w.pth", "w.safetensors"):
        (tmp_path / name).write_bytes(b"garbage")
        with pytest.raises(InputError, match=rf"{name} should be a state_dict of plain tensors, but can't be read"):
            load_backbone("resnet18", str(tmp_path / name))


class Hostile:
    """A pickle that would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.mkdir, (str(self.path),)


def test_weights_file_never_runs_code(tmp_path: Path) -> None:
    torch.save({"conv1.weight": Hostile(tmp_path / "pwned")}, tmp_path / "w.pth")
    with pytest.raises(InputError, match=r"w\.pth should be a state_dict of plain tensors"):
        load_backbone("resnet18", str(tmp_path / "w.pth"))
    assert not (tmp_path / "pwned").exists()


def test_failed_download_says_where_to_put_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    expected = (
        r"IMAGENET1K_V2 of resnet50 can't be downloaded from https://\S+/resnet50-11ad3fa6\.pth: .*no network.*"
        rf"copy it to {tmp_path}/hub/checkpoints/resnet50-11ad3fa6\.pth, or elsewhere and give "
        r"resnet50-11ad3fa6\.pth as its weights"
    )
    with pytest.raises(InputError, match=expected):
        load_backbone("resnet50")


def test_weights_in_torchs_cache_load_by_name_without_a_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: dict[str, torch.Tensor]
) -> None:
    weights = models.ResNet18_Weights.IMAGENET1K_V1
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    torch.save(state, tmp_path / "hub/checkpoints" / weights.url.rsplit("/", 1)[-1])
    backbone = load_backbone("resnet18", "IMAGENET1K_V1")
    assert backbone.weights == "IMAGENET1K_V1"
    assert torch.equal(backbone.network.state_dict()["0.weight"], state["conv1.weight"])
