"""`probe last-word`: a stream with images, the same with others' images, and one without any."""

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from visual_grounding.cli.main import main
from visual_grounding.cli.probe_last_word import Run, _shares
from visual_grounding.probes.last_word import Guesses

QUICK = ["--device", "cpu", "--bootstrap-samples", "50", "--batch-size", "7"]


def probe(last_words: Path, out: Path, *flags: object, checkpoint: object = "vtlm.pt") -> int:
    common = ["--checkpoint", last_words / str(checkpoint), "--out", out]
    return main(["probe", "last-word", *map(str, [*common, *QUICK, *flags])])


def test_images_help_where_nothing_else_says_the_word(
    last_words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = ["--twin-checkpoint", last_words / "tlm.pt"]
    assert probe(last_words, tmp_path / "out", *twin, "--image-order", "congruent", "shuffled") == 0
    report: dict[str, Any] = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    assert (report["pairs"], report["n"]) == (24, 24)
    assert report["left_out"]["model"] == {"without a word": 0, "last word unknown": 0}
    found = {}
    for run in report["runs"]:
        way = (run["system"], run["images"], run["languages"], run["masked"], run["predicted"])
        found[way] = run
        share = run["accuracy"]
        assert share["low"] <= share["value"] <= share["high"]
        assert share["value"] == pytest.approx(run["right"] / run["n"])
        assert run["n"] == (24 if run["predicted"] == "words" else 12) and run["pieces"] >= run["n"]
    assert len(found) == 3 * 2 * (1 + 1 + 3)
    for masked, predicted in (("target", "target"), ("both", "target")):
        right = [
            sum(found["model", order, pair, masked, predicted]["right"] for pair in ("en-de", "en-fr"))
            for order in ("congruent", "shuffled")
        ]
        assert right[0] >= right[1] + 6, (masked, right)
    words = [found["model", "congruent", "en-fr", "both", name]["right"] for name in ("source", "target", "words")]
    assert words[0] + words[1] == words[2]
    assert len(report["comparisons"]) == 3 * 2 * 5
    one, other = (found["model", order, "en-de", "target", "target"] for order in ("congruent", "shuffled"))
    ways = [{name: run[name] for name in ("system", "images", "languages", "masked")} for run in (one, other)]
    (test,) = [pair for pair in report["comparisons"] if [pair["first"], pair["second"]] == ways]
    assert test["delta"] == pytest.approx(one["accuracy"]["value"] - other["accuracy"]["value"])
    assert test["only_first"] - test["only_second"] == one["right"] - other["right"] and test["p_value"] < 0.1
    said = capsys.readouterr().out
    assert "24 of 24 pairs of sentences of test: last words that are predicted right, in percent" in said
    share = one["accuracy"]
    row = f"{100 * share['value']:.1f} [{100 * share['low']:.1f}, {100 * share['high']:.1f}]"
    assert re.search(rf"model +congruent +en-de +target +target +12 +{re.escape(row)}", said)


@pytest.mark.parametrize(
    ("flags", "checkpoint", "message"),
    [
        (["--image-order", "shuffled"], "tlm.pt", "images can't be shuffled, as .*tlm.pt was trained without any"),
        (["--split", "tset"], "vtlm.pt", "should hold binarised text of the split 'tset'"),
        (["--batch-size", "0"], "vtlm.pt", "batch size should be at least 1, but is 0"),
    ],
)
def test_bad_input_is_refused_in_words(
    flags: list[str], checkpoint: str, message: str, last_words: Path, tmp_path: Path, capsys: Any
) -> None:
    assert probe(last_words, tmp_path / "out", *flags, checkpoint=checkpoint) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("valid", r"but \d+ of 24 end in other words in the data of .*other.pt, the first in .* instead of"),
        ("train", r"but test has 24 in the data of .*vtlm.pt and 96 in that of .*other.pt"),
    ],
)
def test_a_twin_that_reads_other_sentences_is_refused(
    split: str, message: str, last_words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(last_words / "bin", tmp_path / "bin")
    for path in (tmp_path / "bin").glob(f"{split}.*"):
        shutil.copy(path, path.with_name(path.name.replace(split, "test")))
    state = torch.load(last_words / "tlm.pt", weights_only=True)
    state["cfg"]["task"]["data"] = str(tmp_path / "bin")
    torch.save(state, tmp_path / "other.pt")
    assert probe(last_words, tmp_path / "out", "--twin-checkpoint", tmp_path / "other.pt") == 2
    said = capsys.readouterr().err
    assert re.search(message, said)
    assert "See --twin-checkpoint and --data." in said and not (tmp_path / "out").exists()


def test_pairs_that_are_left_out_are_counted(last_words: Path, tmp_path: Path, capsys: Any) -> None:
    assert probe(last_words, tmp_path / "out", "--split", "valid", checkpoint="tlm.pt") == 0
    said = capsys.readouterr()
    report = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    left_out = sum(report["left_out"]["model"].values())
    assert report["n"] + left_out == report["pairs"] == 24
    assert ("are left out." in said.err) == bool(left_out) and report["comparisons"] == []


@pytest.mark.parametrize(("right", "low", "high"), [(False, 0.0, 0.0566), (True, 0.9434, 1.0)])
def test_both_words_that_are_all_wrong_or_all_right_have_an_interval(right: bool, low: float, high: float) -> None:
    """Wilson's of 64 sentences: 0 to z² / (n + z²), 3.8415 / 67.8415."""
    one = Guesses(np.full(64, right), np.ones(64, int), np.full(64, int(right)))
    args = argparse.Namespace(bootstrap_samples=20, seed=1)
    both = _shares(args, Run("model", "congruent", "en-de", "both"), {"source": one, "target": one})[-1]
    assert (both["predicted"], both["n"], both["right"]) == ("words", 128, 128 * right)
    assert both["accuracy"] == pytest.approx({"value": float(right), "low": low, "high": high}, abs=1e-4)
