"""A checkpoint becomes a retriever that remembers how its features were made."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from small_matcher import make_bert, make_matcher

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.modules.token_image_matcher import TRAINING_CHOICES
from visual_grounding.retrieval.export import export_checkpoint
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.retrieval.retriever_folder import read_description
from visual_grounding.text.pretrained_tokenizer import PretrainedTokenizer
from visual_grounding.text.words import Vocabulary, digest_of_symbols

SIGNED = "extract|images:9|backbone:resnet50|weights:V2|pool:mean|version:0.1.0"
CHOICES = {
    "_name": "visual_semantic_embedding", "text_encoder": "bag", "text_embed_size": 2, "sru_layers": 4,
    "text_dropout": 0.25, "image_dropout": 0.5, "joint_batch_norm": True, "text_encoder_freeze": False,
}  # fmt: skip


def checkpoint(folder: Path, **fields: object) -> Path:
    """What `fairseq-train` saves in half precision of a bag-of-words retriever with 5 words; its `dict.txt` beside."""
    sizes = {"text.encoder.embedding.weight": (9, 2), "text.projection.weight": (3, 2), "text.projection.bias": (3,),
             "image.projection.weight": (3, 4), "image.projection.bias": (3,)}  # fmt: skip
    for tower, size in (("text", 2), ("image", 4)):
        sizes |= {f"{tower}.standardise.norm.{name}": (size,) for name in ("running_mean", "running_var")}
    weights = {f"embedding.{name}": torch.ones(size).half() for name, size in sizes.items()}
    for tower in ("text", "image"):
        weights[f"embedding.{tower}.standardise.norm.num_batches_tracked"] = torch.tensor(7)
    torch.save({"cfg": {"model": CHOICES}, "model": weights, **fields}, folder / "checkpoint.pt")
    (folder / "dict.txt").write_text("".join(f"w{number} 1\n" for number in range(5)))
    return folder / "checkpoint.pt"


def test_checkpoint_says_what_the_retriever_learned_from(tmp_path, capsys):
    path = checkpoint(tmp_path, task_state={"image_features": SIGNED})
    assert main(["export", "--checkpoint", str(path), "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert re.search(r"bag text encoder, joint size 3\nretriever\|text:bag\|checkpoint:[0-9a-f]{8}\|", printed.out)
    assert printed.err == ""
    description = read_description(tmp_path / "out")
    assert (description.kind, description.image_features) == ("joint_embedding", SIGNED)
    retriever = Retriever.load(tmp_path / "out")
    assert {weight.dtype for weight in retriever.embedding.parameters()} == {torch.float32}


@pytest.mark.parametrize("fields", [{}, {"task_state": {}}, {"task_state": {"image_features": None}}])
def test_checkpoint_that_does_not_say_is_exported_with_a_warning(tmp_path, capsys, fields):
    path = checkpoint(tmp_path, **fields)
    assert main(["export", "--checkpoint", str(path), "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert "checkpoint.pt doesn't say how the features that it was trained on were made" in capsys.readouterr().err
    assert read_description(tmp_path / "out").image_features is None


def test_checkpoint_that_says_no_text_is_refused(tmp_path):
    path = checkpoint(tmp_path, task_state={"image_features": 3})
    with pytest.raises(InputError, match=r"in text as task_state\['image_features'\], but says 3\."):
        export_checkpoint(path, tmp_path / "out", tmp_path)


def test_dictionary_with_the_same_words_in_another_order_is_refused(tmp_path, capsys):
    path = checkpoint(tmp_path)
    learned = digest_of_symbols(Vocabulary.load(tmp_path / "dict.txt").symbols)
    checkpoint(tmp_path, task_state={"image_features": None, "dictionaries": {"text": learned}})
    flags = ["export", "--checkpoint", str(path), "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    lines = (tmp_path / "dict.txt").read_text().splitlines()
    (tmp_path / "dict.txt").write_text("".join(f"{line}\n" for line in reversed(lines)))
    assert main(flags) == 2 and not (tmp_path / "out").exists()
    said = capsys.readouterr().err
    assert f"{tmp_path / 'dict.txt'} should have the words that {path} was trained with, in their order" in said
    assert f"of theirs {learned}. " in said and said.endswith(" See --data.\n")
    (tmp_path / "dict.txt").write_text("".join(f"{line.split()[0]} 7\n" for line in lines))  # other counts alone
    assert main(flags) == 0


def test_weights_that_do_not_fit_are_refused(tmp_path):
    path = checkpoint(tmp_path)
    state = torch.load(path)
    state["model"]["embedding.image.extra"] = torch.ones(1)
    torch.save(state, path)
    with pytest.raises(
        InputError, match=r"weights of architecture visual_semantic_embedding, but has 1 superfluous \(image"
    ):
        export_checkpoint(path, tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


def matcher_checkpoint(folder: Path, **fields: object) -> tuple[Path, Any]:
    """What `fairseq-train` saves of a matcher in half precision, and the matcher with those weights in float32."""
    bert = make_bert(folder / "bert")
    matcher = make_matcher(bert, sentence_level=bool(fields.pop("sentence_level", False)))
    weights = {f"matcher.{name}": weight.half() for name, weight in matcher.state_dict().items()}
    matcher.load_state_dict({name.removeprefix("matcher."): weight.float() for name, weight in weights.items()})
    described = asdict(matcher.config)
    choices = {flag: described[name] for name, flag in TRAINING_CHOICES.items()}
    model = {"_name": "token_image_matching", "text_encoder": str(bert), **choices}
    torch.save({"cfg": {"model": model}, "model": weights, **fields}, folder / "checkpoint.pt")
    return folder / "checkpoint.pt", matcher.eval()


@pytest.mark.parametrize("sentence_level", [False, True])
def test_matcher_is_exported_with_the_vectors_of_its_checkpoint(tmp_path, capsys, sentence_level):
    task_state = {"image_features": SIGNED}
    path, matcher = matcher_checkpoint(tmp_path, task_state=task_state, sentence_level=sentence_level)
    capsys.readouterr()  # transformers' progress
    assert main(["export", "--checkpoint", str(path), "--out", str(tmp_path / "out")]) == 0
    level = "sentence" if sentence_level else "token"
    printed = capsys.readouterr()
    assert (
        f"{level} matcher, last 2 layers of the text encoder, joint size 8\nretriever|text:pretrained|" in printed.out
    )
    assert f"|matches:{level}|layers:2|checkpoint:" in printed.out and "warning" not in printed.err
    description = read_description(tmp_path / "out")
    assert (description.kind, description.image_features) == ("token_matcher", SIGNED)
    retriever: Any = Retriever.load(tmp_path / "out")
    assert {weight.dtype for weight in retriever.matcher.parameters()} == {torch.float32}
    tokens = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
    features = torch.randn(2, 1, 6)
    with torch.no_grad():
        expected = matcher(tokens, tokens == 0, features, torch.zeros(2, 1, dtype=torch.bool))
        found = retriever.matcher(tokens, tokens == 0, features, torch.zeros(2, 1, dtype=torch.bool))
    assert all(torch.equal(*pair) for pair in zip(found, expected))


def test_matcher_whose_weights_do_not_fit_is_refused(tmp_path):
    path, _ = matcher_checkpoint(tmp_path)
    state = torch.load(path)
    del state["model"]["matcher.image.output.bias"]
    torch.save(state, path)
    message = r"of architecture token_image_matching, but has 1 missing \(image\.output\.bias\)\. Train it again"
    with pytest.raises(InputError, match=message):
        export_checkpoint(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_encoder_whose_tokenizer_is_another_now_is_refused(tmp_path):
    path, _ = matcher_checkpoint(tmp_path)
    own = digest_of_symbols(PretrainedTokenizer(str(tmp_path / "bert")).symbols())
    state = torch.load(path)
    torch.save({**state, "task_state": {"dictionaries": {"tokenizer": own}}}, path)
    export_checkpoint(path, tmp_path / "out")
    torch.save({**state, "task_state": {"dictionaries": {"tokenizer": "0" * 64}}}, path)
    with pytest.raises(
        InputError, match=r"bert should have the words that .*checkpoint\.pt was .*Put the encoder that"
    ):
        export_checkpoint(path, tmp_path / "other")
