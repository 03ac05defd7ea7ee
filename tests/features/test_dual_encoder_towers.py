"""Image towers of CLIP and SigLIP against transformers' own models and image processors."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import PICTURES, drawn_photo
from PIL import Image
from small_dual_encoder import make_dual_encoder

from tests.features.maps import extract_map
from visual_grounding.errors import InputError
from visual_grounding.features.backbones import Backbone, load_backbone
from visual_grounding.features.map_extractor import Pooling
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import UnreadableImage, open_images

FAMILIES = ["clip", "siglip"]


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dual_encoder(tmp_path_factory.mktemp("models") / request.param, request.param)


def prepared(backbone: Backbone, image: Image.Image) -> torch.Tensor:
    pixels = torch.from_numpy(backbone.preprocessing.pixels(image))[None]
    return backbone.preprocessing.normalise(pixels)


def library(folder: Path, image: Image.Image, **sizes: object) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pixels, last hidden states of all tokens, and the image embedding, by transformers alone."""
    from transformers import AutoImageProcessor, AutoModel

    pixels = AutoImageProcessor.from_pretrained(folder)(images=image, return_tensors="pt", **sizes)["pixel_values"]
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        states = model.vision_model(pixels, interpolate_pos_encoding=bool(sizes)).last_hidden_state
        found = model.get_image_features(pixels, interpolate_pos_encoding=bool(sizes))
    return pixels, states, found if isinstance(found, torch.Tensor) else found.pooler_output


@pytest.mark.parametrize("picture", PICTURES)
def test_tower_gives_what_transformers_gives(folder: Path, picture) -> None:
    image = picture()
    expected_pixels, states, embedding = library(folder, image)
    backbone = load_backbone(f"clip:{folder}")
    pixels = prepared(backbone, image)
    torch.testing.assert_close(pixels, expected_pixels, rtol=0, atol=1e-5)
    with torch.no_grad():
        found, own = backbone.network(pixels), backbone.own(pixels)
    torch.testing.assert_close(own, embedding, rtol=0, atol=1e-5)
    patches = states[:, -16:]  # CLIP has a class token before them
    assert found.shape == (1, 24, 4, 4)
    for row in range(4):
        for column in range(4):
            torch.testing.assert_close(found[0, :, row, column], patches[0, 4 * row + column], rtol=0, atol=1e-5)


def test_larger_pictures_interpolate_the_positions_as_transformers_does(folder: Path) -> None:
    crop = {"height": 48, "width": 48}
    sizes = {"size": {"shortest_edge": 48}, "crop_size": crop} if folder.name == "clip" else {"size": crop}
    pixels, states, embedding = library(folder, drawn_photo(), **sizes)
    backbone = load_backbone(f"clip:{folder}", image_size=48)
    found = prepared(backbone, drawn_photo())
    torch.testing.assert_close(found, pixels, rtol=0, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(backbone.own(found), embedding, rtol=0, atol=1e-5)
        torch.testing.assert_close(
            backbone.network(found).flatten(2).transpose(1, 2), states[:, -36:], rtol=0, atol=1e-5
        )
    with pytest.raises(
        InputError, match=r"the image size should be a multiple of 8, the patches of clip:.*, but is 50"
    ):
        load_backbone(f"clip:{folder}", image_size=50)


@pytest.mark.parametrize(
    ("pooling", "shape"),
    [(Pooling("own"), None), (Pooling("mean"), (1, 24)), (Pooling("grid"), (16, 24)), (Pooling("grid", 3), (9, 24))],
)
def test_extract_stores_each_pooling(folder: Path, tmp_path: Path, pooling: Pooling, shape) -> None:
    (tmp_path / "images").mkdir()
    for number in range(3):
        drawn_photo(80 + number, 100).save(tmp_path / f"images/{number}.png")
    backbone = load_backbone(f"clip:{folder}")
    extract_map(open_images(tmp_path / "images"), backbone, tmp_path / "out", pooling, "cpu", batch_size=2)
    store = FeatureStore(tmp_path / "out")
    assert store.features.shape[1:] == (shape or (1, 20 if folder.name == "clip" else 24))
    with torch.no_grad():
        inputs = prepared(backbone, drawn_photo(81, 100))
        found = backbone.own(inputs) if pooling.kind == "own" else backbone.network(inputs)
    np.testing.assert_allclose(store.features[1], pooling.regions(found)[0], atol=3e-3)
    assert f"weights:{backbone.weights}" in store.signature and f"pool:{pooling.kind}" in store.signature


def test_weights_are_named_alike_from_wherever_they_come(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModel

    AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "again", max_shard_size="20KB")
    shutil.copy(folder / "preprocessor_config.json", tmp_path / "again")
    here, there = load_backbone(f"clip:{folder}"), load_backbone("clip:name", str(tmp_path / "again"))
    assert len(list((tmp_path / "again").glob("*.safetensors"))) > 1
    assert here.weights == there.weights and re.fullmatch("sha256-[0-9a-f]{64}", here.weights)
    other = make_dual_encoder(tmp_path / "other", folder.name, seed=1)
    assert load_backbone(f"clip:{other}").weights != here.weights


def test_random_weights_need_no_weights_file_and_repeat_by_seed(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "model.safetensors").unlink()
    first, same, other = (load_backbone(f"clip:{copy}", "none", seed=seed) for seed in (1, 1, 2))
    inputs = prepared(first, drawn_photo())
    with torch.no_grad():
        assert torch.equal(first.network(inputs), same.network(inputs))
        assert not torch.equal(first.network(inputs), other.network(inputs))
    assert (first.weights, other.weights) == ("random-1", "random-2")


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "config.json").unlink(), r"copy: config\.json can't be loaded: .*hf download NAME --local-dir"),
        (lambda f: (f / "config.json").write_text("{"), r"copy: config\.json can't be loaded: .*It should be a folder"),
        (lambda f: edit_json(f / "config.json", model_type="bert"), r"of kind clip, siglip .*but its .* says bert\."),
        (
            lambda f: edit_json(f / "config.json", model_type="siglip2"),
            r"says siglip2\. Its pictures have no fixed size; take .*siglip2-base-patch16-224",
        ),
        (lambda f: (f / "model.safetensors").unlink(), r"copy: its weights can't be loaded: .*model\.safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), r"copy: its weights can't be loaded: "),
        (lambda f: (f / "preprocessor_config.json").unlink(), r"copy: preprocessor_config\.json can't be loaded: "),
        (
            lambda f: edit_json(
                f / "preprocessor_config.json",
                size={"height": 40, "width": 40},
                crop_size={"height": 40, "width": 40},
            ),
            r"should give pictures of 3x32x32 bytes, .* but gives 3x40x40 torch\.uint8",
        ),
    ],
)
def test_folder_that_cannot_be_used_is_refused(folder: Path, tmp_path: Path, break_it, message: str) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    break_it(tmp_path / "copy")
    with pytest.raises(InputError, match=message):
        load_backbone(f"clip:{tmp_path / 'copy'}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rescale_factor": 0}, r"a number from 0\.0001 to 1000 as 'rescale_factor', but has 0\."),
        ({"rescale_factor": "x"}, r"as 'rescale_factor', but has 'x'\."),
        ({"rescale_factor": None}, r"as 'rescale_factor', but has None\."),
        ({"size": None}, r"height and width, or shortest_edge, as 'size', but has None\."),
        ({"size": {"height": 10**9, "width": 32}}, r"a whole number from 1 to 8192 as 'size\.height', but has 10+\."),
        ({"size": {"shortest_edge": -1}}, r"as 'size\.shortest_edge', but has -1\."),
        ({"size": {"height": 32, "width": "x"}}, r"as 'size\.width', but has 'x'\."),
        ({"do_pad": True, "pad_size": {"height": 10**9, "width": 32}}, r"as 'pad_size\.height', but has 10+\."),
        ({"crop_size": {"height": 32, "width": 0}}, r"as 'crop_size\.width', but has 0\."),
        ({"resample": 7}, r"a whole number from 0 to 5 as 'resample', but has 7\."),
        ({"resample": "bicubic"}, r"as 'resample', but has 'bicubic'\."),
        ({"image_mean": 0.5}, r"three numbers from -1000 to 1000 as 'image_mean', but has 0\.5\."),
        ({"image_mean": [float("nan")] * 3}, r"as 'image_mean', but has \(nan, nan, nan\)\."),
        ({"image_std": [0, 0, 0]}, r"three numbers from 0\.0001 to 1000 as 'image_std', but has \(0, 0, 0\)\."),
        ({"image_std": [1]}, r"as 'image_std', but has \(1,\)\."),
        ({"image_std": ["a", "b", "c"]}, r"as 'image_std', but has \('a', 'b', 'c'\)\."),
        ({"image_std": None}, r"as 'image_std', but has None\."),
        ({"do_normalize": "x"}, r"true or false as 'do_normalize', but has 'x'\."),
    ],
)
def test_settings_of_pictures_that_make_no_sense_are_refused(
    folder: Path, tmp_path: Path, settings: dict, message: str
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    edit_json(tmp_path / "copy/preprocessor_config.json", **settings)
    with pytest.raises(InputError, match=rf"/copy/preprocessor_config\.json should have .*{message}") as caught:
        load_backbone(f"clip:{tmp_path / 'copy'}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resample": None}, r"`size` and `resample` must be specified if `do_resize` is `True`"),
        ({"preprocess": 3}, r"'int' object is not callable"),
        ({"device": "meta"}, r"can't convert meta device"),
        ({"size": {"longest_edge": 40}}, r"Size must contain 'height' and 'width' keys"),
    ],
)
def test_settings_that_prepare_no_picture_are_refused(
    folder: Path, tmp_path: Path, settings: dict, message: str
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy/preprocessor_config.json"
    edit_json(path, **settings)
    expected = rf"/preprocessor_config\.json should be an image processor's settings, but can't be read: {message}"
    with pytest.raises(InputError, match=expected):
        load_backbone(f"clip:{tmp_path / 'copy'}")
    nested = {"image_processor": json.loads(path.read_text()), "processor_class": "CLIPProcessor"}
    (tmp_path / "copy/processor_config.json").write_text(json.dumps(nested))
    path.unlink()
    with pytest.raises(InputError, match=expected.replace("preprocessor", "processor")):
        load_backbone(f"clip:{tmp_path / 'copy'}")


@pytest.mark.parametrize(
    "settings",
    [
        {"size": [32, 32]},
        {"size": {"height": 32, "width": 32}, "resample": 1},
        {"device": None, "data_format": "channels_first", "input_data_format": None, "do_pad": None, "pad_size": None},
        {"do_normalize": False, "image_mean": None, "image_std": [0, 0, 0]},
        {
            "do_rescale": False,
            "rescale_factor": 0,
            "image_mean": [123.7, 116.3, 103.5],
            "image_std": [58.4, 57.1, 57.4],
        },
        {"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]},
    ],
)
def test_settings_that_others_write_are_taken_as_transformers_takes_them(
    folder: Path, tmp_path: Path, settings: dict
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    edit_json(tmp_path / "copy/preprocessor_config.json", **settings)
    expected, *_ = library(tmp_path / "copy", drawn_photo())
    pixels = prepared(load_backbone(f"clip:{tmp_path / 'copy'}"), drawn_photo())
    scale = 255 if settings.get("do_normalize") is False and settings.get("do_rescale") is False else 1
    torch.testing.assert_close(pixels * scale, expected.float(), rtol=0, atol=2e-5)


def test_size_in_one_number_is_taken_as_transformers_takes_it(tmp_path: Path) -> None:
    folder = make_dual_encoder(tmp_path / "clip", "clip")
    edit_json(folder / "preprocessor_config.json", size=32, crop_size=32)
    expected, *_ = library(folder, drawn_photo())
    torch.testing.assert_close(prepared(load_backbone(f"clip:{folder}"), drawn_photo()), expected, rtol=0, atol=1e-5)


def test_weights_that_are_missing_are_refused(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "copy")
    state = load_file(folder / "model.safetensors")
    gone = sorted(name for name in state if name.startswith("vision_model.encoder.layers.1."))
    save_file(
        {name: tensor for name, tensor in state.items() if name not in gone},
        tmp_path / "copy/model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(InputError, match=rf"lacks {len(gone)}, the first .*encoder\.layers\.1\."):
        load_backbone(f"clip:{tmp_path / 'copy'}")


def test_name_that_is_not_here_says_what_to_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError) as caught:
        load_backbone("clip:openai/clip-vit-base-patch23")
    message = str(caught.value)
    assert "openai/clip-vit-base-patch23: config.json can't be loaded" in message
    assert "There is no such folder here. Did you mean openai/clip-vit-base-patch32" in message
    assert "hf download openai/clip-vit-base-patch23 --local-dir FOLDER" in message and "give FOLDER instead" in message
    with pytest.raises(
        InputError, match=r"weights of clip:.* should be a folder with config\.json.*but w\.pth is no folder"
    ):
        load_backbone("clip:openai/clip-vit-base-patch32", "w.pth")
    with pytest.raises(InputError, match=r"is unknown\. Did you mean clip:openai/clip-vit-base-patch32\?"):
        load_backbone("openai/clip-vit-base-patch32")
    with pytest.raises(InputError, match=r"is unknown\. Did you mean clip:google/siglip-base-patch16-224\?"):
        load_backbone("siglip:google/siglip-base-patch16-224")


def test_too_thin_picture_is_unreadable(tmp_path: Path) -> None:
    backbone = load_backbone(f"clip:{make_dual_encoder(tmp_path / 'clip', 'clip')}")
    with pytest.raises(UnreadableImage, match=r"300000x1 pixels, too thin to resize its short side to 32"):
        backbone.preprocessing.pixels(Image.new("RGB", (300_000, 1)))
