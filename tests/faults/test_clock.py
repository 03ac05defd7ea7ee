"""No decision depends on the time of day or on a file's date: clocks jump, and copies carry other dates."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from faults.processes import KILLED, Commands, content_of

import visual_grounding

PACKAGE = Path(visual_grounding.__file__).parent
DATES = {"st_mtime", "st_mtime_ns", "st_ctime", "st_ctime_ns", "st_atime", "getmtime", "getctime", "datetime"}
TIME_OF_DAY = {"time", "time_ns", "localtime", "gmtime", "ctime", "strftime"}


def names_of_time(path: Path) -> Iterator[str]:
    """What a module asks of clocks and files' dates."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.Attribute):
            of_module = isinstance(node.value, ast.Name) and node.value.id == "time"
            if of_module or node.attr in DATES:
                yield f"time.{node.attr}" if of_module else node.attr


def test_names_of_time_finds_every_way_to_ask(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import time\nfrom time import ctime as c\ntime.time()\npath.stat().st_mtime\n")
    assert set(names_of_time(tmp_path / "a.py")) == {"time.ctime", "time.time", "st_mtime"}


def test_storage_asks_only_how_long_it_has_waited() -> None:
    modules = sorted((PACKAGE / "storage").glob("*.py"))
    assert len(modules) > 5
    asked = {name for path in modules for name in names_of_time(path)}
    assert asked == {"time.monotonic", "time.sleep"}


def test_nothing_in_the_package_reads_a_files_date_or_the_time_of_day() -> None:
    for path in PACKAGE.rglob("*.py"):
        asked = set(names_of_time(path))
        assert not asked & DATES, path
        assert not asked & {f"time.{name}" for name in TIME_OF_DAY}, path


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands("visual_grounding.cli.import_", "visual_grounding.features.importers") as started:
        yield started


def test_import_continues_to_the_same_bytes_when_the_clock_jumps(commands: Commands, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.random.default_rng(0).normal(size=(20, 6)))
    (tmp_path / "keys.txt").write_text("".join(f"{row}.jpg\n" for row in range(20)))
    flags: list[object] = ["import", "--arrays", tmp_path / "f.npy", "--keys", tmp_path / "keys.txt"]
    flags += ["--shard-size", 3]
    assert commands.run([*flags, "--out", tmp_path / "whole"]).status == 0
    arguments = [*flags, "--out", tmp_path / "out"]
    for date, speed in ((4_000_000_000, -1000.0), (1, 1e6), (1_000_000_000, 0.0)):
        assert commands.run(arguments, kill_at=25, clock=[date, speed]).status == KILLED
        for path in [*tmp_path.rglob("*")]:
            os.utime(path, (date, date))
    assert commands.run(arguments, clock=[4_000_000_000, -1000.0]).status == 0
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")
