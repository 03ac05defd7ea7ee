"""Language models with vokens by the real commands: every variant, two processes, from pieces to transformers."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run_command, train_in_two_processes
from small_voken_lm import language_model_flags, make_voken_world, train_language_model

from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

SCORES = ("loss", "voken_loss", "mlm_loss", "ppl", "word_accuracy", "voken_accuracy", "voken_accuracy_masked",
          "voken_accuracy_visible")  # fmt: skip
VARIANTS: dict[str, list[Any]] = {
    "voken and masked words": [],
    "the deeper head": ["--voken-head", "deep"],
    "masked words alone": ["--voken-weight", 0],
    "vokens alone": ["--mlm-weight", 0],
    "shuffled": ["--voken-labels", "shuffled"],
    "random": ["--voken-labels", "random"],
    "tokens": ["--voken-labels", "tokens"],
    "sentence label": ["--voken-sentence-label", "cls"],
    "sentence label of the code": ["--voken-sentence-label", "first"],
}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_voken_world(tmp_path_factory.mktemp("sentences"), label="sentence")


def logged(output: str, split: str) -> list[dict[str, float]]:
    """What was logged of a split, one dict an epoch."""
    found = [json.loads(line) for line in re.findall(r"\{.*\}", output) if f'"{split}_loss"' in line]
    begin = f"{split}_"
    return [
        {name.removeprefix(begin): float(value) for name, value in each.items() if name.startswith(begin)}
        for each in found
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_and_validates(sentences, tmp_path, variant):
    train_language_model(sentences, tmp_path, *VARIANTS[variant], "--max-update", 2, "--no-epoch-checkpoints")
    state = load_checkpoint(tmp_path / "checkpoint_last.pt")
    scores = {name for _, name, _, _ in state["extra_state"]["metrics"]["valid"]}
    absent = {"vokens alone": {"mlm_loss", "word_accuracy"}, "sentence label": {"voken_accuracy_masked"}}
    absent["masked words alone"] = {name for name in SCORES if name.startswith("voken")}
    derived = {"loss", "ppl"}  # which checkpoints don't keep
    assert set(SCORES) - scores - derived == absent.get(variant, set())
    assert 0 < state["extra_state"]["val_loss"] < 20
    assert all(weight.isfinite().all() for weight in state["model"].values())


@pytest.mark.slow
def test_two_processes_see_the_same_masks_and_learn_and_log_the_same(voken_world, user_dir, tmp_path):
    """As one process that takes two batches an update: the same weights, whatever stands in each batch."""
    more = ["--user-dir", user_dir, "--optimizer", "sgd", "--lr", 0.5, "--bert-dropout", 0, "--batch-size", 3]
    one = run_command("fairseq-train", *language_model_flags(voken_world, tmp_path / "one", *more, "--update-freq", 2))
    assert one.returncode == 0, one.stderr
    outputs = train_in_two_processes(*language_model_flags(voken_world, tmp_path / "two", *more))
    weights = [load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("one", "two")]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=1e-4, atol=1e-6)
    for split in ("train", "valid"):
        alone, together = logged(one.stdout + one.stderr, split), logged(outputs[0], split)
        assert len(alone) == len(together) == 2 and alone[0]["loss"] != alone[1]["loss"]
        for first, second in zip(alone, together):
            expected = pytest.approx([second[name] for name in SCORES], abs=2e-3, rel=1e-3)
            assert [first[name] for name in SCORES] == expected, split


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "family"), [("voken_bert", "wordpiece"), ("voken_roberta", "bytes")])
def test_from_pieces_to_a_model_of_transformers(user_dir, tmp_path, arch, family):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    world = make_voken_world(tmp_path / "world", family)
    vokens = {split: world / "vokens" / split for split in ("train", "valid")}
    done = run_command(
        "fairseq-preprocess", "--only-source", "--srcdict", vokens["train"] / "dict.txt", "--trainpref",
        vokens["train"] / "tokens.txt", "--validpref", vokens["valid"] / "tokens.txt", "--destdir", tmp_path / "bin",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    flags = language_model_flags(world, tmp_path / "save", "--user-dir", user_dir, "--num-workers", 1, arch=arch)
    flags[0] = tmp_path / "bin"
    trained = run_command("fairseq-train", *flags)
    assert trained.returncode == 0, trained.stderr
    best = tmp_path / "save/checkpoint_best.pt"
    done = run_command(
        "fairseq-validate", tmp_path / "bin", "--user-dir", user_dir, "--task", "voken_lm", "--vokens",
        world / "vokens", "--path", best, "--batch-size", 1, "--cpu", "--num-workers", 0, "--log-format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (again,) = logged(done.stdout + done.stderr, "valid")
    best_epoch = min(logged(trained.stdout + trained.stderr, "valid"), key=lambda scores: scores["loss"])
    assert [again[name] for name in SCORES] == pytest.approx([best_epoch[name] for name in SCORES], abs=2e-3, rel=1e-3)
    done = run_command(
        "visual-grounding", "export", "--checkpoint", best, "--to", "transformers", "--tokenizer", vokens["train"],
        "--out", tmp_path / "model",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"voken_bert": "BertForMaskedLM", "voken_roberta": "RobertaForMaskedLM"}[arch] in done.stdout
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    scores = model(**tokenizer("A dog runs.", return_tensors="pt")).logits
    assert scores.shape[2] == len(TokenizerBridge(str(world / "tokenizer"))) and torch.isfinite(scores).all()
