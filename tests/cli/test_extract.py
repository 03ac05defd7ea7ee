"""`visual-grounding extract`: from files to a store, exit status 2 and the message alone where the input is wrong."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from commands import run_command
from PIL import Image

from tests.conftest import REPOSITORY, write_image_ids
from tests.features.tiny_onnx import write_detector
from tests.images.containers import write_parquet, write_tar, write_zip
from visual_grounding.cli.main import main
from visual_grounding.features import backbones
from visual_grounding.features.store import FeatureStore
from visual_grounding.storage.artefact import sha256_of_file


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
    assert re.search(r"100% 4/4 images, [\d.]+ images/s, 00:\d\d so far, 00:00 left\n", err)


@pytest.mark.parametrize("kind", ["zip", "shards", "parquet"])
def test_extract_gives_the_same_features_whatever_the_images_lie_in(images: Path, tmp_path: Path, kind: str) -> None:
    files = {path.name: path.read_bytes() for path in sorted(images.iterdir())}
    columns: list[str] = []
    if kind == "zip":
        source = str(write_zip(tmp_path / "i.zip", files))
    elif kind == "shards":
        (tmp_path / "shards").mkdir()
        for number, (name, content) in enumerate(files.items()):
            write_tar(tmp_path / f"shards/{number:03}.tar", {name: content, f"{number}.txt": b"a caption"})
        source = f"{tmp_path}/shards/{{000..002}}.tar"
    else:
        source = str(write_parquet(tmp_path / "i.parquet", list(files.values()), id=list(files)))
        columns = ["--image-column", "image", "--key-column", "id"]
    flags = ["--backbone", "scattering", "--batch-size", 2]
    assert extract("--images", images, *flags, "--out", tmp_path / "expected") == 0
    assert extract("--images", source, *columns, *flags, "--out", tmp_path / "store") == 0
    for name in ("features.npy", "keys.txt"):
        assert (tmp_path / "store" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()


def test_report_shows_images_from_parquet_and_says_why_its_paths_are_no_keys(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = [path.read_bytes() for path in sorted(images.iterdir())]
    source = write_parquet(tmp_path / "p.parquet", photos, ["same.jpg", "same.jpg", "c.jpg"])
    assert extract("--images", source, "--backbone", "scattering", "--out", tmp_path / "store") == 0
    warning = f"warning: {source}: image.path has 2 different paths that can be keys in 3 rows, so keys are FILE:ROW."
    assert warning in capsys.readouterr().err
    digest = sha256_of_file(tmp_path / "store/keys.txt")
    write_image_ids(tmp_path / "ids", np.array([[2, 0]], np.int32), digest)
    (tmp_path / "text").write_text("one\n")
    flags = ["--text", tmp_path / "text", "--image-ids", tmp_path / "ids", "--image-features", tmp_path / "store"]
    assert main([*map(str, ["report", *flags, "--images", source, "--out", tmp_path / "page"])]) == 0
    page = (tmp_path / "page/report.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == 2 and page.index("p.parquet:2") < page.index("p.parquet:0")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--key-column", "id"], "images isn't. See --key-column."),
        (["--images", "gone"], "parquet files, but doesn't exist"),
        (["--backbone", "resnet5000"], "backbone resnet5000 is unknown. Did you mean"),
        (
            ["--weights", "gone.pth"],
            "gone.pth should be a state_dict (.pth, .pt, .bin, .safetensors), but doesn't exist",
        ),
        (["--backbone", "timm:resnet5000"], "timm:resnet5000 is unknown to timm"),
        (
            ["--backbone", "clip:gone/model", "--weights", "gone"],
            "weights of clip:gone/model should be a folder with config.json",
        ),
        (
            ["--precision", "float16"],
            "precision float16 needs a CUDA device; on cpu choose bfloat16 or float32. See --precision and --device.",
        ),
        (["--pool", "own"], "resnet18 has no pooling of its own. Choose mean, max or grid. See --pool."),
        (["--grid", "2"], "a grid of 2 needs the pooling grid, but the pooling is mean. See --pool and --grid."),
        (["--device", "cuda:77"], "device cuda:77 doesn't exist here; there is: cpu. See --device."),
        (["--batch-size", "0"], "batch size should be at least 1, but is 0. See --batch-size."),
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


def test_extract_with_an_onnx_detector_writes_what_it_finds(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_detector(tmp_path / "tiny.onnx")
    (tmp_path / "names.json").write_text('{"0": "cat",\n "1": "dog",\n "2": "bird"}')  # its lines would fit, too
    flags: list[object] = ["--detector", f"onnx:{tmp_path}/tiny.onnx", "--label-names", tmp_path / "names.json"]
    flags += ["--feature-maps", "map_fine,map_mean", "--regions", 3, "--min-score", 0.25, "--nms-iou", 0.6]
    assert extract("--images", images, *flags, "--dry-run", "--out", tmp_path / "store") == 0
    assert "store: (3, 3, 6) float16 with boxes, labels, scores" in capsys.readouterr().out
    assert extract("--images", images, *flags, "--out", tmp_path / "store") == 0
    assert "store: 3 images, 3 regions of 6 numbers each, with boxes, labels, scores." in capsys.readouterr().out
    assert np.load(tmp_path / "store/labels.npy").tolist() == [[1, 0, 2]] * 3
    store = FeatureStore(tmp_path / "store")
    assert store.label_names == ["cat", "dog", "bird"] and store.plan["batch_size"] == 8
    flags[flags.index("map_fine,map_mean")] = "map_mean,map_fine"
    assert extract("--images", images, *flags, "--out", tmp_path / "swapped") == 0
    first, second = (np.array(FeatureStore(tmp_path / name).features) for name in ("store", "swapped"))
    np.testing.assert_array_equal(np.concatenate([second[..., 3:], second[..., :3]], axis=-1), first)
    assert not np.array_equal(first, second)
    flags[flags.index(0.25)] = 0.999
    capsys.readouterr()
    assert extract("--images", images, *flags, "--out", tmp_path / "none") == 0
    said = capsys.readouterr().out
    assert "3 of 3 images (100.0 %) have only zeros as features" in said
    assert said.endswith("No region of any image has a score of 0.999 or more: see --min-score.\n")


def test_extract_with_a_grid_labels_its_cells(images: Path, tmp_path: Path) -> None:
    flags = ["--backbone", "resnet18", "--weights", "none", "--image-size", 32, "--region-source", "grid", "--grid", 2]
    assert extract("--images", images, *flags, "--out", tmp_path / "store") == 0
    store = FeatureStore(tmp_path / "store")
    assert store.features.shape == (3, 4, 512) and store.columns == ("boxes", "labels", "scores")
    assert len(store.label_names) == 1000


def test_extract_with_boxes_says_where_the_cells_of_a_grid_lie(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--images", images, "--backbone", "scattering", "--image-size", 32, "--pool", "grid", "--grid", 2]
    assert extract(*flags, "--boxes", "--out", tmp_path / "store") == 0
    assert "3 images, 4 regions of 216 numbers each, with boxes." in capsys.readouterr().out
    assert FeatureStore(tmp_path / "store").columns == ("boxes",)
    assert extract(*flags, "--out", tmp_path / "plain") == 0
    assert FeatureStore(tmp_path / "plain").columns == ()


DETECTOR = ["--detector", "fasterrcnn_mobilenet_v3_large_320_fpn"]
BACKBONE = ["--backbone", "resnet18"]
CELLS = [*BACKBONE, "--region-source", "grid", "--grid", "2"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*DETECTOR, "--grid", "2"], "grid goes with a backbone; here it would mean nothing. Leave it out. See"),
        ([*DETECTOR, "--pool", "max"], "pool goes with a backbone; here it would mean nothing."),
        ([*DETECTOR, "--region-source", "grid"], "region source goes with a backbone; here it would mean nothing."),
        ([*DETECTOR, "--boxes"], "boxes goes with a backbone; here it would mean nothing."),
        ([*CELLS, "--boxes"], "boxes goes with regions that are parts of a map; here it would mean nothing."),
        ([*BACKBONE, "--regions", "5"], "regions goes with a detector; here it would mean nothing."),
        ([*BACKBONE, "--min-score", "0"], "min score goes with a detector; here it would mean nothing."),
        ([*BACKBONE, "--nms-across-classes"], "nms across classes goes with a detector; here it would"),
        ([*BACKBONE, "--label-names", "x"], "label names goes with a detector or the cells of a grid; here it would"),
        ([*CELLS, "--pool", "max"], "pool goes with regions that are parts of a map; here it would mean nothing."),
        ([*CELLS, "--feature-pca", "x"], "feature pca goes with a detector; here it would mean nothing."),
        ([*DETECTOR, "--feature-size", "3"], "needs the file that has them. See --feature-size and --feature-pca."),
        ([*DETECTOR, "--nms-across-classes"], "such as 0.7. See --nms-iou and --nms-across-classes."),
    ],
)
def test_flags_of_another_kind_of_extraction_are_refused(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert extract("--images", images, *flags, "--out", tmp_path / "store") == 2
    assert message in capsys.readouterr().err


def test_extract_says_that_a_finished_store_was_left_as_it_is(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--images", images, "--backbone", "scattering", "--image-size", 32, "--out", tmp_path / "store"]
    assert extract(*flags) == 0
    assert "is there already" not in capsys.readouterr().err
    (images / "0.jpg").write_bytes(
        (images / "0.jpg").read_bytes()[::-1]
    )  # as long as before: not noticed, so it says so
    assert extract(*flags) == 0
    assert (
        "store is there already, made by the same choices from the same inputs, as far as names and sizes tell: nothing"
        in (capsys.readouterr().err)
    )


def test_extract_that_asks_for_too_much_memory_says_so(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--images", images, "--backbone", "scattering", "--image-size", 1_000_000, "--out", tmp_path / "store"]
    assert extract(*flags) == 2
    assert "the image size should be 1 to 8192 pixels, but is 1000000. See --image-size." in capsys.readouterr().err
    monkeypatch.setattr(backbones, "LARGEST_SIDE", 1_000_000)
    assert extract(*flags) == 2
    assert "not enough memory (can't allocate memory: you tried to allocate" in capsys.readouterr().err


def test_extract_with_more_workers_than_the_machine_starts_says_so(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: Thread, really: Callable[[Thread], None] = Thread.start) -> None:
        if type(thread) is Thread:  # a pool's; tqdm has one of its own class
            raise RuntimeError("can't start new thread")
        really(thread)

    monkeypatch.setattr(Thread, "start", start)
    flags = ["--images", images, "--backbone", "scattering", "--image-size", 32, "--out", tmp_path / "store"]
    assert extract(*flags, "--workers", 3) == 2
    assert "extract: this machine starts no more threads. Give fewer --workers." in capsys.readouterr().err


def test_extract_strictly_returns_2_and_names_the_first_unreadable_image(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "1.jpg").write_bytes(b"")
    flags = ["--images", images, "--backbone", "scattering", "--out", tmp_path / "store"]
    assert extract(*flags, "--strict") == 2
    assert (
        "1.jpg is unreadable (empty file); strictly, no such image is allowed. See --strict." in capsys.readouterr().err
    )
    assert extract(*flags) == 0


def test_extract_runs_as_a_command(images: Path, tmp_path: Path) -> None:
    flags = ["--images", images, "--backbone", "scattering", "--device", "cpu", "--out", tmp_path / "store"]
    done = run_command("visual-grounding", "extract", *flags)
    assert done.returncode == 0, done.stderr
    assert "3 images, 1 region of " in done.stdout


OUTSIDE = '''
from torch import nn

from visual_grounding.features.backbones import Backbone, Preprocessing


class Colours(nn.Module):
    """A map of 2x2 mean colours, which training would spoil."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.9)

    def forward(self, images):
        return self.dropout(nn.functional.adaptive_avg_pool2d(images, 2))


def colours(weights, image_size, seed):
    side = image_size or 16
    return Backbone("whatever it calls itself", Colours(), Preprocessing(side, side), f"none-{seed}")
'''


@pytest.mark.parametrize("entry_point", [False, True])
def test_extract_takes_a_backbone_from_outside_the_package(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry_point: bool
) -> None:
    (tmp_path / "outside/somebody").mkdir(parents=True)
    (tmp_path / "outside/somebody/__init__.py").touch()
    (tmp_path / "outside/somebody/colours.py").write_text(OUTSIDE)
    name = "somebody.colours:colours"
    if entry_point:
        (tmp_path / "outside/somebody-1.0.dist-info").mkdir()
        (tmp_path / "outside/somebody-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: somebody\n")
        (tmp_path / "outside/somebody-1.0.dist-info/entry_points.txt").write_text(
            f"[visual_grounding.backbones]\nmean_colours = {name}\n"
        )
        name = "mean_colours"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "outside"), prepend=os.pathsep)
    flags = ["--images", images, "--device", "cpu", "--image-size", 8, "--seed", 3, "--out", tmp_path / "store"]
    done = run_command("visual-grounding", "extract", "--backbone", name, "--pool", "grid", *flags)
    assert done.returncode == 0, done.stderr
    store = FeatureStore(tmp_path / "store")
    assert (store.num_regions, store.feature_size, store.plan["backbone"]) == (4, 3, name)
    assert f"|backbone:{name}|weights:none-3|preprocessing:8/8|pool:grid|" in store.signature
    picture = np.asarray(Image.open(images / "0.jpg").convert("RGB").resize((10, 8), Image.Resampling.BILINEAR))[:, 1:9]
    expected = picture.reshape(2, 4, 2, 4, 3).mean(axis=(1, 3)).reshape(4, 3) / 255
    np.testing.assert_allclose(store.features[0], expected, atol=1e-3)


def test_extract_takes_a_whole_extractor_from_outside_the_package(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
    flags = [
        "--images",
        images,
        "--backbone",
        "tests.features.tile_detector:tile_detector",
        "--out",
        tmp_path / "store",
    ]
    done = run_command("visual-grounding", "extract", "--device", "cpu", *flags)
    assert done.returncode == 0, done.stderr
    assert "3 images, 4 regions of 3 numbers each, with boxes, labels, attributes, scores." in done.stdout
    store = FeatureStore(tmp_path / "store")
    assert store.label_names == ["red", "green", "blue"] and store.gather_columns(np.array([0]))["boxes"].any()
    assert extract(*flags, "--pool", "grid") == 2
    assert "has no map to be pooled, but the pooling is grid. See --pool and --grid." in capsys.readouterr().err


def test_extract_says_which_backbone_from_outside_can_not_be_loaded(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert extract("--images", images, "--backbone", "nobody.at_home:Network", "--out", tmp_path / "store") == 2
    assert "backbone nobody.at_home:Network can't be loaded: No module named 'nobody'" in capsys.readouterr().err
