"""Alternating pairs, verdicts, and that the benchmarks run: small, whatever the goal says."""

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_script
from conftest import REPOSITORY
from small_grounded import make_encoder

FOLDER = REPOSITORY / "benchmarks"


@pytest.fixture
def pairs():
    spec = importlib.util.spec_from_file_location("pairs", FOLDER / "pairs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pairs"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["pairs"]


def test_pairs_doctests(pairs):
    found = doctest.testmod(pairs)
    assert found.attempted == 7 and not found.failed


def test_alternate_changes_who_begins_and_leaves_the_first_runs_out(pairs):
    ran = []
    seconds = {"ours": 3.0, "theirs": 2.0}
    compared = pairs.alternate(
        lambda: ran.append("ours"), lambda: ran.append("theirs"), 3, lambda action: (action(), seconds[ran[-1]])[1]
    )
    assert ran == ["ours", "theirs", "ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert compared.ratios == [1.5, 1.5, 1.5] and compared.median == 1.5


def test_alternate_begins_no_pair_that_would_end_too_late_and_says_so(pairs, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pairs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(pairs, "_started", 0.0)

    def action() -> None:
        now[0] += 40.0  # 80 s for the first runs, 80 s a pair

    compared = pairs.alternate(action, action, 5, lambda action: (action(), 1.0)[1])
    assert len(compared.ratios) == 2 and now[0] == 240 and not compared.first
    assert "(median of 2 pairs, as there was no time for 5, 1.000 to 1.000;" in str(compared)
    now[0] = 150.0  # first runs may have something to start: 80 s aren't left after 80, but half of them are
    assert not pairs.alternate(action, action, 5, lambda action: (action(), 1.0)[1]).first and now[0] == 310
    now[0] = 240.0
    took = iter([6.0, 3.0])
    compared = pairs.alternate(action, action, 5, lambda action: (action(), next(took))[1])  # the time is up
    assert compared.ratios == [2.0] and now[0] == 320
    assert str(compared) == "2.000 (the first runs, as there was no time for 5 pairs after them; 6.0 s against 3.0 s)"


def test_parts_that_would_end_too_late_are_left_out_and_named(pairs, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(pairs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(pairs, "_started", 0.0)
    measured = []
    for part in pairs.in_time([1, 4, 8, 16]):
        measured.append(part)
        now[0] += 120.0
    assert measured == [1, 4]
    assert capsys.readouterr().out.startswith("no time for 8, 16: 2 of 4 were measured; BENCHMARK_LIMIT=3600")
    assert list(pairs.in_time([1, 4])) == [1, 4]  # each takes no time


def test_seconds_and_noise_are_measured(pairs):
    assert pairs.seconds_of(lambda: None) < 0.1
    assert pairs.noise_of(lambda: sum(range(2000))) >= 0
    assert "threads" in pairs.machine() and "\n" not in pairs.machine()


def test_exit_status_is_1_where_a_goal_is_missed(pairs, capsys):
    verdicts = [pairs.verdict("a", 1.0, 1.0), pairs.verdict("b", 1.2, 1.1, 0.05)]
    assert (pairs.exit_status(verdicts), pairs.exit_status(verdicts[:1])) == (1, 0)
    assert capsys.readouterr().out.splitlines() == [
        "met: a is 1.000, at most 1.000 is the goal",
        "MISSED: b is 1.200, at most 1.100 is the goal (tolerance 0.050)",
    ]


def run(name: str, *flags: object) -> str:
    """What a benchmark prints; its status, 0 or 1, must be that of its verdicts."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, FOLDER / name, *map(str, flags)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == int("MISSED" in done.stdout), done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_search_benchmark_states_ratio_spread_and_verdict():
    printed = run("search.py", "--images", 3000, "--size", 16, "--queries", 40)
    assert "the same images in 100.0000% of places" in printed and "median of 5 pairs" in printed
    assert "search by faiss flat is" in printed


@pytest.mark.slow
def test_nearest_image_benchmark_states_both_ratios():
    pytest.importorskip("faiss")
    printed = run("nearest_image.py", "--device", "cpu", "--images", 3000, "--queries", 300, "--batch", 128)
    assert "the same image for 100.0000% of the tokens" in printed and "scan in float32: " in printed
    assert "the nearest image by faiss flat is" in printed and "the nearest image by product and argmax is" in printed


@pytest.mark.slow
def test_retrieval_memory_does_not_grow_with_the_collection():
    # Both larger than what is held at a time, some 10,000 captions: else the smaller one holds less.
    printed = run("retrieval_memory.py", "--small", 50_000, "--large", 100_000, "--sentences", 200)
    assert printed.count("met: ") == 3, printed


@pytest.mark.slow
def test_retrieval_slope_prints_an_estimate():
    printed = run("retrieval_slope.py", "--images", 400, "--sentences", 64, "--size", 8, "--joint-size", 8)
    assert "estimate for 1M images and 1M sentences: index" in printed


@pytest.mark.slow
def test_modality_loss_benchmark_states_both_costs():
    printed = run(
        "modality_loss.py", "--device", "cpu", "--arch", "vtlm_translation_tiny", "--sentences", 2, "--length", 4,
        "--pairs", 1,
    )  # fmt: skip
    assert printed.count("with the modality loss (") == 2 and "beam search of 2 sentences with 36 regions" in printed
    assert "training step, modality loss / none is" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags", "stated"),
    [
        ("training_step.py", ["--images-per-sentence", 2, "--max-tokens", 100, "--model-flags", "--decoder-layers", 1],
         ("training steps with images against text alone", "time waiting for a batch / all time is")),
        ("pretraining_step.py", ["--regions", 3, "--batch-size", 8, "--model-flags"],
         ("training steps of vtlm against a plain encoder", "vtlm waited for its batches")),
    ],
)  # fmt: skip
def test_benchmarks_of_training_state_ratio_and_waiting(name: str, flags: list, stated: tuple[str, str]):
    sizes = ["--encoder-layers", 1, "--encoder-embed-dim", 16]
    world = ["--device", "cpu", "--steps", 1, "--pairs", 1, "--sentences", 200, "--images", 20, "--feature-size", 8]
    printed = run(name, *world, *flags, *sizes)
    assert all(words in printed for words in stated), printed


STEP = "--steps 1 --pairs 1 --sentences 12 --batch-size 2 --feature-size 8"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags", "stated"),
    [
        ("association", "--images 400 --sentences 8", "dense: .*100.0% of the sentences have images"),
        ("detection", "--photos 2 --batch-size 2 --workers 1 --pairs 1", "bare forward pass is"),
        ("extraction", "--backbone resnet18 --photos 4 --batch-size 2 --workers 1 --pairs 1", "bare forward pass is"),
        ("finder_in_loader", f"{STEP} --images 200 --count 2 --size 64 --layers 1", "waited for the table's batches"),
        ("region_memory", "--positions 0 2 --encoder {encoder} --pieces 8 --batch-size 2 --feature-size 8 --out m.png",
         "2 positions: "),
        ("revokenization", "--text {text} --tokenizer {encoder} --pairs 1 --busy", "40 lines, .* against tokenizing"),
        ("training_memory", "--small 50 --large 100 --feature-size 8 --sentences 20 --updates 1 --pairs 1",
         "with 50 is"),
        ("understanding_step", f"{STEP} --images 20 --count 2 --size 64 --layers 1 --pieces 8", "as many positions is"),
        ("vokenization", "--text {text} --lines 20 --times 1 --candidates 20 --pairs 1", "outside of the encoder"),
        ("vokenization_memory", "--lines 20 --times 2", "memory, long by short is"),
    ],
)  # fmt: skip
def test_other_benchmarks_measure_what_they_say(name: str, flags: str, stated: str, tmp_path: Path):
    encoder = make_encoder(tmp_path / "encoder") if "{encoder}" in flags else ""
    (tmp_path / "text").write_text("a big red dog near a roof\n" * 40)
    words = flags.format(encoder=encoder, text=tmp_path / "text").split()
    done = run_script(FOLDER / f"{name}.py", *words, cwd=tmp_path)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr  # 1: a goal was missed
    assert re.search(stated, done.stdout) and "are of images without features" not in done.stderr, done.stdout


def test_every_benchmark_is_run_here():
    parts = {"pairs", "retrieval_world", "steps", "synthetic"}
    missing = {path.stem for path in FOLDER.glob("*.py")} - parts
    assert {name for name in missing if not re.search(rf'"{name}(\.py)?"', Path(__file__).read_text())} == set()
