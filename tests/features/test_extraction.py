"""Pixels to store: the same numbers as a plain loop, whatever the threads; unreadable files never shift a row."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.features.maps import extract_map
from visual_grounding import devices
from visual_grounding.devices import choose_device
from visual_grounding.errors import InputError
from visual_grounding.features import extraction
from visual_grounding.features.backbones import Backbone, Preprocessing, load_backbone
from visual_grounding.features.extraction import map_ahead
from visual_grounding.features.map_extractor import Pooling
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images, read_image


class Averages(nn.Module):
    """A map of 4x4 places from 16x16 pixels: mean red, green, blue and their sum; `factor` spoils it."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        cells = torch.nn.functional.avg_pool2d(images, 4)
        return torch.cat([cells, cells.sum(1, keepdim=True)], dim=1) * self.factor


def averages(factor: float = 1.0, weights: str = "none") -> Backbone:
    return Backbone("averages", Averages(factor), Preprocessing(16, 16), weights)


def write_images(folder: Path, count: int = 7) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = rng.integers(0, 256, (20 + number, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_ranks_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert devices.cores() == 8
    for name, value in (("WORLD_SIZE", "12"), ("RANK", "0"), ("LOCAL_WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    assert devices.cores() == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "12")
    assert devices.cores() == 1


def test_pooling_of_a_map_worked_by_hand() -> None:
    # One channel, 4x4:   1  2 |  3  4      cells of a 2x2 grid, row by row:
    #                     5  6 |  7  8      (1+2+5+6)/4 = 3.5    (3+4+7+8)/4 = 5.5
    #                    ------+-------     (9+10+13+14)/4 = 11.5   (11+12+15+16)/4 = 13.5
    #                     9 10 | 11 12
    #                    13 14 | 15 16
    feature_map = torch.arange(1.0, 17).reshape(1, 1, 4, 4)
    assert Pooling("mean").regions(feature_map).tolist() == [[[8.5]]]
    assert Pooling("max").regions(feature_map).tolist() == [[[16.0]]]
    assert Pooling("grid", 2).regions(feature_map).tolist() == [[[3.5], [5.5], [11.5], [13.5]]]
    assert Pooling("grid").regions(feature_map).flatten().tolist() == list(range(1, 17))
    assert Pooling("grid", 1).regions(feature_map).tolist() == [[[8.5]]]


@pytest.mark.parametrize("pooling", [Pooling("mean"), Pooling("max"), Pooling("grid", 2), Pooling("grid")])
def test_extract_equals_a_loop_over_single_images(images: Path, tmp_path: Path, pooling: Pooling) -> None:
    backbone, source = averages(), open_images(images)
    summary = extract_map(source, backbone, tmp_path / "out", pooling, "cpu", batch_size=2, shard_size=3)
    store = FeatureStore(tmp_path / "out")
    assert (len(store), store.num_regions, store.feature_size) == tuple(summary)[:3] == (7, store.num_regions, 4)
    assert list(store.keys()) == [f"{number}.png" for number in range(7)]
    for row in range(7):
        pixels = np.asarray(backbone.preprocessing.pixels(read_image(source, row))) / 255
        cells = pixels.reshape(4, 4, 4, 4, 3).mean(axis=(1, 3))
        cells = np.concatenate([cells, cells.sum(-1, keepdims=True)], -1)
        expected = {
            "mean": cells.mean((0, 1))[None],
            "max": cells.max((0, 1))[None],
            "grid": cells.reshape(16, 4)
            if pooling.grid is None
            else cells.reshape(2, 2, 2, 2, 4).mean((1, 3)).reshape(4, 4),
        }[pooling.kind]
        np.testing.assert_allclose(store.features[row], expected, atol=2e-3)


def test_extract_gives_resnets_own_pooled_features(tmp_path: Path) -> None:
    source = open_images(write_images(tmp_path / "images", 3))
    backbone = load_backbone("resnet18", "none")
    extract_map(source, backbone, tmp_path / "out", device="cpu", batch_size=3)
    pixels = np.stack([backbone.preprocessing.pixels(read_image(source, row)) for row in range(3)])
    with torch.no_grad():
        expected = nn.AdaptiveAvgPool2d(1)(backbone.network(backbone.preprocessing.normalise(torch.from_numpy(pixels))))
    found = torch.from_numpy(np.array(FeatureStore(tmp_path / "out").features)).float()
    torch.testing.assert_close(found[:, 0], expected.flatten(1), rtol=1e-3, atol=1e-3)


def test_store_has_the_same_bytes_whatever_the_number_of_threads(images: Path, tmp_path: Path) -> None:
    for workers in (1, 2, 9):
        extract_map(
            open_images(images), averages(), tmp_path / f"{workers}", device="cpu", batch_size=2, workers=workers
        )
    assert content_of(tmp_path / "1") == content_of(tmp_path / "2") == content_of(tmp_path / "9")


def test_store_has_the_same_bytes_when_interrupted(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (images / "1.png").write_bytes(b"")
    options = {"device": "cpu", "batch_size": 2, "shard_size": 3}
    extract_map(open_images(images), averages(), tmp_path / "whole", **options)
    written = []
    write = extraction.StoreWriter.write

    def interrupted(self: extraction.StoreWriter, *arguments: object) -> None:
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(arguments[0])
        write(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extraction.StoreWriter, "write", interrupted)
        extract_map(open_images(images), averages(), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists() and [shard.number for shard in written] == [0]
    (images / "0.png").write_bytes(bytes((images / "0.png").stat().st_size))  # its shard is done: not read again
    summary = extract_map(open_images(images), averages(), tmp_path / "out", **options)
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")
    assert summary.unreadable == 1


def test_another_plan_is_refused_with_the_choice(images: Path, tmp_path: Path) -> None:
    def again(message: str, *arguments: object, backbone: Backbone | None = None, **options: object) -> None:
        with pytest.raises(InputError, match=message):
            extract_map(
                open_images(images), backbone or averages(), tmp_path / "out", *arguments, device="cpu", **options
            )

    extract_map(open_images(images), averages(), tmp_path / "out", device="cpu")
    again(r"pool was 'mean', now 'max'", Pooling("max"))
    again(r"weights was 'none', now 'sha256-1'", backbone=averages(weights="sha256-1"))
    again(r"batch_size was 64, now 5", batch_size=5)
    (images / "0.png").write_bytes(b"other")
    again(r"made with other choices \(other images\)")


def test_unreadable_images_are_listed_and_shift_no_row(images: Path, tmp_path: Path) -> None:
    whole = extract_map(open_images(images), averages(), tmp_path / "whole", device="cpu", batch_size=2, shard_size=3)
    assert (whole.unreadable, whole.zero) == (0, 0) and not (tmp_path / "whole/unreadable.tsv").exists()
    (images / "1.png").write_bytes(b"")
    (images / "2.png").write_bytes((images / "2.png").read_bytes()[:200])
    (images / "5.png").write_text("<html>")
    (tmp_path / "list.txt").write_text("".join(f"images/{number}.png\n" for number in range(7)) + "images/gone.png\n")
    summary = extract_map(
        open_images(tmp_path / "list.txt"), averages(), tmp_path / "out", device="cpu", batch_size=2, shard_size=3
    )
    store, before = FeatureStore(tmp_path / "out"), FeatureStore(tmp_path / "whole")
    for row in range(7):
        expected = np.zeros((1, 4)) if row in (1, 2, 5) else before.features[row]
        np.testing.assert_array_equal(store.features[row], expected)
    assert store.gather(np.array([0, 1, 7]))[1].tolist() == [[False], [True], [True]]
    listed = (tmp_path / "out/unreadable.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in listed] == [f"images/{name}.png" for name in ("1", "2", "5", "gone")]
    reasons = [line.split("\t")[1] for line in listed]
    assert reasons[0] == "empty file" and reasons[1].startswith("broken or truncated: ")
    assert reasons[2:] == ["not an image", "missing"]
    text = summary.describe(tmp_path / "out")
    assert "8 images, 1 region of 4 numbers each" in text
    assert "4 of 8 images (50.0 %) are unreadable and count as absent" in text and "unreadable.tsv" in text
    again = extract_map(
        open_images(tmp_path / "list.txt"), averages(), tmp_path / "out", device="cpu", batch_size=2, shard_size=3
    )
    assert again == summary


def test_when_no_image_could_be_read_it_says_what_remembers_that(images: Path, tmp_path: Path) -> None:
    for path in images.glob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(
        InputError, match=rf"All 7 images .*mended, delete {tmp_path}/out\.partial, which remembers them"
    ):
        extract_map(open_images(images), averages(), tmp_path / "out", device="cpu")
    assert (tmp_path / "out.partial").is_dir()


def test_strict_stops_at_the_first_unreadable_image(images: Path, tmp_path: Path) -> None:
    (images / "4.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"^4\.png is unreadable \(empty file\); strictly, no such image is allowed"):
        extract_map(open_images(images), averages(), tmp_path / "out", device="cpu", strict=True)
    extract_map(open_images(images), averages(), tmp_path / "out", device="cpu")
    with pytest.raises(InputError, match=r"^4\.png is unreadable \(empty file\); strictly"):
        extract_map(open_images(images), averages(), tmp_path / "out", device="cpu", strict=True)


def test_threads_have_ended_when_it_stops(images: Path, tmp_path: Path) -> None:
    """They aren't left to the garbage collector, which may come by while another thread begins: that waits for ever."""
    (images / "4.png").write_bytes(b"")
    before = set(threading.enumerate())
    with pytest.raises(InputError) as kept:
        extract_map(
            open_images(images), averages(), tmp_path / "out", device="cpu", strict=True, batch_size=1, workers=2
        )
    assert kept.traceback and set(threading.enumerate()) - before == set()


def test_strict_sees_what_an_interrupted_run_found(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (images / "4.png").write_bytes(b"")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extraction.StoreWriter, "publish", interrupted)
        extract_map(open_images(images), averages(), tmp_path / "out", device="cpu")
    with pytest.raises(InputError, match=r"^4\.png is unreadable"):
        extract_map(open_images(images), averages(), tmp_path / "out", device="cpu", strict=True)
    assert not (tmp_path / "out").exists()


def test_collection_without_any_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\n")
    with pytest.raises(InputError, match=r"All 2 images are unreadable; the first is a\.jpg \(missing\)"):
        extract_map(open_images(tmp_path / "list.txt"), averages(), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (float("nan"), r"should be finite numbers, but row 0 \(0\.png\) holds nan\. 7 such images among these 7"),
        (1e6, r"row 0 \(0\.png\) holds [\d.e+]+, too large for float16 \(±65504\); scale them"),
    ],
)
def test_features_that_are_not_finite_are_refused(images: Path, tmp_path: Path, factor: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        extract_map(open_images(images), averages(factor), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_choices_that_do_not_fit_are_refused(images: Path, tmp_path: Path) -> None:
    def refused(message: str, *arguments: object, **options: object) -> None:
        with pytest.raises(InputError, match=message):
            extract_map(open_images(images), averages(), tmp_path / "out", *arguments, **{"device": "cpu", **options})

    refused(r"batch size should be at least 1, but is 0", batch_size=0)
    refused(r"workers should be at least 1, but is 0", workers=0)
    refused(r"shard size should be at least 1, but is -1", shard_size=-1)
    refused(
        r"the grid should be 1 to 4, because the map of averages is 4x4 here, but is 5\. A larger image size",
        Pooling("grid", 5),
    )
    refused(r"the grid should be 1 to 4, .* but is 0", Pooling("grid", 0))
    refused(r"a grid of 2 needs the pooling grid, but the pooling is max", Pooling("max", 2))
    refused(r"the pooling should be one of mean, max, grid, own, but is min", Pooling("min"))
    refused(r"the device should be cpu, cuda or cuda:N, but is gpu; here: cpu", device="gpu")
    refused(r"device cuda:99 doesn't exist here; there is: cpu", device="cuda:99")
    refused(r"device meta doesn't exist here; there is: cpu", device="meta")
    assert choose_device("cpu").type == "cpu"
    assert choose_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_memory_that_does_not_suffice_names_the_flag(images: Path, tmp_path: Path) -> None:
    class Greedy(Averages):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if len(images) > 1:
                raise torch.cuda.OutOfMemoryError
            return super().forward(images)

    greedy = Backbone("greedy", Greedy(), Preprocessing(16, 16), "none")
    with pytest.raises(
        InputError, match=r"5 images at once don't fit into the memory of cpu\. Choose a smaller batch size"
    ):
        extract_map(open_images(images), greedy, tmp_path / "out", device="cpu", batch_size=5)


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, CUDA])])
def test_pictures_are_decoded_while_the_network_computes(images: Path, tmp_path: Path, device: str) -> None:
    later_was_read = threading.Event()

    class Noting:  # a source that notes when an image of the second batch is read
        def __init__(self) -> None:
            self.inner = open_images(images)
            self.keys, self.digest = self.inner.keys, self.inner.digest

        def read(self, row: int) -> bytes:
            if row >= 2:
                later_was_read.set()
            return self.inner.read(row)

    class Waiting(Averages):  # its first batch ends only when that has happened
        batches = 0

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            if len(pixels) == 2:
                self.batches += 1
                assert later_was_read.wait(30), "no image was read while the network computed"
            return super().forward(pixels)

    network = Waiting()
    backbone = Backbone("waiting", network, Preprocessing(16, 16), "none")
    later_was_read.clear()
    extract_map(Noting(), backbone, tmp_path / "out", device=device, batch_size=2, workers=1)
    assert network.batches == 3 and later_was_read.is_set()


def test_bfloat16_is_close_to_float32_and_another_plan(images: Path, tmp_path: Path) -> None:
    source, features = open_images(images), {}
    for precision in ("float32", "bfloat16"):
        backbone = load_backbone("timm:test_vit.r160_in1k", "none")
        extract_map(source, backbone, tmp_path / precision, device="cpu", precision=precision)
        store = FeatureStore(tmp_path / precision)
        features[precision] = np.array(store.features, np.float32)
        assert store.plan["precision"] == precision and f"|precision:{precision}|" in store.signature
    error = np.abs(features["bfloat16"] - features["float32"]).max() / np.abs(features["float32"]).max()
    assert 1e-4 < error < 0.05
    with pytest.raises(InputError, match=r"precision was 'bfloat16', now 'float32'"):
        extract_map(source, load_backbone("timm:test_vit.r160_in1k", "none"), tmp_path / "bfloat16", device="cpu")


def test_precisions_that_the_device_lacks_are_refused(images: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"float16 needs a CUDA device; on cpu choose bfloat16 or float32"):
        extract_map(open_images(images), averages(), tmp_path / "out", device="cpu", precision="float16")
    with pytest.raises(InputError, match=r"the precision should be one of float32, float16, bfloat16, but is float8"):
        extract_map(open_images(images), averages(), tmp_path / "out", device="cpu", precision="float8")
    assert not list(tmp_path.glob("out*"))


def test_own_pooling_is_stored_as_the_network_gives_it(images: Path, tmp_path: Path) -> None:
    class Brightest(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.amax(dim=(2, 3))

    backbone = Backbone("averages", Averages(), Preprocessing(16, 16), "none", own=Brightest())
    source = open_images(images)
    summary = extract_map(source, backbone, tmp_path / "out", Pooling("own"), "cpu", batch_size=2)
    assert (summary.regions, summary.size) == (1, 3)
    for row, stored in enumerate(FeatureStore(tmp_path / "out").features):
        expected = backbone.preprocessing.pixels(read_image(source, row)).max(axis=(0, 1)) / 255
        np.testing.assert_allclose(stored[0], expected, atol=1e-3)


def test_maps_need_not_be_square(images: Path, tmp_path: Path) -> None:
    class Wide(Averages):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return super().forward(pixels)[:, :, :2]

    backbone = Backbone("wide", Wide(), Preprocessing(16, 16), "none")
    for grid, regions in ((None, 8), (2, 4)):
        extract_map(open_images(images), backbone, tmp_path / f"{grid}", Pooling("grid", grid), "cpu")
        assert FeatureStore(tmp_path / f"{grid}").num_regions == regions
    with pytest.raises(
        InputError, match=r"the grid should be 1 to 2, because the map of wide is 2x4 here, but is 3\. A l"
    ):
        extract_map(open_images(images), backbone, tmp_path / "out", Pooling("grid", 3), "cpu")


def test_map_ahead_keeps_the_order_and_looks_no_further_than_told() -> None:
    asked: list[int] = []
    first_may_end = threading.Event()

    def items() -> Iterator[int]:
        for number in range(50):
            asked.append(number)
            yield number

    def square(number: int) -> int:
        if number == 0:
            assert first_may_end.wait(30)
        if number == 5:  # the others don't wait for the first
            first_may_end.set()
        return number * number

    results = map_ahead(square, items(), threads=3, ahead=5)
    assert next(results) == 0
    assert asked == [0, 1, 2, 3, 4, 5]
    assert list(results) == [number * number for number in range(1, 50)]


def test_map_ahead_passes_an_error_on() -> None:
    results = map_ahead(lambda number: 1 // number, [1, 0, 1], threads=2, ahead=1)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_nearly_what_the_cpu_gives_and_repeats_itself(tmp_path: Path) -> None:
    source = open_images(write_images(tmp_path / "images", 9))
    for out, device in (("cpu", "cpu"), ("cuda", "cuda"), ("again", "cuda")):
        extract_map(
            source, load_backbone("resnet18", "none"), tmp_path / out, device=device, batch_size=4, shard_size=6
        )
    assert content_of(tmp_path / "cuda") == content_of(tmp_path / "again")
    cpu, cuda = (np.array(FeatureStore(tmp_path / name).features, np.float32) for name in ("cpu", "cuda"))
    np.testing.assert_allclose(cuda, cpu, rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_cuda_in_half_precision_is_close_to_the_cpu_and_repeats_itself(tmp_path: Path, precision: str) -> None:
    source = open_images(write_images(tmp_path / "images", 9))
    extract_map(source, load_backbone("resnet18", "none"), tmp_path / "cpu", device="cpu")
    for out in ("cuda", "again"):
        backbone = load_backbone("resnet18", "none")
        extract_map(source, backbone, tmp_path / out, device="cuda", batch_size=4, shard_size=6, precision=precision)
    assert content_of(tmp_path / "cuda") == content_of(tmp_path / "again")
    cpu, cuda = (np.array(FeatureStore(tmp_path / name).features, np.float32) for name in ("cpu", "cuda"))
    assert np.abs(cuda - cpu).max() < 0.05 * np.abs(cpu).max()


@pytest.mark.data
def test_real_photos_give_features_of_their_own(real_data: Path, tmp_path: Path) -> None:
    tar = real_data / "flickr8k/images/test.tar"
    images = open_images(tar)
    (tmp_path / "few").mkdir()
    for row in range(4):
        (tmp_path / "few" / images.keys[row]).write_bytes(images.read(row))
    extract_map(open_images(tmp_path / "few"), load_backbone("resnet18", "none"), tmp_path / "out", device="cpu")
    features = np.array(FeatureStore(tmp_path / "out").features, np.float32)[:, 0]
    assert Image.open(io.BytesIO(images.read(0))).size == (128, 128)
    assert min(np.abs(features[i] - features[j]).max() for i in range(4) for j in range(i)) > 0.1
