"""Pictures instead of features: framing, absence, and a network that says by itself what it is."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from PIL import Image
from torch import nn

from visual_grounding.errors import InputError
from visual_grounding.features.augmentation import AREA, ASPECT, augment, random_box
from visual_grounding.features.backbones import Preprocessing
from visual_grounding.features.image_network import ImageNetwork, build_image_network, restore_image_network
from visual_grounding.features.pixels import PixelSource
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images

SQUARE = Preprocessing(8, 8)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three pictures of random colours, 20 x 10, and one that isn't a picture: c.png."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for seed, name in enumerate("abd"):
        pixels = np.random.default_rng(seed).integers(0, 256, (10, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    (folder / "c.png").write_bytes(b"no picture")
    return folder


@pytest.mark.parametrize("threads", [1, 3])
def test_pixels_are_those_of_the_preprocessing_and_what_cannot_be_read_is_absent(pictures, threads):
    source = PixelSource(open_images(pictures), SQUARE, str(pictures), threads)
    pixels, mask = source.gather(np.array([3, 2, 0]))
    assert (pixels.shape, pixels.dtype, mask.tolist()) == ((3, 8, 8, 3), np.uint8, [[False], [True], [False]])
    with Image.open(pictures / "d.png") as image:
        np.testing.assert_array_equal(pixels[0], SQUARE.pixels(image))
    assert not pixels[1].any()


def test_pixels_have_the_identity_of_a_store_of_the_same_images(pictures, tmp_path):
    source = PixelSource(open_images(pictures), SQUARE, str(pictures))
    store = FeatureStore(write_store(tmp_path / "store", np.ones((4, 1, 2)), list(source.keys())))
    assert source.keys_sha256 == store.keys_sha256
    assert source.rows_of(["c.png", "x.png", "a.png"]) == {"a.png": 0, "c.png": 2}
    before = source.digest
    (pictures / "a.png").write_bytes(b"longer than it was, or shorter")
    assert PixelSource(open_images(pictures), SQUARE, str(pictures)).digest != before


def test_random_framing_depends_on_its_generator_alone(pictures):
    source = PixelSource(open_images(pictures), SQUARE, str(pictures))

    def draw(*seeds: int) -> np.ndarray:
        rows = np.zeros(len(seeds), dtype=int)
        return source.gather(rows, [np.random.default_rng([1, seed]) for seed in seeds])[0]

    first = draw(5, 6)
    assert (first[0] != first[1]).any()
    np.testing.assert_array_equal(draw(6, 5), first[::-1])


@pytest.mark.parametrize("size", [(40, 30), (30, 40), (1, 1)])
def test_random_box_stays_inside_and_keeps_its_limits(size):
    width, height = size
    rng = np.random.default_rng(0)
    for _ in range(500):
        left, top, wide, high = random_box(width, height, rng)
        assert left >= 0 and top >= 0 and left + wide <= width and top + high <= height and min(wide, high) >= 1
        if width > 1:  # rounding moves area and aspect by half a pixel
            assert AREA[0] * 0.8 < wide * high / (width * height) <= AREA[1]
            assert ASPECT[0] - 0.15 < wide / high < ASPECT[1] + 0.15


def test_random_box_of_a_long_thin_picture_is_its_middle():
    assert random_box(1000, 1, np.random.default_rng(0)) == (499, 0, 1, 1)
    assert random_box(12, 1200, np.random.default_rng(0)) == (0, 592, 12, 16)


def test_augmentation_mirrors_half_of_the_pictures():
    ramp = Image.fromarray(np.tile(np.arange(0, 240, 8, dtype=np.uint8)[None, :, None], (30, 1, 3)))
    generators = [np.random.default_rng(seed) for seed in range(200)]
    slopes = [np.diff(augment(ramp, 8, "bilinear", rng)[4, :, 0].astype(int)).sum() for rng in generators]
    assert all(slopes) and 70 < sum(slope < 0 for slope in slopes) < 130


def tiny_network(pretrained: bool = False) -> ImageNetwork:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 6, 4, 4), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 5, 1))
    return ImageNetwork("tiny", layers, SQUARE, pretrained)


def test_image_network_gives_the_places_of_its_map_row_by_row():
    network = tiny_network().eval()
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    regions = network(pixels)
    expected = network.network(pixels.permute(0, 3, 1, 2).float() / 255)  # (2, 5, 2, 2)
    assert network.map_shape() == (4, 5) and regions.shape == (2, 4, 5)
    torch.testing.assert_close(regions[1, 2], expected[1, :, 1, 0])


@pytest.mark.parametrize("keep", [True, False])
def test_image_network_freezes_and_keeps_pretrained_statistics(keep):
    network = tiny_network(keep).train()
    norm = network.network[1]
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    assert norm.training != keep and network.network[0].training
    network(pixels).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert bool(norm.running_mean.any()) != keep
    network.freeze(True)
    before = norm.running_mean.clone()
    network.train()
    assert not network(pixels).requires_grad and not norm.training and torch.equal(norm.running_mean, before)
    network.freeze(False)
    assert network(pixels).requires_grad and norm.training != keep


def test_image_network_trains_on_a_batch_of_one_with_the_statistics_that_it_has():
    network = tiny_network()
    network.network.append(nn.AvgPool2d(2)).append(nn.BatchNorm2d(5))  # a map of one place
    pixels = torch.randint(0, 256, (1, 8, 8, 3), dtype=torch.uint8)
    expected = network.eval()(pixels)
    assert torch.equal(network.train()(pixels), expected) and network.network[-1].training


def test_image_network_is_restored_from_its_state_alone():
    network = build_image_network("resnet18", "none", 40)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.02)
    restored = restore_image_network(network.state_dict())
    assert (restored.name, restored.preprocessing.crop, restored.training) == ("resnet18", 40, False)
    assert restored.preprocessing.describe() == network.preprocessing.describe()
    pixels = torch.randint(0, 256, (1, 40, 40, 3), dtype=torch.uint8)
    assert torch.equal(restored(pixels), network.eval()(pixels)) and restored.map_shape() == (4, 512)
    state = network.state_dict()
    del state["network.0.weight"]
    expected = (
        r"weights can't be used: the file should hold the 121 weights of resnet18, but has 1 missing \(network\.0\.w"
    )
    with pytest.raises(InputError, match=expected):
        restore_image_network(state)
    with pytest.raises(InputError, match="the image network's weights can't be used: 'description'"):
        restore_image_network({})


def described(**changes: object) -> dict[str, object]:
    said = {"resize": 32, "crop": 32, "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear"}
    return {"backbone": "resnet18", "preprocessing": said | changes}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({**described(), "backbone": []}, r"its description should have text as 'backbone', but has \[\]\."),
        ({**described(), "preprocessing": 3}, r"its description should have a table as 'preprocessing', but has 3\."),
        ({**described(), "backbone": "resnet17"}, "backbone resnet17 is unknown"),
        ({**described(), "backbone": "json:loads"}, "should be one of torchvision's, .* but is json:loads"),
        (["resnet18"], r"its description should be a table of settings, but is \['resnet18'\]\."),
        ({"backbone": "resnet18"}, "'preprocessing'"),
        (
            described(crop=10**9),
            r"preprocessing of its description should have a whole number from 1 to 8192 as 'crop'",
        ),
        (described(crop="x"), "as 'crop', but has 'x'"),
        (described(resize=0), "a whole number from 1 to 16384 as 'resize', but has 0"),
        (described(mean=["a"] * 3), r"three numbers from -1000 to 1000 as 'mean', but has \['a', 'a', 'a'\]"),
        (described(std=[0, 0, 0]), r"three numbers from 0\.0001 to 1000 as 'std', but has \[0, 0, 0\]"),
        (described(std=[1]), r"as 'std', but has \[1\]"),
        (described(interpolation="nothing"), "one of nearest, .*bicubic, .* as 'interpolation', but has 'nothing'"),
        (described(more=1), "unexpected keyword argument 'more'"),
    ],
)
def test_image_network_whose_description_makes_no_sense_is_refused(said, message):
    state = build_image_network("resnet18", "none", 32).state_dict()
    state["description"] = torch.tensor(list(json.dumps(said).encode()), dtype=torch.uint8)
    expected = rf"^the image network's weights in r/model\.safetensors can't be used: .*{message}"
    with pytest.raises(InputError, match=expected) as caught:
        restore_image_network(state, "r/model.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b'{"backbone": "\xff"}', "'utf-8' codec can't decode byte 0xff"),
        (b"[" * 5000, "it nests too deeply"),
        (b'{"backbone": %s}' % (b"9" * 4000), "it has a number of 4000 digits"),
        (b'{"backbone": "\\ud800"}', "it has half a character"),
    ],
)
def test_image_network_whose_description_is_no_plain_json_is_refused(said, message):
    with pytest.raises(InputError, match=f"the image network's weights can't be used: {message}"):
        restore_image_network({"description": torch.tensor(list(said), dtype=torch.uint8)})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scattering", None, 32), "^scattering has no weights to learn. Use its features instead"),
        (
            ("timm:resnet18", None, None),
            "network that is trained along should be one of torchvision's, .* but is timm:resnet18",
        ),
        (("resnet17", None, None), "^backbone resnet17 is unknown"),
        (("resnet18", "IMAGENET", None), "^IMAGENET is neither a file nor weights of resnet18"),
    ],
)
def test_image_network_refuses_what_cannot_be_trained(arguments, message):
    with pytest.raises(InputError, match=message):
        build_image_network(*arguments)
