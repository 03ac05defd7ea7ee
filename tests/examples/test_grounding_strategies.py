"""The recipe of grounding strategies: its texts, and all steps on a slice; so VA's for understanding."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from commands import for_scripts
from conftest import REPOSITORY

from visual_grounding.cli.main import main
from visual_grounding.storage.lines import read_lines

sys.path.insert(0, str(REPOSITORY / "examples" / "grounding_strategies"))
import corpora
import cost

FOLDERS = {"grounding": "examples/grounding_strategies", "awareness": "examples/visual_awareness/understanding"}


def run_script(folder, name, **environment):
    unset = {"DATA", "OUT", "SEEDS", "FULL", "TASKS", "STRATEGIES", "VISUAL_GROUNDING_DATA"}
    kept = {key: value for key, value in os.environ.items() if key not in unset}
    values = {key: str(value) for key, value in environment.items()}
    command = ["bash", REPOSITORY / FOLDERS[folder] / name]
    return subprocess.run(command, env={**kept, **values}, capture_output=True, text=True)


def test_passages_are_parts_of_paragraphs_and_lose_no_word():
    line = " ".join(f"w{n}" for n in range(100))
    found = list(corpora.passages([" = Head = ", "", line, "a @-@ b"], 45))
    assert " ".join(found[:-1]) == line and [len(part.split()) for part in found] == [33, 33, 34, 1]


def test_nouns_are_those_that_captions_name(tmp_path):
    (tmp_path / "names.txt").write_text("dog\nhot dog\ncat\n")
    collection = [("a.jpg", "Two dogs, running."), ("b.jpg", "A hot dog!"), ("a.jpg", "a dog"), ("c.jpg", "dogma")]
    corpora.write_nouns(tmp_path / "names.txt", collection, tmp_path / "nouns.tsv")
    assert read_lines(tmp_path / "nouns.tsv") == ["dog\t\ta.jpg", "dog\t\tb.jpg", "hot dog\t\tb.jpg"]


def test_word_vectors_are_the_same_in_every_run(tmp_path):
    for name in ("one", "two"):
        corpora.write_vectors(["a dog runs", "a dog sits", "it runs"] * 3, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert read_lines(tmp_path / "one")[0] == f"5 {corpora.VECTOR_SIZE}"


def test_overlap_is_counted_whatever_case_and_punctuation():
    found = corpora.overlap(["A dog, running."], ["a dog running", "A dog", "a dog , running ."])
    assert found == {"sentences": 3, "captions": 2}


def write_log(path, quickest):
    """As fairseq writes it: 20 intervals, two of which are as quick as is said, on average; its epochs don't count."""
    ups = [1.0] * 18 + [1 / (1 / quickest - 0.01), 1 / (1 / quickest + 0.01)]
    lines = [f"2026-11-28 12:37:55 | INFO | train_inner | epoch 001: ppl=99, ups={each!r}, wpb=4" for each in ups]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, "2026-11-28 12:37:56 | INFO | train | epoch 001 | ppl 9 | ups 99 | wpb 4"]))


def test_cost_against_regions_is_of_what_was_trained(tmp_path, monkeypatch, capsys):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/memory.log").write_text("0 positions: 1.00 GB\n1 positions: 1.25 GB\n")
    (tmp_path / "logs/memory-regions.log").write_text("1 positions: 1.20 GB\n16 positions: 2.50 GB\nno time for 4\n")
    found = {"none-captions": ((10, 12), (4, 4)), "i2t": ((9, 9), (4, 2)), "regions-16": ((8, 8.5), (2, 2.5))}
    for name, of_seeds in found.items():
        for seed, (perplexity, quickest) in enumerate(zip(*of_seeds), 1):
            scores = tmp_path / f"seed{seed}/scores/captions.{name}{'' if name == 'none-captions' else '.blank'}"
            scores.mkdir(parents=True)
            systems = {"hypothesis": {"perplexity": {"mean": perplexity}}, "twin": {"perplexity": {"mean": 99}}}
            (scores / "scores.json").write_text(json.dumps({"systems": systems}))
            write_log(tmp_path / f"logs/seed{seed}/pretrain-{name}.log", quickest)
    of_one_seed = tmp_path / "seed1/scores/captions.regions-8.blank"  # seed 2 hasn't it, nor the log its memory
    shutil.copytree(tmp_path / "seed1/scores/captions.i2t.blank", of_one_seed)
    (tmp_path / "logs/seed1/pretrain-regions-8.log").write_text("stopped before the first interval")
    monkeypatch.setattr(sys, "argv", ["cost.py", "--out", str(tmp_path)])
    assert cost.main() == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in read_lines(tmp_path / "cost.md")[2:]]
    # deviations by hand: sqrt(2) = 1.4, 0, sqrt(0.125) = 0.4; of seconds 0, of 0.25 and 0.5 0.177, of 0.5 and 0.4 0.071
    assert rows == [
        ["0", "11.0 ± 1.4", "1.00", "0.250 ± 0.000"],
        ["whole image", "9.0 ± 0.0", "1.25", "0.375 ± 0.177"],
        ["8", "9.0", "–", "–"],
        ["16", "8.2 ± 0.4", "2.50", "0.450 ± 0.071"],
    ]


@pytest.mark.parametrize(
    ("name", "low", "high", "holds"),
    [
        ("floor.i2t", -2.0, -0.1, "holds"),
        ("floor.i2t", -2.0, 0.1, "DOES NOT HOLD"),
        ("floor.i2t.shuffled", 1.0, 2.0, "holds"),
        ("floor.i2t-shuffled", -1.0, 0.5, "holds"),
        ("floor.i2t-shuffled.shuffled", -1.0, -0.5, "DOES NOT HOLD"),
    ],
)
def test_floors_are_held_against_the_twin(tmp_path, name, low, high, holds):
    scores = tmp_path / "seed2/scores" / name
    scores.mkdir(parents=True)
    comparison = {"delta": (low + high) / 2, "low": low, "high": high}
    (scores / "scores.json").write_text(json.dumps({"comparison": {"perplexity": comparison}}))
    [row] = cost.floor_table(tmp_path).splitlines()[2:]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[1:3] == ["2", f"{(low + high) / 2:+.1f} [{low:+.1f}, {high:+.1f}]"] and cells[4] == holds


@pytest.mark.parametrize("folder", FOLDERS)
def test_scripts_say_what_is_missing(folder, tmp_path):
    done = run_script(folder, "prepare.sh", OUT=tmp_path, DATA="/nowhere")
    assert done.returncode == 2 and "DATA should be a folder with flickr8k/ and downstream/ in it" in done.stderr
    done = run_script(folder, "prepare.sh", OUT=tmp_path, SIZE="huge")
    assert done.returncode == 2 and "SIZE should be small or paper, but is 'huge'" in done.stderr


@pytest.mark.data
@pytest.mark.slow
def test_strategies_run_from_raw_files_to_scores_on_a_slice(real_data, tmp_path):
    choices = {"LIMIT": 40, "UPDATES": 2, "TASK_UPDATES": 2, "TASKS": "rte", "STRATEGIES": "none-captions i2t scene-16"}
    choices["TUNED"] = "scene-16"
    for part in ("prepare", "train", "evaluate"):
        done = run_script("grounding", f"{part}.sh", DATA=real_data, OUT=tmp_path, **choices, **for_scripts())
        assert done.returncode == 0, f"{part}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    rows = json.loads((tmp_path / "table/runs.json").read_text())["rows"]
    names = {row["name"] for row in rows}
    assert {"scores/floor.i2t", "scores/floor.i2t.shuffled", "scores/rte.scene-16"} <= names
    assert [line.split("|")[1].strip() for line in read_lines(tmp_path / "cost.md")[2:]] == ["0", "whole image"]
    assert len(read_lines(tmp_path / "floors.md")) == 4
    assert (tmp_path / "memory.png").stat().st_size > 0
    asked = {
        name: json.loads((tmp_path / f"seed1/{name}/scores.json").read_text())["test_set"]["sha256"] for name in names
    }
    assert asked["scores/wiki.scene-16"] == asked["scores/wiki.i2t"] == asked["scores/wiki.none-captions"]
    captions = {asked[f"scores/captions.{name}"] for name in ("none-captions", "i2t.shuffled", "scene-16.blank")}
    assert captions == {asked["scores/floor.i2t"]}
    assert json.loads((tmp_path / "overlap.json").read_text())["rte.test.first"] == {"sentences": 4, "captions": 0}
    # Another strategy in the same folder; what is done stays.
    done_before = {path: path.stat().st_mtime_ns for path in (tmp_path / "done").rglob("*") if path.is_file()}
    choices.update(STRATEGIES="keyword-4 object-1 regions-4 i2t-shuffled none", TUNED="")
    for part in ("prepare", "train", "evaluate"):
        done = run_script("grounding", f"{part}.sh", DATA=real_data, OUT=tmp_path, **choices, **for_scripts())
        assert done.returncode == 0, f"{part}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    rows = json.loads((tmp_path / "table/runs.json").read_text())["rows"]
    kinds = ("captions.{}.shuffled", "captions.{}.blank", "wiki.{}")
    with_images = ("keyword-4", "object-1", "regions-4", "i2t-shuffled")
    new = {f"scores/{kind.format(name)}" for name in with_images for kind in kinds}
    new |= {f"scores/{kind}.none" for kind in ("captions", "wiki", "rte")}
    assert {row["name"] for row in rows} == names | new
    assert {path: path.stat().st_mtime_ns for path in done_before} == done_before
    table = [line.split("|")[1:-1] for line in read_lines(tmp_path / "cost.md")[2:]]
    assert [row[0].strip() for row in table] == ["0", "whole image", "4"]
    assert all(float(row[2]) > 0 for row in table)
    # All tasks from their files.
    choices.update(STRATEGIES="none", TASKS="sick joci vua vuan pdtb")
    done = run_script("grounding", "prepare.sh", DATA=real_data, OUT=tmp_path, **choices, **for_scripts())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for task in choices["TASKS"].split():
        assert all((tmp_path / "tasks" / task / f"{split}.first").stat().st_size for split in ("train", "valid")), task


@pytest.mark.parametrize("tuned", ["object-1", "scene-24"])
def test_strategies_whose_images_tasks_have_not_are_not_tuned(tuned, tmp_path):
    done = run_script("grounding", "train.sh", OUT=tmp_path, STRATEGIES=f"none {tuned} scene-16", TUNED=tuned)
    assert done.returncode == 2 and f"TUNED should be among none scene-16, but has '{tuned}'" in done.stderr


@pytest.mark.data
@pytest.mark.slow
def test_understanding_runs_from_raw_files_to_predictions_on_a_slice(real_data, tmp_path, capsys):
    choices = {"LIMIT": 60, "NLI_UPDATES": 4, "NER_UPDATES": 4, "RETRIEVER_EPOCHS": 1}
    for part in ("prepare", "train", "evaluate"):
        done = run_script("awareness", f"{part}.sh", DATA=real_data, OUT=tmp_path, **choices, **for_scripts())
        assert done.returncode == 0, f"{part}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    for task, metric in (("nli", "accuracy"), ("ner", "entity_f1")):
        models = [str(tmp_path / f"seed1/{task}/{name}/checkpoint_last.pt") for name in ("retrieved", "text-only")]
        flags = ["--checkpoint", models[0], "--twin-checkpoint", models[1], "--split", "valid", "--device", "cpu"]
        assert main(["evaluate", "predictions", *flags, "--out", str(tmp_path / "scores")]) == 0, (
            capsys.readouterr().err
        )
        found = json.loads((tmp_path / "scores/scores.json").read_text())["systems"]
        assert [found[name]["images"] for name in ("hypothesis", "twin")] == ["congruent", "none"]
        assert 0 <= found["hypothesis"][metric]["mean"] <= 1
    assert json.loads((tmp_path / "overlap.json").read_text())["nli.test.first"]["sentences"] == 60
    rows = {row["name"]: row for row in json.loads((tmp_path / "table/runs.json").read_text())["rows"]}
    asked = [f"{task}.{split}" for task, split in (("nli", "valid"), ("nli", "test"), ("ner", "valid"))]
    assert rows.keys() == {f"scores/{name}.{of}" for name in ("text-only", "shuffled", "blank") for of in asked}


def test_features_of_ones_own_are_refused_where_they_are_not_read(tmp_path):
    done = run_script("awareness", "prepare.sh", OUT=tmp_path, FEATURES="extract")
    assert done.returncode == 2 and "FEATURES should be given, those of the data's folder" in done.stderr
