"""SIGKILL at any moment: nothing interrupted looks complete, and the next run continues to the same bytes.

Most kills hit a forked child, some a whole fresh command; half of the moments are steps (see `processes`), the others
fall anywhere. A run that continues is killed again, until one comes through.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command
from conftest import write_image_ids
from faults.processes import KILLED, Commands, Done, content_of
from faults.test_fuzzed_readers import write_language_model
from PIL import Image
from small_matcher import make_token_matcher
from small_retriever import make_retriever, make_sentences, make_store
from small_tokenizers import make_tokenizer
from small_vokens import write_vokens

from tests.retrieval.test_export import checkpoint
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.index import build_index

pytestmark = pytest.mark.slow

VERBS = ("import", "extract", "index", "retrieve", "vokenize", "revokenize")
HEAVY = ("extraction", "backbones", "scattering")
World = tuple[Path, dict[str, list[object]], dict[str, dict[str, bytes]]]


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    modules = [f"visual_grounding.features.{name}" for name in (*HEAVY, "importers")]
    modules += [f"visual_grounding.retrieval.{name}" for name in ("dense", "index", "token_matcher")]
    modules += [f"visual_grounding.vokenization.{name}" for name in ("vokenizer", "revokenization", "stream")]
    with Commands(*modules) as started:
        yield started


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> World:
    """A folder, the flags of each verb without --out, and what each makes when nothing disturbs it."""
    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    (folder / "images").mkdir()
    for number in range(11):
        pixels = rng.integers(0, 256, (24, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"images/{number}.png")
    (folder / "images/broken.png").write_bytes(b"x")
    np.save(folder / "arrays.npy", rng.normal(size=(40, 6)).astype(np.float32))
    np.save(folder / "boxes.npy", np.sort(rng.uniform(size=(40, 1, 2, 2)), axis=2).reshape(40, 1, 4))
    np.save(folder / "labels.npy", rng.integers(-1, 2, (40, 1)))
    (folder / "names.txt").write_text("man\ndog\n")
    columns = ["--boxes", folder / "boxes.npy", "--labels", folder / "labels.npy"]
    columns += ["--label-names", folder / "names.txt"]
    (folder / "keys.txt").write_text("".join(f"{number}.jpg\n" for number in range(40)))
    (folder / "text").write_text("".join(f"{line}\n" for line in make_sentences()))
    make_retriever(folder / "retriever")
    store = make_store(folder / "store")
    cpu = ["--device", "cpu", "--batch-size", 4]
    flags: dict[str, list[object]] = {
        "import": ["--arrays", folder / "arrays.npy", "--keys", folder / "keys.txt", "--shard-size", 7, *columns],
        "extract": ["--images", folder / "images", "--backbone", "scattering", *cpu, "--shard-size", 3],
        "index": ["--retriever", folder / "retriever", "--image-features", store, *cpu, "--shard-size", 4],
        "retrieve": ["--method", "dense", "--retriever", folder / "retriever", "--index", folder / "index", *cpu],
    }
    flags["retrieve"] += ["--text", folder / "text", "--shard-size", 7]
    build_index(make_token_matcher(folder / "matcher", image_features=None), FeatureStore(store), folder / "matched")
    make_tokenizer(folder / "tokenizer", "bytes")
    (folder / "letters").write_text("a b c! D e f\n\n" * 10_000)  # three parts
    flags["vokenize"] = ["--retriever", folder / "matcher", "--index", folder / "matched", "--text", folder / "letters"]
    flags["vokenize"] += ["--scores", "--device", "cpu"]
    flags["revokenize"] = ["--vokens", folder / "vokenize", "--text", folder / "letters"]
    flags["revokenize"] += ["--tokenizer", folder / "tokenizer"]
    expected = {}
    for verb in VERBS:
        done = commands.run([verb, *flags[verb], "--out", folder / verb])
        assert done.status == 0, done.err
        expected[verb] = content_of(folder / verb)
    return folder, flags, expected


def check_nothing_looks_complete(out: Path, expected: dict[str, bytes]) -> None:
    """Under its own name there is nothing, or all of it."""
    if out.exists():
        assert content_of(out) == expected


def live(run: Callable[..., Done], out: Path, expected: dict[str, bytes], first: dict, more: Iterator[dict]) -> int:
    """Run until it comes through; how many runs were killed."""
    kills = 0
    how = first
    while (done := run(**how)).status == KILLED:
        kills += 1
        check_nothing_looks_complete(out, expected)
        how = next(more) if kills < 4 else {}
    assert done.status == 0 and "Traceback" not in done.err, done.err
    assert content_of(out) == expected
    assert not out.with_name(out.name + ".partial").exists()
    return kills


@pytest.mark.parametrize(
    ("verb", "lives"),
    [("import", 40), ("extract", 12), ("index", 20), ("retrieve", 20), ("vokenize", 4), ("revokenize", 4)],
)
def test_killed_command_continues_to_the_same_bytes(
    world: World, commands: Commands, tmp_path: Path, record_property: Callable, verb: str, lives: int
) -> None:
    _, flags, expected = world
    start = time.monotonic()
    whole = commands.run([verb, *flags[verb], "--out", tmp_path / "whole"])
    seconds = time.monotonic() - start
    assert whole.steps > 20
    rng = random.Random(verb)

    def moments() -> Iterator[dict]:
        while True:
            yield {"kill_at": rng.randint(1, whole.steps)}
            yield {"kill_after": rng.uniform(0, seconds)}

    kills = 0
    for number in range(lives):
        out = tmp_path / f"out{number}"

        def run(out: Path = out, **how: object) -> Done:
            return commands.run([verb, *flags[verb], "--out", out], **how)

        first = {"kill_at": 1 + number * whole.steps // lives}  # spread over all steps
        kills += live(run, out, expected[verb], first, moments())
    record_property("kills", kills)
    record_property("same bytes", lives)
    assert kills >= lives


@pytest.mark.parametrize(
    ("verb", "lives"),
    [("import", 12), ("extract", 4), ("index", 6), ("retrieve", 6), ("vokenize", 1), ("revokenize", 1)],
)
def test_killed_rank_stops_the_others_and_any_number_continues(
    world: World, commands: Commands, tmp_path: Path, record_property: Callable, verb: str, lives: int
) -> None:
    _, flags, expected = world
    rng = random.Random(verb)
    kills = 0
    for number in range(lives):
        out = tmp_path / f"out{number}"
        arguments = [verb, *flags[verb], "--out", out]
        ended = commands.run_ranks(arguments, rng.randint(2, 4), patience=2, kill_at=rng.randint(1, 60))
        killed = sum(rank.status == KILLED for rank in ended)
        for rank in ended:
            assert rank.status in (0, 2, KILLED) and "Traceback" not in rank.err, rank.err
        if killed:
            check_nothing_looks_complete(out, expected[verb])
        kills += killed
        ended = commands.run_ranks(arguments, rng.randint(2, 4))
        assert all(rank.status == 0 for rank in ended), ended
        assert not any(
            "image/s" in rank.err or rank.out for rank in ended[1:]
        )  # only the first shows and says anything
        assert content_of(out) == expected[verb]
    record_property("kills", kills)
    record_property("same bytes", lives)
    assert kills


@pytest.mark.parametrize("verb", VERBS)
def test_interrupted_command_says_so_in_one_line_and_continues(
    world: World, commands: Commands, tmp_path: Path, verb: str
) -> None:
    _, flags, expected = world
    arguments = [verb, *flags[verb], "--out", tmp_path / "out"]
    for step in (25, 12, 3):
        done = commands.run(arguments, interrupt_at=step)
        assert done.status == 130
        said = f"visual-grounding {verb}: interrupted; run the same command again to continue\n"
        assert done.err.endswith(said) and "Traceback" not in done.err
        assert not (tmp_path / "out").exists()
    assert commands.run(arguments).status == 0
    assert content_of(tmp_path / "out") == expected[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_fresh_command_killed_continues_to_the_same_bytes(
    world: World, tmp_path: Path, record_property: Callable, verb: str
) -> None:
    _, flags, expected = world
    out = tmp_path / "out"
    command = [str(Path(sys.executable).with_name("visual-grounding")), verb, *map(str, flags[verb]), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    plan = tmp_path / "out.partial/progress/plan.json"
    while process.poll() is None and not plan.exists():
        time.sleep(0.001)
    time.sleep(random.Random(verb).uniform(0, 0.02))
    process.send_signal(signal.SIGKILL)
    process.wait()
    check_nothing_looks_complete(out, expected[verb])
    done = run_command("visual-grounding", verb, *flags[verb], "--out", out)
    assert done.returncode == 0, done.stderr
    assert content_of(out) == expected[verb]
    record_property("kills", int(process.returncode == KILLED))
    record_property("same bytes", 1)


@pytest.fixture(scope="module")
def rewriting(world: World) -> dict[str, tuple[list[object], list[object]]]:
    """Of verbs that write their output anew: the flags of two runs, without --out, which make different files."""
    folder, _, _ = world
    store = FeatureStore(folder / "extract")
    write_image_ids(folder / "shown", np.arange(31).reshape(31, 1) % 11, store.keys_sha256)
    for number in (1, 2):
        captions = "".join(f"{row}.png\tword{row * number} more\n" for row in range(9))
        for name in (f"captions{number}", f"valid{number}"):
            (folder / name).write_text(captions)
        (folder / f"translated{number}").write_text("".join(f"line {line % (5 * number)} .\n" for line in range(31)))
        state = {"args": argparse.Namespace(), "model": {"w": torch.full((3,), float(number))}}
        torch.save(state, folder / f"checkpoint{number}.pt")
        torch.save({**torch.load(checkpoint(folder)), "number": number}, folder / f"retriever{number}.pt")
        write_language_model(folder / f"language{number}")
        saved = torch.load(folder / f"language{number}/m.pt", weights_only=False)
        saved["model"] = {name: weight + number for name, weight in saved["model"].items()}
        torch.save(saved, folder / f"language{number}/m.pt")
        rows = "".join(f"a dog {row}\tcd {number}\t{'yes' if row % 2 else 'no'}\n" for row in range(9))
        (folder / f"pairs{number}.tsv").write_text(f"sentence1\tsentence2\tlabel\n{rows}")
        write_vokens(folder / f"vokens{number}", ["a b", "c d e"][:number], folder / "tokenizer", 4)
    (folder / "pictures").mkdir()
    for row in range(4):
        Image.new("RGB", (40, 30), (50 * row, 0, 0)).save(folder / f"pictures/{row}.jpg")
    shown = ["--text", folder / "text", "--image-ids", folder / "shown", "--image-features", folder / "extract"]
    shown += ["--images", folder / "images", "--rows", "7"]

    def flags(number: int) -> dict[str, list[object]]:
        translated, captions = folder / f"translated{number}", folder / f"captions{number}"
        return {
            "prepare captions": ["--train", captions, "--valid", folder / f"valid{number}"],
            "prepare rte": ["--train", folder / f"pairs{number}.tsv", "--tokenizer", folder / "language1/tokenizer"],
            "export": ["--checkpoint", folder / f"retriever{number}.pt", "--data", folder],
            "export --to transformers": [
                *("--checkpoint", folder / f"language{number}/m.pt"),
                *("--tokenizer", folder / "language1/tokenizer"),
            ],
            "report vokens": ["--vokens", folder / f"vokens{number}", "--images", folder / "pictures"],
            "average": ["--inputs", folder / "checkpoint1.pt", folder / f"checkpoint{number}.pt"],
            "evaluate": ["--hypothesis", translated, "--reference", folder / "translated1", "--bootstrap-samples", 10],
            "report": [*shown, "--output", f"translation={translated}"],
            "stats": ["--text", f"all={translated}", f"text={folder / 'text'}", "--reference", "text"],
        }

    found = {verb: (words, flags(2)[verb]) for verb, words in flags(1).items()}
    trained = flags(1)["prepare rte"]
    added: list[object] = ["--test", folder / "pairs2.tsv", *trained[2:]]
    return {**found, "prepare rte, a split": (trained, added)}


@pytest.mark.parametrize(
    "verb",
    [
        *(
            "prepare captions",
            "prepare rte",
            "prepare rte, a split",
            "average",
            "evaluate",
            "report",
            "report vokens",
            "stats",
        ),
        *("export", "export --to transformers"),
    ],
)
def test_killed_while_it_writes_anew_a_command_leaves_the_older_output_or_its_own(
    rewriting: dict, tmp_path: Path, record_property: Callable, verb: str
) -> None:
    out = tmp_path / "out"
    first, second = ([*verb.partition(",")[0].split(), *words, "--out", out] for words in rewriting[verb])
    own = ["analysis.report", "analysis.drawn_vokens", "analysis.translation_scores", "analysis.score_files"]
    own += ["retrieval.export", "storage.checkpoints", "text.example_files", "vokenization.language_model_folder"]
    modules = [f"visual_grounding.{name}" for name in own]
    modules += ["matplotlib.pyplot", "sacrebleu", "transformers.models.bert.modeling_bert"]
    with Commands(*modules) as commands:
        wholes = []
        for words in (first, second):
            done = commands.run(words)
            assert done.status == 0, done.err
            wholes.append(content_of(out))
        before, after = wholes
        assert before != after
        found = []
        for step in range(1, done.steps + 1):
            if found and found[-1] != before:
                shutil.rmtree(out)
                assert commands.run(first).status == 0
                before = content_of(out)
            assert commands.run(second, kill_at=step).status == KILLED
            found.append(content_of(out))
            assert found[-1] in (before, after), (step, sorted(found[-1]))
        assert before in found and after in found and len(found) > 5
        assert commands.run(second).status == 0
    assert content_of(out) == after and os.listdir(tmp_path) == ["out"]
    record_property("kills", len(found))
    record_property("same bytes", 1)


@pytest.mark.parametrize(("verb", "said"), [("extract", "12 images, 1 region of "), ("vokenize", "70000 pieces")])
def test_torchrun_shares_one_output(world: World, tmp_path: Path, verb: str, said: str) -> None:
    _, flags, expected = world
    arguments = [verb, *flags[verb], "--out", tmp_path / "out"]
    done = run_command("torchrun", "--standalone", "--nproc-per-node", 2, "--no-python", "visual-grounding", *arguments)
    assert done.returncode == 0, done.stderr
    assert content_of(tmp_path / "out") == expected[verb]
    assert done.stdout.count(said) == 1  # the first rank alone speaks
    assert json.loads(expected["extract"]["meta.json"])["unreadable"] == 1
