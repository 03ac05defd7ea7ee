"""`--dry-run`: its numbers are those of the real run, its arithmetic is checked with a clock that only it moves."""

import os
import shutil
import threading
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.features.maps import dry_run_of_map, extract_map
from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features import extraction
from visual_grounding.features.backbones import Backbone, Preprocessing
from visual_grounding.features.dry_run import Pace, measure, readable_size, readable_time
from visual_grounding.features.extraction import Unreadable
from visual_grounding.features.map_extractor import Pooling
from visual_grounding.images.sources import open_images
from visual_grounding.storage import estimate
from visual_grounding.storage.artefact import array_bytes


class Clock:
    """Seconds that pass only when told; several threads may tell it."""

    def __init__(self) -> None:
        self.now = 100.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


class Slow(nn.Module):
    """A map of 2x2 places; each image takes 0.5 s of the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.clock.pass_by(0.5 * len(images))
        return nn.functional.avg_pool2d(images, 8)


def slow(clock: Clock) -> Backbone:
    return Backbone("slow", Slow(clock), Preprocessing(16, 16), "none")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(11):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"é{number}.png")
    return folder


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def test_pace_of_a_batch_worked_by_hand() -> None:
    # Reading takes 0.25 s an image: 6 images 1.5 s. The network takes 6 * 0.5 s, the first of two times for warming up.
    clock = Clock()

    def load(row: int) -> int | Unreadable:
        clock.pass_by(0.25)
        return Unreadable("empty file") if row == 12 else row

    def finish(pictures: Sequence[int]) -> None:
        assert list(pictures) == [10, 11, 13, 14, 15, 10]  # as many as a real batch has
        clock.pass_by(0.5 * len(pictures))

    pace = measure(load, finish, range(10, 16), 3, clock)
    assert pace == Pace(6, 0.25, 0.5, ["empty file"])
    assert clock.now == 100 + 6 * 0.25 + 2 * 6 * 0.5
    assert pace.seconds(1000, overlapped=True) == 500.0  # the slower half
    assert pace.seconds(1000, overlapped=False) == 750.0  # one after the other, on the same cores
    assert measure(lambda row: Unreadable("missing"), finish, range(3), 1, clock) == Pace(3, 0.0, 0.0, ["missing"] * 3)


def test_estimate_of_a_cpu_adds_both_halves_for_the_images_left(images: Path, tmp_path: Path) -> None:
    clock = Clock()
    found = dry_run_of_map(open_images(images), slow(clock), tmp_path / "out", device="cpu", batch_size=4, clock=clock)
    # Decoding costs none of this clock's time, the network 0.5 s an image.
    assert found.pace == Pace(4, 0.0, 0.5, []) and found.seconds == 11 * 0.5
    assert "time       about 6 s" in found.describe() and "2.0 images/s, by 4 images" in found.describe()


@pytest.mark.parametrize("pooling", [Pooling("mean"), Pooling("grid", 2)])
def test_size_is_that_of_what_a_real_run_writes(images: Path, tmp_path: Path, pooling: Pooling) -> None:
    arguments = (open_images(images), slow(Clock()), tmp_path / "out", pooling)
    choices: dict[str, Any] = {"device": "cpu", "batch_size": 4, "shard_size": 3}
    found = dry_run_of_map(*arguments, **choices)
    extract_map(*arguments, **choices)
    assert found.size == sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) > 500
    assert found.shape == (11, 4 if pooling.kind == "grid" else 1, 3)
    again = dry_run_of_map(*arguments, **choices)
    assert again.estimate.finished and again.pace is None and again.estimate.lacking(10**18) == 0
    assert "state      finished already" in again.describe() and "time" not in again.describe()


def test_dry_run_writes_nothing_and_sees_what_an_interrupted_run_left(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (open_images(images), slow(Clock()), tmp_path / "out")
    choices: dict[str, Any] = {"device": "cpu", "batch_size": 2, "shard_size": 4}
    before = everything(tmp_path)
    found = dry_run_of_map(*arguments, **choices)
    assert everything(tmp_path) == before and found.images_left == 11 and found.estimate.claimed == 0
    assert "state      nothing there yet" in found.describe()
    write = extraction.StoreWriter.write

    def interrupted(self: extraction.StoreWriter, shard: Any, *rest: Any) -> None:
        if shard.number == 1:
            raise KeyboardInterrupt
        write(self, shard, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extraction.StoreWriter, "write", interrupted)
        extract_map(*arguments, **choices)
    before = everything(tmp_path)
    clock = Clock()
    found = dry_run_of_map(open_images(images), slow(clock), tmp_path / "out", clock=clock, **choices)
    assert everything(tmp_path) == before
    assert found.images_left == 7 and found.seconds == 7 * 0.5
    assert found.estimate.claimed == (tmp_path / "out.partial/files/features.npy").stat().st_size
    assert "interrupted; a run would continue: 4 images done, 7 left" in found.describe()
    with pytest.raises(InputError, match=r"out\.partial was made with other choices \(batch_size was 2, now 3\)"):
        dry_run_of_map(*arguments, **{**choices, "batch_size": 3})
    (tmp_path / "out.partial/progress/plan.json").write_text("{")
    with pytest.raises(InputError, match=r"plan\.json should say what was done before, but is broken.*Delete"):
        dry_run_of_map(*arguments, **choices)
    extract_map(open_images(images), slow(Clock()), tmp_path / "whole", **choices)
    with pytest.raises(InputError, match=r"whole was made with other choices \(pool was 'mean', now 'max'\)"):
        dry_run_of_map(open_images(images), slow(Clock()), tmp_path / "whole", Pooling("max"), **choices)


def test_outputs_that_can_not_be_written_are_refused(images: Path, tmp_path: Path, monkeypatch) -> None:
    def refused(out: Path, message: str, **choices: Any) -> None:
        with pytest.raises(InputError, match=message):
            dry_run_of_map(open_images(images), slow(Clock()), out, device="cpu", **choices)

    refused(images, r"images exists and isn't a finished feature-store\. Choose another folder")
    (tmp_path / "file").touch()
    refused(tmp_path / "file/deep/out", r"out can't be written: .*file is no folder\. Choose another folder")
    refused(tmp_path / "out", r"shard size should be at least 1, but is 0", shard_size=0)
    refused(tmp_path / "out", r"batch size should be at least 1, but is 0", batch_size=0)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    refused(tmp_path / "out", r"out can't be written: no permission, or a read-only disk\. Choose another folder")


def test_dry_run_says_what_a_run_takes_and_returns_2_where_the_disk_does_not_suffice(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "é5.png").write_bytes(b"")
    command = ["extract", "--images", images, "--backbone", "scattering", "--device", "cpu", "--out", tmp_path / "out"]
    before = everything(tmp_path)
    assert main([*map(str, command), "--dry-run"]) == 0
    out, err = capsys.readouterr()
    size = 128 + 11 * 216 * 2
    assert array_bytes((11, 1, 216), "float16") == size
    assert "images     11, the first is é0.png\n" in out
    assert f"output     {tmp_path / 'out'}: (11, 1, 216) float16, " in out and " GiB free" in out
    assert "images/s, the network on cpu" in out and "unreadable 1 of these 11; the first: empty file" in out
    assert out.endswith("Nothing was written.\n") and err == ""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**9, 10**9 - 2048, 2048))
    assert estimate.shutil is shutil
    assert main([*map(str, command), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert "disk       2.0 KiB free" in out
    assert f"{tmp_path / 'out'} needs 9." in err and "KiB, but the disk has 2.0 KiB free. Free 7." in err
    assert everything(tmp_path) == before


def test_disk_has_to_hold_the_store_and_the_notes_of_its_shards() -> None:
    shards = list(estimate.shards_of(10, 4))
    assert [tuple(shard) for shard in shards] == [(0, 0, 4), (1, 4, 8), (2, 8, 10)]
    # 10,000 bytes and 3 notes of 4096: 22,288 are needed.
    assert estimate.Estimate(True, [], 0, 0).lacking(10_000) == 0  # it is there
    assert estimate.Estimate(False, shards, 22_288, 0).lacking(10_000) == 0
    assert estimate.Estimate(False, shards, 22_287, 0).lacking(10_000) == 1
    assert estimate.Estimate(False, shards, 12_288, 10_000).lacking(10_000) == 0  # its place is taken already


def test_sizes_and_times_are_said_in_words() -> None:
    assert [readable_size(count) for count in (0, 1023, 1024, 1536, 2**20 - 1, 5 * 2**40, 2**61)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "1024.0 KiB", "5.0 TiB", "2048.0 PiB"
    ]  # fmt: skip
    assert [readable_time(seconds) for seconds in (0, 1.6, 59.4, 60, 3599, 3600, 90_000)] == [
        "1 s", "2 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 1 h"
    ]  # fmt: skip
