"""A disk that is full or can't be written: a clear error, status 2, and what was finished stays."""

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from faults.processes import Commands, Done, content_of

SIZE = 512 * 1024


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands("visual_grounding.cli.import_", "visual_grounding.features.importers") as started:
        yield started


@pytest.fixture
def flags(tmp_path: Path) -> list[object]:
    """Import 60 rows of 6 numbers in 20 shards."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "f.npy", rng.normal(size=(60, 6)).astype(np.float32))
    (tmp_path / "keys.txt").write_text("".join(f"{row}.jpg\n" for row in range(60)))
    return ["import", "--arrays", tmp_path / "f.npy", "--keys", tmp_path / "keys.txt", "--shard-size", 3]


def mount(folder: Path, options: str) -> bool:
    folder.mkdir(exist_ok=True)
    if shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of half a megabyte and 24 names; None where only root could make it, and isn't here."""
    folder = tmp_path / "disk"
    if not mount(folder, f"size={SIZE},nr_inodes=24"):
        yield None
        return
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def check_error(done: Done, message: str) -> None:
    assert done.status == 2, done
    assert re.search(message, done.err) and done.err.count("visual-grounding import: ") == 1, done.err
    assert "Traceback" not in done.err


def test_disk_that_is_too_small_is_told_before_anything_is_written(
    commands: Commands, disk: Path | None, tmp_path: Path
) -> None:
    np.save(tmp_path / "big.npy", np.ones((1000, 1000), np.float32))  # 2 MB as float16
    (tmp_path / "big.txt").write_text("".join(f"{row}.jpg\n" for row in range(1000)))
    arguments: list[object] = ["import", "--arrays", tmp_path / "big.npy", "--keys", tmp_path / "big.txt"]
    if disk is not None:
        done = commands.run([*arguments, "--out", disk / "store"])
        check_error(
            done,
            r"can't be written: No space left on device \(2,000,000 bytes are needed, [\d,]+ are free\)\.",
        )
        free = os.statvfs(disk)
        assert free.f_bavail * free.f_bsize > SIZE // 2  # it didn't stay full
        assert not (disk / "store").exists()
        return
    limit = (SIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1])  # the nearest that needs no root
    program = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, {limit})\n"
        "from visual_grounding.cli.main import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, *map(str, arguments), "--out", str(tmp_path / "store")]
    ended = subprocess.run(command, capture_output=True, text=True)
    check_error(
        Done(ended.returncode, 0, ended.stdout, ended.stderr), r"store\.partial can't be written: File too large"
    )
    assert not (tmp_path / "store").exists()


def test_disk_that_fills_up_keeps_what_is_finished_and_the_rerun_with_space_continues(
    commands: Commands, disk: Path | None, flags: list[object], tmp_path: Path
) -> None:
    assert commands.run([*flags, "--out", tmp_path / "whole"]).status == 0
    if disk is None:
        disk = tmp_path / "disk"
        done = commands.run([*flags, "--out", disk / "store"], full_at=30)
    else:
        done = commands.run([*flags, "--out", disk / "store"])  # no name is left for the marker of a later shard
    check_error(
        done, r"store\.partial/progress/0000\d\d\.json can't be written: No space left on device\. What is done"
    )
    finished = {path: path.stat().st_ino for path in (disk / "store.partial/progress").glob("0*.json")}
    assert 0 < len(finished) < 20
    assert not (disk / "store").exists()
    if disk.is_mount():
        check_error(commands.run([*flags, "--out", disk / "store"]), "No space left on device")
        subprocess.run(["mount", "-o", "remount,nr_inodes=1000", disk], check=True)
    done = commands.run([*flags, "--out", disk / "store"])
    assert done.status == 0, done.err
    assert f"{3 * len(finished)}/60" in done.err  # the progress bar starts there
    assert content_of(disk / "store") == content_of(tmp_path / "whole")


def test_output_that_cannot_be_written_is_refused(commands: Commands, disk: Path | None, flags: list[object]) -> None:
    if disk is None:
        done = commands.run([*flags, "--out", "/proc/store"])
        check_error(done, r"/proc/store\.partial can't be written: ")
        return
    assert commands.run([*flags, "--shard-size", 30, "--out", disk / "finished"]).status == 0
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    done = commands.run([*flags, "--out", disk / "store"])
    check_error(done, r"store\.partial can't be written: Read-only file system\.")
    done = commands.run([*flags, "--shard-size", 30, "--out", disk / "finished"])  # there is nothing to write
    assert done.status == 0 and "60 images" in done.out
