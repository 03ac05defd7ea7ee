"""scripts/gpu.sh with parts of a second: whatever happens to one, the others run, and the report says so."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import run_script
from conftest import REPOSITORY

SCRIPT = REPOSITORY / "scripts/gpu.sh"
ENVIRONMENT = Path(sys.executable).parents[1]


def write_parts(folder: Path, *parts: tuple[str, int, str]) -> Path:
    path = folder / "parts.tsv"
    path.write_text("".join(f"{name}\t{limit}\t{command}\n" for name, limit, command in parts))
    return path


def start(folder: Path, *parts: tuple[str, int, str], **variables: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PARTS": str(write_parts(folder, *parts)),
        "ENVIRONMENT": str(ENVIRONMENT),
        **variables,
    }
    command = ["bash", str(SCRIPT), str(folder / "report.md")]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def run(folder: Path, *parts: tuple[str, int, str], **variables: str) -> tuple[int, str]:
    process = start(folder, *parts, **variables)
    process.communicate(timeout=60)
    return process.returncode, (folder / "report.md").read_text()


def results(report: str) -> dict[str, str]:
    """Part and result, from the report's table."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ?([^|]*?) ?\|$", report, re.MULTILINE)
    return {name: result for name, result, _ in rows if name not in ("part", "---")}


def wait_for(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_failing_and_a_hanging_part_keep_no_other_from_running(tmp_path: Path) -> None:
    status, report = run(
        tmp_path,
        ("good", 20, "echo a table"),
        ("broken", 20, "echo before; echo why >&2; exit 3"),
        ("missing", 20, "no-such-command-here"),
        ("hangs", 1, "echo begun; sleep 100 & sleep 100"),
        ("last", 20, "echo done"),
    )
    assert status == 1
    assert results(report) == {
        "good": "passed",
        "broken": "failed with status 3",
        "missing": "failed with status 127",
        "hangs": "stopped after 1 s",
        "last": "passed",
    }
    assert "a table" in report and "before\nwhy" in report and "begun" in report
    assert (tmp_path / "report/02-broken.log").read_text() == "before\nwhy\n"


def test_all_that_passes_is_status_0_and_a_long_log_is_shortened(tmp_path: Path) -> None:
    status, report = run(tmp_path, ("many lines", 20, "seq 1 200"))
    assert status == 0 and results(report) == {"many lines": "passed"}
    assert "The last 80 of 200 lines" in report and "\n121\n" in report and "\n120\n" not in report


def test_nothing_that_a_stopped_part_started_lives_on(tmp_path: Path) -> None:
    marker = tmp_path / "written too late"
    run(tmp_path, ("hangs", 1, f"(sleep 3; touch '{marker}') & wait"))
    time.sleep(3)
    assert not marker.exists()


def test_no_part_begins_when_the_time_is_over(tmp_path: Path) -> None:
    status, report = run(tmp_path, ("long", 20, "sleep 100"), ("late", 20, "echo late"), SECONDS_IN_ALL="2")
    assert status == 1 and results(report) == {"long": "stopped after 2 s", "late": "no time left"}


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_cut_off_leaves_what_was_done(tmp_path: Path, ending: signal.Signals) -> None:
    process = start(tmp_path, ("first", 20, "echo a table"), ("second", 20, "sleep 15"), ("third", 20, "echo never"))
    report = tmp_path / "report.md"
    wait_for(lambda: report.exists() and results(report.read_text()).get("second") == "running")
    process.send_signal(ending)
    process.communicate(timeout=30)
    found = results(report.read_text())
    assert (found["first"], found["third"]) == ("passed", "not run") and "a table" in report.read_text()
    assert re.fullmatch(r"cut off after \d+ s" if ending == signal.SIGTERM else "running", found["second"])


def test_a_benchmark_is_told_to_end_before_it_is_stopped(tmp_path: Path) -> None:
    process = start(tmp_path, ("first", 20, "echo within $BENCHMARK_LIMIT s"))
    process.communicate(timeout=30)
    assert "within 14 s" in (tmp_path / "report.md").read_text()


def listed_parts(**variables: str) -> list[list[str]]:
    environment = {name: value for name, value in os.environ.items() if name not in ("ENVIRONMENT", "PARTS")}
    done = subprocess.run(
        ["bash", str(SCRIPT), "--list"], env={**environment, **variables}, capture_output=True, text=True, check=True
    )
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_the_parts_are_the_tests_the_benchmarks_and_the_quickstart_and_fit_into_half_an_hour() -> None:
    parts = listed_parts()
    names = [name for name, _, _ in parts]
    benchmarks = {"search", "nearest image", "training step", "modality loss", "pre-training step", "vokenization"}
    benchmarks |= {"understanding step", "extraction", "detection"}
    assert names[0] == "set-up" and benchmarks | {"machine", "tests", "quickstart"} <= set(names)
    assert sum(int(limit) for _, limit, _ in parts) <= 2100  # each may take long, not all of them: 1680 s stop it
    assert "set-up" not in [name for name, _, _ in listed_parts(ENVIRONMENT="there")]
    scripts = [word for _, _, command in parts for word in command.split() if word.endswith((".py", ".sh"))]
    assert len(scripts) >= 6 and all((REPOSITORY / script).is_file() for script in scripts)


@pytest.mark.parametrize("command", [command for name, _, command in listed_parts() if "benchmarks/" in command])
def test_a_benchmark_of_the_list_knows_its_flags(command: str) -> None:
    _, script, *flags = command.split()
    done = run_script(REPOSITORY / script, *flags, "--help", cwd=REPOSITORY)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr


@pytest.mark.slow
def test_gpu_tests_are_skipped_where_there_is_no_device() -> None:
    """Every test marked `gpu`: counted where they are collected, and run nowhere without a device."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "-rs"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\n\d\d+ skipped, \d+ deselected", done.stdout) and "passed" not in done.stdout.splitlines()[-1]
