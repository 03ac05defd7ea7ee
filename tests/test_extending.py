"""docs/extending.md is true: its files are written as they stand there, outside the package, and its commands run."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from commands import run_command
from conftest import REPOSITORY
from PIL import Image

PAGE = (REPOSITORY / "docs/extending.md").read_text(encoding="utf-8")
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 30, 220)}
SMALL = ["--cpu", "--no-progress-bar", "--seed", "1"]  # what the page needn't say
SHORT = [*SMALL, "--max-update", "3", "--no-epoch-checkpoints", "--log-format", "simple"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def commands(*names: str) -> list[list[str]]:
    """The words of the page's commands that begin with one of the names."""
    lines = re.sub(r"\\\n\s*", " ", "\n".join(blocks("bash"))).splitlines()
    return [line.split() for line in lines if line.startswith(tuple(name + " " for name in names))]


def run(folder: Path, command: list[str], *more: str) -> str:
    """One of the page's commands, in a process of its own; what it printed."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = run_command(*command, *more, cwd=folder, environment={"PYTHONPATH": path})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files, photos of three colours and sentences that name them; features, ids, text."""
    folder = tmp_path_factory.mktemp("outside")
    for block in blocks("python"):
        path = folder / re.match(r"# (my_plugin/\w+\.py)\n", block)[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(block, encoding="utf-8")
    (folder / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number, (name, colour) in enumerate([*COLOURS.items()] * 4):
        pixels = np.clip(np.array(colour) + rng.integers(-20, 20, (40, 40, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{name}_{number}.png")
    keys = [f"{name}_{number}.png" for number, name in enumerate([*COLOURS] * 4)]
    for name in ("captions", "captions.valid"):
        (folder / f"{name}.tsv").write_text("".join(f"{key}\ta {key.partition('_')[0]} thing\n" for key in keys))
    for split, size in (("train", 24), ("valid", 6)):
        names = rng.choice([*COLOURS, "grey"], size)
        (folder / f"{split}.en").write_text("".join(f"a {name} thing\n" for name in names))
        (folder / f"{split}.de").write_text("".join(f"etwas {name}\n" for name in names))
    for command in commands("visual-grounding", "python"):
        run(folder, command)
    texts = ["--trainpref", "train", "--validpref", "valid"]
    run(folder, ["fairseq-preprocess", "-s", "en", "-t", "de", *texts, "--destdir", "bin", "--workers", "1"])
    return folder


def test_backbone_from_outside_gives_its_features(outside: Path) -> None:
    features = np.load(outside / "features/colours/features.npy")
    keys = (outside / "features/colours/keys.txt").read_text().splitlines()
    assert features.shape == (12, 4, 3)
    for key, colour in zip(keys, features.mean(axis=1)):
        np.testing.assert_allclose(colour * 255, COLOURS[key.partition("_")[0]], atol=6)


def test_finder_from_outside_finds_what_is_named(outside: Path) -> None:
    ids = np.load(outside / "ids/train/ids.npy")
    keys = (outside / "features/colours/keys.txt").read_text().splitlines()
    for line, rows in zip((outside / "train.en").read_text().splitlines(), ids):
        name = line.split()[1]
        assert [keys[row].partition("_")[0] for row in rows if row >= 0] == ([name] * 2 if name in COLOURS else [])
    again = run(outside, commands("visual-grounding retrieve")[0][:-1], "ids/again")
    assert re.search(r"warning: \d+ of 24 sentences name no image", again)


def test_retriever_from_outside_finds_the_colours_that_are_named(outside: Path) -> None:
    ids = np.load(outside / "ids-by-colour/ids.npy")
    keys = (outside / "features/colours/keys.txt").read_text().splitlines()
    for line, rows in zip((outside / "train.en").read_text().splitlines(), ids):
        name = line.split()[1]
        assert [keys[row].partition("_")[0] for row in rows if row >= 0] == ([name] * 2 if name in COLOURS else [])
    said = run(outside, ["visual-grounding", "doctor", "--retriever", "colour-words", "--index", "index"])
    assert "ok     colour-words: retriever, joint size 3." in said and "ok     index: index of 12 images" in said


def test_architecture_from_outside_trains_and_translates(outside: Path) -> None:
    train, generate = commands("fairseq-train")[0], commands("fairseq-generate")[0]
    run(outside, train, *SHORT, "--encoder-layers", "1", "--decoder-layers", "1")
    said = run(outside, generate, *SMALL)
    assert len(re.findall(r"^H-\d+\t", said, re.MULTILINE)) == 6


IMPORTED_FIRST = """
import sys
import my_plugin
assert "fairseq" not in sys.modules
from fairseq import options
sys.argv = ["train", "bin", "--arch", "mean_fusion_transformer_tiny"]
args = options.parse_args_and_arch(options.get_training_parser())
sys.argv += ["--user-dir", "my_plugin"]
again = options.parse_args_and_arch(options.get_training_parser())
print(args.arch, again.arch)
"""


def test_plugin_from_outside_may_be_imported_before_fairseq(outside: Path) -> None:
    said = run(outside, ["python", "-c", IMPORTED_FIRST])
    assert said.endswith("mean_fusion_transformer_tiny mean_fusion_transformer_tiny\n")


def test_criterion_from_outside_trains_a_retriever_whose_recall_is_logged(outside: Path) -> None:
    run(outside, commands("visual-grounding prepare")[0])
    said = run(outside, commands("fairseq-train")[1], *SHORT)
    found = re.findall(r"valid on .*text_to_image_r10 ([\d.]+).*recall_sum ([\d.]+)", said)
    assert found and 0 < float(found[-1][0]) <= 1 and float(found[-1][1]) <= 6
