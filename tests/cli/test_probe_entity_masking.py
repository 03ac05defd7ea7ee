"""`probe entity-masking`, and what all probes share on the command line."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_trained import binarise, translator

from visual_grounding.analysis.intervals import Interval
from visual_grounding.cli.main import main
from visual_grounding.cli.probe_entity_masking import Run, _pairs
from visual_grounding.cli.probing import shown

QUICK = ["--device", "cpu", "--bootstrap-samples", "30", "--beam", "2", "--batch-size", "7", "--max-len-b", "12"]


def probe(animals: Path, out: Path, *more: object, positions: str = "1\n", **changes: object) -> int:
    """Run the probe on the animals' names, but for every sixth sentence, which has no positions."""
    (out.parent / "positions").write_text(
        "".join("-1\n" if row % 6 == 5 else positions for row in range(24)), encoding="utf-8"
    )
    flags = {
        "--checkpoint": animals / "seeing.pt",
        "--positions": out.parent / "positions",
        "--text": animals / "text/test.words",
        "--reference": animals / "text/test.de",
        "--out": out,
        **{f"--{name.replace('_', '-')}": value for name, value in changes.items()},
    }
    words = [str(word) for pair in flags.items() for word in pair]
    return main(["probe", "entity-masking", *words, *QUICK, *map(str, more)])


@pytest.fixture(scope="module")
def results(animals: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """All there is in one run."""
    out = tmp_path_factory.mktemp("probe") / "out"
    flags = ["--twin-checkpoint", animals / "text.pt", "--image-order", "congruent", "shuffled"]
    assert probe(animals, out, *flags) == 0
    return json.loads((out / "results.json").read_text(encoding="utf-8")), out


def test_hidden_words_are_found_again_by_the_right_pictures_alone(results: tuple[dict[str, Any], Path]) -> None:
    report, out = results
    header, *lines = (line.split("\t") for line in (out / "translations.tsv").read_text(encoding="utf-8").splitlines())
    rows = [dict(zip(header, line)) for line in lines]
    assert [int(row["line"]) for row in rows] == [line for line in range(1, 25) if line % 6]

    def right(column: str) -> float:
        return sum(row[column].split()[:1] == row["reference"].split()[:1] for row in rows) / len(rows)

    assert right("model.congruent.mask") == 1 and right("model.shuffled.mask") < 0.8
    assert right("twin.none.unmasked") > 0.9 and 0.2 < right("twin.none.mask") < 0.8
    assert report["n"] == len(rows) == 20


def test_numbers_come_with_n_and_interval(results: tuple[dict[str, Any], Path], animals: Path) -> None:
    report, out = results
    counts = {"sentences": 24, "with_positions": 20, "without_positions": 4, "left_out": 0, "n": 20, "words_hidden": 20}
    assert {name: report[name] for name in counts} == counts
    text = (animals / "text/test.words").read_text().splitlines()
    assert report["words"] == sum(len(line.split()) for row, line in enumerate(text) if row % 6 != 5)
    assert sorted(map(tuple, report["most_hidden"])) == [("doggy", 12), ("kitty", 8)]
    assert len(report["runs"]) == 9 and len(report["comparisons"]) == 6 + 3 + 6
    for run in report["runs"]:
        assert run["n"] == 20 and set(run["scores"]) == {"tokenised_bleu", "normalised_bleu", "sacrebleu", "chrf"}
        assert all(score["low"] <= score["value"] <= score["high"] for score in run["scores"].values())
    scores = {Run(each["system"], each["images"], each["source"]): each["scores"] for each in report["runs"]}
    for pair in report["comparisons"]:
        one, other = (scores[Run(**pair[side])]["chrf"]["value"] for side in ("first", "second"))
        assert pair["n"] == 20 and pair["scores"]["chrf"]["delta"] == pytest.approx(one - other)
    assert report["meta"]["arguments"]["beam"] == 2 and str(animals / "text.pt") in report["meta"]["sha256"]
    assert not list(out.glob("*.tmp"))


def test_pairs_are_whole_with_hidden_first_order_with_others_and_model_with_twin() -> None:
    systems = [("model", "shuffled"), ("model", "blank"), ("twin", "none")]
    runs = [Run(*system, source) for system in systems for source in ("unmasked", "mask")]
    assert [(str(one), str(other)) for one, other in _pairs(runs)] == [
        ("model.shuffled.unmasked", "model.shuffled.mask"),
        ("model.blank.unmasked", "model.blank.mask"),
        ("twin.none.unmasked", "twin.none.mask"),
        ("model.shuffled.unmasked", "model.blank.unmasked"),
        ("model.shuffled.mask", "model.blank.mask"),
        ("model.shuffled.unmasked", "twin.none.unmasked"),
        ("model.shuffled.mask", "twin.none.mask"),
        ("model.blank.unmasked", "twin.none.unmasked"),
        ("model.blank.mask", "twin.none.mask"),
    ]
    seeing = [Run(system, order, "mask") for system in ("model", "twin") for order in ("congruent", "blank")]
    assert [(str(one), str(other)) for one, other in _pairs(seeing)][2:] == [
        ("model.congruent.mask", "twin.congruent.mask"),
        ("model.blank.mask", "twin.blank.mask"),
    ]


def test_table_says_what_was_hidden_and_how_sure_it_is(animals: Path, tmp_path: Path, capsys: Any) -> None:
    words = (animals / "text/test.words").read_text(encoding="utf-8").splitlines()
    (tmp_path / "text").write_text("\n".join(["something else", *words[1:]]) + "\n", encoding="utf-8")
    assert probe(animals, tmp_path / "out", "--image-order", "blank", text=tmp_path / "text") == 0
    said = capsys.readouterr()
    assert "19 of 24 sentences of test (de); 4 have no positions, 1 are left out.\n" in said.out
    assert "words are hidden: doggy 11, kitty 8 …\n" in said.out
    assert f"1 of 20 sentences (5.0 %) with positions are left out: {tmp_path}/text has them in other" in said.err
    (row,) = [line.split() for line in said.out.splitlines() if line.split()[:3] == ["model", "blank", "mask"]]
    report = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    score = report["runs"][1]["scores"]["tokenised_bleu"]
    assert row[3:6] == [f"{score['value']:.2f}", f"[{score['low']:.2f},", f"{score['high']:.2f}]"]
    assert shown(Interval(1.0, -2.0, 3.0), sign=True) == "+1.00 [-2.00, +3.00]"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "5000\n"}, "positions:1 should have numbers of the .* words .* but has 5000; so have 20 of 24"),
        ({"positions": "man\n"}, "positions:1 should be numbers of words, .* but is 'man'. See --positions"),
        ({"positions": "-1\n"}, "positions should name words of some sentence, but names none. See --positions"),
        ({"positions": "1\n1\n"}, "one line of positions for each sentence of .*test.words, but has 44 for 24. See"),
        ({"text": "text/train.words"}, "have other letters, the first is line .* See --text and --bpe-tokenizer"),
        ({"reference": "text/test.words"}, r"should be the translations of test, but 24 of 24 .* See --reference"),
        ({"checkpoint": "store/keys.txt"}, "keys.txt should be a fairseq checkpoint, but is truncated or of another"),
        ({"image_seed": "1", "image_order": "congruent congruent"}, "should differ, but are congruent congruent. See"),
        ({"checkpoint": "text.pt", "image_order": "blank"}, "images can't be blank, as .*text.pt was trained without"),
        ({"split": "tset"}, "should hold binarised text of the split 'tset'"),
        ({"batch_size": "0"}, "batch size should be at least 1, but is 0. See --batch-size"),
        ({"max_len_a": "-100"}, "tokens of a source token should be 0 or more, but are -100. See --max-len-a"),
        ({"max_len_a": "inf"}, "--max-len-a should be a number, but is inf"),
        ({"seed": "-1"}, "--seed should be 0 or more, but is -1"),
        ({"device": "gpu"}, "the device should be cpu, cuda or cuda:N, but is gpu"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words(
    changes: dict[str, str], message: str, animals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: animals / value for name, value in changes.items() if name in ("text", "reference", "checkpoint")}
    plain = {name: value for name, value in changes.items() if name not in (*files, "image_order", "positions")}
    more = [word for name, value in plain.items() for word in (f"--{name.replace('_', '-')}", value)]
    more += ["--image-order", *changes["image_order"].split()] if "image_order" in changes else []
    positions = {"positions": changes["positions"]} if "positions" in changes else {}
    out = tmp_path / "out"
    (out.parent / "positions").unlink(missing_ok=True)
    assert probe(animals, out, *more, **positions, **files) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert not (out / "results.json").exists()


def test_a_dictionary_without_a_mask_and_a_twin_of_another_language_are_refused(
    animals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(animals / "text", tmp_path / "text")
    for name in ("en", "de"):
        text = (tmp_path / f"text/train.{name}").read_text(encoding="utf-8").replace("<mask>", "something")
        (tmp_path / f"text/train.{name}").write_text(text, encoding="utf-8")
    for split in ("train", "valid", "test"):
        shutil.move(tmp_path / f"text/{split}.de", tmp_path / f"text/{split}.fr")
    binarise(tmp_path, "en", "fr")
    french = translator(tmp_path, tmp_path / "fr.pt", "-t", "fr", arch="text_only_transformer", images=False)
    assert probe(animals, tmp_path / "out", checkpoint=french) == 2
    assert f"source dictionary of {french} should have <mask> or [MASK]" in capsys.readouterr().err
    assert probe(animals, tmp_path / "out", "--twin-checkpoint", french) == 2
    assert f"and {french} translate into de and fr" in capsys.readouterr().err


def test_a_probe_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "entity-msking", "--checkpoint", "x.pt"]) == 2
    assert re.search("the probe should be .*entity-masking.* but is .entity-msking.", capsys.readouterr().err)
    assert main(["probe"]) == 2
    assert "but is not given" in capsys.readouterr().err


def test_translations_are_generated_as_the_flags_say(animals: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from visual_grounding.probes import entity_masking

    asked: list[dict[str, object]] = []
    translate = entity_masking.translate

    def watched(*given: Any, **generation: object) -> Any:
        asked.append(generation)
        return translate(*given, **generation)

    monkeypatch.setattr(entity_masking, "translate", watched)
    assert probe(animals, tmp_path / "out", lenpen=0.25, max_len_a=1.5) == 0
    assert asked and all(each == {"beam": 2, "lenpen": 0.25, "max_len_a": 1.5, "max_len_b": 12} for each in asked)
