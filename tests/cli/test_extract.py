"""`visual-grounding extract`: from files to a store, exit status 2 and the message alone where the input is wrong."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import run_command
from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return folder


def extract(*arguments: object) -> int:
    return main(["extract", "--device", "cpu", *map(str, arguments)])


def test_extract_writes_a_store_and_says_what_is_in_it(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "broken.jpg").write_bytes(b"x")
    flags = ["--backbone", "resnet18", "--weights", "none", "--image-size", 64, "--pool", "grid", "--grid", 2]
    assert extract("--images", images, *flags, "--out", tmp_path / "store") == 0
    store = FeatureStore(tmp_path / "store")
    assert store.features.shape == (4, 4, 512)
    assert list(store.keys()) == ["0.jpg", "1.jpg", "2.jpg", "broken.jpg"]
    assert store.signature.startswith(
        "extract|images:4|backbone:resnet18|weights:random-1|preprocessing:73/64|pool:grid|grid:2|precision:float32|version:"
    )
    out, err = capsys.readouterr()
    assert "store: 4 images, 4 regions of 512 numbers each." in out
    assert "1 of 4 images (25.0 %) are unreadable" in out
    assert "4/4" in err and "image/s" in err  # progress


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--images", "gone"], "gone should be a folder, tar or .txt list of images, but doesn't exist"),
        (["--backbone", "resnet5000"], "--backbone resnet5000 is unknown. Did you mean"),
        (
            ["--weights", "gone.pth"],
            "--weights gone.pth should be a state_dict (.pth, .pt, .safetensors), but doesn't exist",
        ),
        (["--backbone", "timm:resnet5000"], "--backbone timm:resnet5000 is unknown to timm"),
        (["--backbone", "clip:gone/model", "--weights", "gone"], "--weights gone should be a folder with config.json"),
        (["--precision", "float16"], "--precision float16 needs --device cuda; on cpu give --precision bfloat16"),
        (["--pool", "own"], "--pool own: resnet18 has no pooling of its own. Give --pool mean."),
        (["--grid", "2"], "--grid 2 needs --pool grid, but --pool is mean"),
        (["--device", "cuda:77"], "--device cuda:77 doesn't exist here"),
        (["--batch-size", "0"], "--batch-size should be 1 or more, but is 0"),
        (["--out", "/proc/store"], "/proc/store.partial can't be written"),
    ],
)
def test_extract_prints_the_message_alone_and_returns_2(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    usual = [
        "--images",
        images,
        "--backbone",
        "resnet18",
        "--weights",
        "none",
        "--image-size",
        32,
        "--out",
        tmp_path / "store",
    ]
    assert extract(*usual, *flags) == 2
    err = capsys.readouterr().err.splitlines()
    assert [line for line in err if line.startswith("visual-grounding extract: ") and message in line]
    assert not any("Traceback" in line for line in err)
    assert not (tmp_path / "store").exists()


def test_extract_strictly_returns_2_and_names_the_first_unreadable_image(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "1.jpg").write_bytes(b"")
    flags = ["--images", images, "--backbone", "scattering", "--out", tmp_path / "store"]
    assert extract(*flags, "--strict") == 2
    assert "1.jpg is unreadable (empty file), and --strict allows no such image" in capsys.readouterr().err
    assert extract(*flags) == 0


def test_extract_runs_as_a_command(images: Path, tmp_path: Path) -> None:
    flags = ["--images", images, "--backbone", "scattering", "--device", "cpu", "--out", tmp_path / "store"]
    done = run_command("visual-grounding", "extract", *flags)
    assert done.returncode == 0, done.stderr
    assert "3 images, 1 region of " in done.stdout
