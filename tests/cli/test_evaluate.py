"""`visual-grounding evaluate`: one report from real files, and every mistake that a user can make with them."""

import hashlib
import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from analysis.test_comet import install, write_model
from small_models import ARCHITECTURES, Task, build

from visual_grounding.analysis.score_files import read_score_files
from visual_grounding.analysis.seeds import compare_over_seeds
from visual_grounding.analysis.translation_scores import check_language, score_translations
from visual_grounding.cli.main import main
from visual_grounding.storage.artefact import sha256_of_file

REFERENCES = ["Ein Mädchen sitzt im Park .", "Zwei Hunde laufen über die Straße .", "Ein Mann liest .", "Sie lacht ."]
FIRST = ["Ein Mädchen sitzt im Garten .", "Zwei Hunde laufen über die Straße .", "Ein Mann liest .", ""]
SECOND = ["Ein Mädchen sitzt im Park .", "Zwei Hunde laufen über die Straße .", "Ein Mann schläft .", "Sie lacht ."]
TEXT_ONLY = ["Ein Kind sitzt im Park .", "Zwei Katzen laufen über die Straße .", "Eine Frau liest .", "Er lacht ."]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Paths of references, two seeds (the second as fairseq-generate writes it) and a twin."""
    generated = "".join(f"H-{i}\t-0.1\tx@@ y\nD-{i}\t-0.1\t{SECOND[i]}\n" for i in (2, 0, 3, 1))
    texts = {"ref": REFERENCES, "first": FIRST, "twin": TEXT_ONLY, "third": [*TEXT_ONLY[:3], "Sie lacht ."]}
    contents = {name: "".join(line + "\n" for line in lines) for name, lines in texts.items()}
    for name, content in {**contents, "second": generated}.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return {name: str(tmp_path / name) for name in ("ref", "first", "second", "twin", "third")} | {
        "out": str(tmp_path / "out")
    }


def evaluate(files: dict[str, str], *arguments: str, hypothesis: str = "first") -> int:
    hypotheses = [files[name] for name in hypothesis.split()]
    return main(
        ["evaluate", "--hypothesis", *hypotheses, "--reference", files["ref"], "--out", files["out"], *arguments]
    )


def report(files: dict[str, str]) -> Any:
    return json.loads(Path(files["out"], "scores.json").read_text(encoding="utf-8"))


def refused(files: dict[str, str], capsys: pytest.CaptureFixture[str], *arguments: str, **more: str) -> str:
    """The message of a run that must exit with 2 and write nothing."""
    assert evaluate(files, *arguments, **more) == 2
    assert not Path(files["out"]).exists()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("language", "message"),
    [("german", "two or three small letters, here de, but is 'german'. See --target-lang."), ("DE", ", here de, but"),
     ("de_DE", ", here de, but"),
     ("deutsch", ", such as de, but is 'deutsch'"), (" ", "but is ' '")],
)  # fmt: skip
def test_what_is_no_language_is_refused(files, capsys, language, message) -> None:
    assert message in refused(files, capsys, "--target-lang", language)
    flags = ("--comet", "no-model", "--source", files["ref"], "--source-lang", language)
    assert message.replace("target", "source") in refused(files, capsys, *flags)


def test_language_without_rules_is_said(files, capsys) -> None:
    assert evaluate(files, "--target-lang", "da") == 0
    assert "warning: the Moses rules have none for 'da': where they are applied, those of En" in capsys.readouterr().err
    assert check_language("ger", "target_lang") == (
        "the Moses rules have none for 'ger', but for 'de': where they are applied, those of English are taken."
    )
    assert evaluate(files, "--target-lang", "fr") == 0 and "Moses" not in capsys.readouterr().err


def test_evaluate_reports_two_seeds_against_a_twin(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    twins = ["--twin", files["twin"], files["twin"], "--bootstrap-samples", "50"]
    assert evaluate(files, *twins, hypothesis="first second") == 0
    result = report(files)
    ours, twin = result["systems"]["hypothesis"], result["systems"]["twin"]
    expected = [score_translations(lines, REFERENCES) for lines in (FIRST, SECOND)]
    for name in ("tokenised_bleu", "normalised_bleu", "sacrebleu", "chrf"):
        values = [getattr(scores, name) for scores in expected]
        assert ours[name]["values"] == values
        assert ours[name]["mean"] == pytest.approx(sum(values) / 2)
        assert ours[name]["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
        assert twin[name]["std"] == 0
        pairs = result["comparison"]["pairs"]
        assert [pair["hypothesis"] for pair in pairs] == [files["first"], files["second"]]
        for pair, value in zip(pairs, values):
            assert pair[name]["delta"] == pytest.approx(value - twin[name]["mean"])
            assert pair[name]["low"] <= pair[name]["high"]
            assert 0 < pair[name]["p_value"] <= 1
    assert (ours["meteor"], ours["parameters"], ours["empty"]) == (None, None, [1, 0])
    assert result["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert (result["comparison"]["samples"], result["comparison"]["seed"]) == (50, 1)
    assert result["meta"]["sha256"][files["ref"]] == sha256_of_file(files["ref"])
    assert result["meta"]["arguments"]["target_lang"] == "de"
    captured = capsys.readouterr()
    mean = ours["sacrebleu"]["mean"]
    row = next(line for line in captured.out.splitlines() if line.startswith("sacreBLEU, detokenised"))
    assert row.split()[2:5] == [f"{mean:.2f}", "±", f"{ours['sacrebleu']['std']:.2f}"]
    assert row.split()[-1] == f"{mean - twin['sacrebleu']['mean']:+.2f}"
    assert "METEOR: not computed (give --meteor-jar FILE)" in captured.out
    assert f"{files['second']} against {files['twin']}" in captured.out
    assert result["signature"] in captured.out
    assert "1 of 4 translations in " in captured.err
    assert "(25.0 %) are empty; they count." in captured.err


def test_evaluate_tests_all_seeds_by_one_test(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    twins = ["--twin", files["twin"], files["third"], "--bootstrap-samples", "60"]
    assert evaluate(files, *twins, hypothesis="first second") == 0
    found = read_score_files(Path(files["out"]))
    over_seeds = found.scores["comparison"]["over_seeds"]
    assert sorted(over_seeds) == ["chrf", "normalised_bleu", "sacrebleu", "tokenised_bleu"]
    systems = found.scores["systems"]
    for name, test in over_seeds.items():
        deltas = np.subtract(systems["hypothesis"][name]["values"], systems["twin"][name]["values"])
        drawn = found.resampled[f"hypothesis.{name}"] - found.resampled[f"twin.{name}"]
        assert drawn.shape == (2, 60)
        expected = compare_over_seeds(deltas, drawn, 4)._asdict()
        assert {**test, "deltas": None} == pytest.approx({**expected, "deltas": None})
        assert test["deltas"] == pytest.approx(deltas.tolist())
        pair = found.scores["comparison"]["pairs"][1][name]
        assert (pair["low"], pair["high"]) == pytest.approx(np.percentile(drawn[1], [2.5, 97.5]).tolist())
    captured = capsys.readouterr()
    rows = captured.out.partition("all 2 seeds: t-test over seeds and sentences, two-sided")[2].splitlines()
    test = over_seeds["chrf"]
    row = next(line for line in rows if line.startswith("chrF2"))
    assert row.split()[2:] == [
        f"{test['delta']:+.2f}",
        f"{test['low']:+.2f}",
        "…",
        f"{test['high']:+.2f}",
        f"{test['p_value']:.4f}",
    ]
    assert "same translations" not in captured.err


def test_evaluate_warns_when_two_seeds_are_one(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        evaluate(files, "--twin", files["twin"], files["twin"], "--bootstrap-samples", "5", hypothesis="first second")
        == 0
    )
    warning = (
        f"warning: --twin has the same translations in {files['twin']} and {files['twin']}, which are taken as two"
    )
    assert warning in capsys.readouterr().err
    assert evaluate(files, hypothesis="first second first") == 0
    warning = f"--hypothesis has the same translations in {files['first']} and {files['first']}, which"
    assert warning in capsys.readouterr().err


def test_evaluate_without_a_twin_has_no_comparison(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(files, hypothesis="second") == 0
    result = report(files)
    assert result["systems"]["twin"] is None
    assert (result["resampling"], read_score_files(Path(files["out"])).resampled) == (None, {})
    assert result["comparison"] is None
    assert result["systems"]["hypothesis"]["chrf"]["std"] is None
    out = capsys.readouterr().out
    assert "±" not in out
    assert "difference" not in out


def test_evaluate_counts_parameters_of_both(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for name, size in (("big.pt", 1234), ("small.pt", 1000)):
        torch.save(
            {"model": {"w": torch.zeros(size), "encoder.version": torch.zeros(1)}}, Path(files["ref"]).parent / name
        )
    folder = Path(files["ref"]).parent
    twin = ["--twin", files["twin"], "--twin-checkpoint", str(folder / "small.pt")]
    assert evaluate(files, "--checkpoint", str(folder / "big.pt"), *twin, "--bootstrap-samples", "5") == 0
    systems = report(files)["systems"]
    assert (systems["hypothesis"]["parameters"], systems["twin"]["parameters"]) == (1234, 1000)
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("parameters"))
    assert row.split() == ["parameters", "1,234", "1,000"]


def save_model(folder: Path, arch: str, task: Task | None = None, **flags: object) -> tuple[str, int]:
    """A checkpoint of a small model, and how many parameters it has."""
    model = build(arch, task, **flags)
    path = folder / f"{arch}.{len(list(folder.iterdir()))}.pt"
    torch.save({"cfg": {"model": Namespace(arch=arch)}, "model": model.state_dict()}, path)
    return str(path), sum(weight.numel() for weight in model.parameters())


def test_evaluate_warns_when_a_twin_differs_by_more_than_what_images_need(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    twin, twin_size = save_model(tmp_path, "text_only_transformer_tiny")
    smaller, smaller_size = save_model(tmp_path, "transformer_tiny", encoder_ffn_embed_dim=8)
    compared = 0
    for arch in ARCHITECTURES:
        ours, size = save_model(tmp_path, f"{arch}_tiny", visual_ffn_dim=4, visual_standardise=True)
        flags = ["--checkpoint", ours, "--twin", files["twin"], "--bootstrap-samples", "5", "--twin-checkpoint"]
        assert evaluate(files, *flags, twin) == 0
        captured = capsys.readouterr()
        assert "without what images need" not in captured.err
        systems = report(files)["systems"]
        assert systems["hypothesis"]["parameters_for_images"] == size - twin_size > 0
        assert systems["twin"]["parameters_for_images"] == 0
        row = next(line for line in captured.out.splitlines() if line.startswith("of these for images"))
        assert row.split()[-2:] == [f"{size - twin_size:,}", "0"]
        assert evaluate(files, *flags, smaller) == 0
        assert (
            f"warning: without what images need, {ours} has {twin_size:,} parameters ({size:,} - {size - twin_size:,}),"
            f" but {smaller} has {smaller_size:,}, so scores may differ because of the sizes. The twin of {arch}_tiny "
            "is --arch text_only_transformer_tiny, trained with otherwise the same flags on the same data.\n"
        ) in capsys.readouterr().err
        compared += 1
    assert compared == 3
    assert evaluate(files, "--checkpoint", smaller, *flags[2:], twin) == 0
    assert "Train both with the same sizes on the same data." in capsys.readouterr().err


def test_evaluate_says_where_each_text_comes_from(files: dict[str, str]) -> None:
    Path(files["ref"]).write_text("Ein Mädchen.\nZwei.\nDrei.\nVier.\n", encoding="utf-8")
    assert evaluate(files, "--reference-is", "raw") == 0
    conventions = report(files)["conventions"]
    assert conventions["tokenised_bleu"]["text"] == "hypotheses as given, references tokenised by sacremoses"
    assert conventions["sacrebleu"]["text"] == "hypotheses detokenised by sacremoses, references as given"
    assert conventions["normalised_bleu"]["text"].endswith("sacremoses, then lower-cased and accent-stripped")


def test_evaluate_warns_when_a_text_does_not_look_as_declared(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(files, "--reference-is", "raw") == 0
    err = capsys.readouterr().err
    assert "ref is taken as raw text, but most of its full stops look tokenised. If so: --reference-is tokenised" in err
    assert "--hypothesis-is" not in err


def test_evaluate_runs_meteor_on_every_file(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\necho "Final score: 0.$(wc -w < "$5")"\n')  # the number of words stands for a score
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "meteor.jar").touch()
    assert evaluate(files, "--meteor-jar", str(tmp_path / "meteor.jar"), hypothesis="first second") == 0
    assert report(files)["systems"]["hypothesis"]["meteor"]["values"] == [14.0, 16.0]
    out = capsys.readouterr().out
    assert "15.00 ± 1.41" in out
    assert "METEOR: not computed" not in out


def test_evaluate_computes_comet_of_every_sentence(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, model = install(monkeypatch), write_model(tmp_path / "wmt")
    (tmp_path / "source").write_text("A girl .\nTwo dogs .\nA man reads .\nShe laughs .\n")
    flags = ["--comet", str(model), "--source", str(tmp_path / "source"), "--bootstrap-samples", "30"]
    assert evaluate(files, *flags, "--twin", files["twin"]) == 0
    assert module.loaded == [str(model / "checkpoints/model.ckpt")]
    sample = module.calls[0]["samples"][0]
    assert sample == {"src": "A girl.", "mt": "Ein Mädchen sitzt im Garten.", "ref": "Ein Mädchen sitzt im Park."}
    found = read_score_files(Path(files["out"]))
    # words that the reference has, without the full stop at its own word: 4 of 5, 6 of 6, 3 of 3 and an empty line
    value = found.scores["systems"]["hypothesis"]["comet"]["values"][0]
    assert value == pytest.approx(100 * (4 / 5 + 1 + 1 + 0) / 4)
    pair = found.scores["comparison"]["pairs"][0]["comet"]
    assert pair["delta"] == pytest.approx(value - found.scores["systems"]["twin"]["comet"]["values"][0])
    assert found.resampled["hypothesis.comet"].shape == (1, 30)
    described = found.scores["metrics"]["comet"]
    assert described["label"] == "COMET × 100, wmt"
    assert described["model_sha256"] == hashlib.sha256(b"weights").hexdigest()  # another model of that name is told
    out = capsys.readouterr().out
    assert "COMET × 100, wmt" in out and "COMET: not computed" not in out


def test_evaluate_says_why_comet_is_not_computed(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(files) == 0
    assert "COMET: not computed (give --comet FOLDER and --source FILE)" in capsys.readouterr().out
    assert evaluate(files, "--comet", str(tmp_path), "--source", files["ref"]) == 0
    assert "COMET: not computed (unbabel-comet isn't installed: pip install unbabel-comet)" in capsys.readouterr().out
    assert report(files)["not_computed"]["COMET"].startswith("unbabel-comet isn't installed")
    assert report(files)["systems"]["hypothesis"]["comet"] is None


def test_evaluate_is_refused_when_comet_has_no_sources_or_others(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "as COMET reads the source sentences, but --source is missing." in refused(files, capsys, "--comet", "x")
    assert "but --comet is missing." in refused(files, capsys, "--source", files["ref"])
    install(monkeypatch)
    (tmp_path / "source").write_text("A girl .\n")
    flags = ["--comet", str(write_model(tmp_path / "wmt")), "--source", str(tmp_path / "source")]
    assert f"{files['ref']} has 4 sentences, but {tmp_path / 'source'} has 1." in refused(files, capsys, *flags)
    missing = refused(files, capsys, "--comet", str(tmp_path / "no"), "--source", files["ref"])
    assert "there is no file" in missing and "See --comet." in missing


def test_evaluate_warns_when_other_sources_were_translated(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch)
    (tmp_path / "source").write_text("a [MASK] .\ntwo dogs .\na man .\nshe .\n")
    generated = "".join(
        f"S-{i}\t{s}\nD-{i}\t-0.1\t{SECOND[i]}\n" for i, s in enumerate(["a girl .", "TWO d@@ ogs", "a man", "she"])
    )
    Path(files["second"]).write_text(generated, encoding="utf-8")
    flags = ["--comet", str(write_model(tmp_path / "wmt")), "--source", str(tmp_path / "source")]
    assert evaluate(files, *flags, hypothesis="second") == 0
    expected = (
        f"warning: 1 of 4 sources in {files['second']} (25.0 %) aren't those of {tmp_path / 'source'}, letter for"
    )
    assert expected in capsys.readouterr().err


def test_evaluate_is_refused_when_line_counts_differ(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files["first"]).write_text("Ein Hund .\n", encoding="utf-8")
    assert f"{files['ref']} has 4 sentences, but {files['first']} has 1." in refused(files, capsys)


def with_targets(path: str, targets: list[str]) -> None:
    """Translations as fairseq-generate writes them beside these targets."""
    lines = [
        f"T-{i}\t{target}\nH-{i}\t-0.1\t{SECOND[i]}\nD-{i}\t-0.1\t{SECOND[i]}\n" for i, target in enumerate(targets)
    ]
    Path(path).write_text("".join(reversed(lines)), encoding="utf-8")


def test_evaluate_is_refused_when_other_sentences_were_translated(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with_targets(files["twin"], ["A girl sits in the park .", "Two dogs run .", "A man reads .", "She laughs ."])
    expected = f"the first is sentence 1: 'A girl sits in the park .' in {files['twin']}, but 'Ein Mädchen sitzt im"
    assert expected in refused(files, capsys, "--twin", files["twin"])
    assert expected in refused(files, capsys, hypothesis="twin")


def test_evaluate_warns_when_some_targets_are_not_the_references(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with_targets(files["second"], [*REFERENCES[:3], "Er lacht ."])
    assert evaluate(files, hypothesis="second") == 0
    assert f"warning: 1 of 4 targets in {files['second']} (25.0 %) aren't the reference's" in capsys.readouterr().err
    with_targets(files["second"], [line.lower().replace("im", "i@@ m") for line in REFERENCES])
    assert evaluate(files, hypothesis="second") == 0
    assert "targets" not in capsys.readouterr().err


def test_evaluate_is_refused_when_ids_are_missing(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files["first"]).write_text("D-0\t-0.1\ta\nD-3\t-0.1\tb\n", encoding="utf-8")
    assert "2 are missing, the first is 1." in refused(files, capsys)


def test_evaluate_is_refused_when_a_file_is_missing_or_not_utf8(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nowhere can't be read: No such file" in refused(files, capsys, "--twin", files["first"] + "nowhere")
    Path(files["ref"]).write_bytes("ö\n".encode("latin-1"))
    assert "ref should be UTF-8, but line 1 has byte 0xf6" in refused(files, capsys)


def test_a_name_that_is_no_text_is_written_as_far_as_it_is(files: dict[str, str]) -> None:
    name = os.fsdecode(os.fsencode(files["first"]) + b"\xfc")
    os.rename(files["first"], name)
    assert evaluate({**files, "first": name}) == 0
    assert next(iter(report(files)["meta"]["sha256"])).endswith("first?")


def test_evaluate_is_refused_when_there_is_nothing_to_compare_with(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--twin-checkpoint needs the twin's translations" in refused(files, capsys, "--twin-checkpoint", "x.pt")
    Path(files["ref"]).write_text("")
    assert "is empty: nothing to compare with" in refused(files, capsys)


def test_evaluate_is_refused_when_pairs_are_incomplete(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(files, capsys, "--twin", files["twin"], hypothesis="first second")
    assert (
        "as many files as --hypothesis, as they are compared in pairs, but --hypothesis has 2 and --twin has 1"
        in message
    )


def test_evaluate_is_refused_when_numbers_are_impossible(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "bootstrap samples should be at least 1, but is 0. See --bootstrap-samples." in refused(
        files, capsys, "--bootstrap-samples", "0"
    )
    assert "--seed should be 0 or more, but is -1." in refused(files, capsys, "--seed", "-1")


def test_evaluate_is_refused_when_a_checkpoint_or_jar_is_wrong(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "ref should be a fairseq checkpoint, but is" in refused(files, capsys, "--checkpoint", files["ref"])
    assert "there is no file no.jar" in refused(files, capsys, "--meteor-jar", "no.jar")


def test_evaluate_is_refused_when_out_is_a_file(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files["out"]).touch()
    assert evaluate(files) == 2
    assert "out can't be written: Not a directory" in capsys.readouterr().err
