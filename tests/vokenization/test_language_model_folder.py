"""An exported language model gives the outputs of its checkpoint, wherever transformers loads it."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tokenizers import SENTENCES, make_cased, make_tokenizer
from small_voken_lm import make_voken_world, model_flags, voken_task
from torch import Tensor

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.storage.whole_folder import REPLACED
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
from visual_grounding.vokenization.language_model_folder import export_language_model

TEXTS = ["A dog runs.", "the ball's red", "runs"]  # of at most 16 pieces with both ends


def trained(world: Path, place: Path, arch: str = "voken_bert", **given: Any) -> Any:
    """A model whose weights are all other than at the start, and its checkpoint as `fairseq-train` writes it."""
    task = voken_task(world, **given)
    args = model_flags(arch)
    torch.manual_seed(1)
    model = task.build_model(args).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    state = {name: weight.half() for name, weight in model.state_dict().items()}
    model.load_state_dict(state)
    torch.save({"cfg": {"model": args}, "model": state, "task_state": task.state_dict()}, place)
    return model


def own_outputs(model: Any, bridge: TokenizerBridge, text: str) -> tuple[Tensor, Tensor]:
    """States (T, D) and scores of words (T, E) of a text, in the tokenizer's order."""
    tokens = torch.tensor([[*bridge.opening, *bridge.numbers_of([text])[0], *bridge.closing]])
    with torch.no_grad():
        hidden = model.states(tokens)[0]
        scores = model.word_head(hidden, model.words)
    ordered = torch.empty(len(hidden), int(bridge.tokenizer_ids.max()) + 1)
    ordered[:, torch.from_numpy(bridge.tokenizer_ids)] = scores[:, : len(bridge)]
    return hidden, ordered


@pytest.mark.parametrize(
    ("arch", "family"), [("voken_bert", "wordpiece"), ("voken_roberta", "bytes"), ("voken_roberta", "wordpiece")]
)
def test_exported_model_gives_the_same_outputs_with_its_own_tokenizer(tmp_path, arch, family):
    from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

    world = make_voken_world(tmp_path / "world", family)
    model = trained(world, tmp_path / "checkpoint.pt", arch)
    exported = export_language_model(tmp_path / "checkpoint.pt", str(world / "vokens/train"), tmp_path / "out")
    assert "2 layers of 16" in exported.summary and exported.signature.startswith(f"language-model|arch:{arch}|checkpo")
    bridge = TokenizerBridge(str(world / "tokenizer"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    body = AutoModel.from_pretrained(tmp_path / "out").eval()
    masked, said = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not said["missing_keys"] and not said["unexpected_keys"]
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states, scores = body(**batch).last_hidden_state, masked.eval()(**batch).logits
    assert scores.shape[2] == len(bridge) == masked.config.vocab_size
    for row, text in enumerate(TEXTS):
        hidden, words = own_outputs(model, bridge, text)
        length = int(batch["attention_mask"][row].sum())
        torch.testing.assert_close(states[row, :length], hidden, rtol=0, atol=1e-5)
        torch.testing.assert_close(scores[row, :length], words, rtol=0, atol=1e-5)
    assert tokenizer.model_max_length == 16
    long = tokenizer([" ".join(SENTENCES)], truncation=True, return_tensors="pt")
    assert long["input_ids"].shape == (1, 16) and masked(**long).logits.isfinite().all()
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", num_labels=3)
    assert classifier(**batch).logits.shape == (3, 3)


@pytest.mark.parametrize(("arch", "family"), [("voken_bert", "wordpiece"), ("voken_roberta", "bytes")])
def test_training_begins_with_an_exported_model(tmp_path, arch, family):
    world = make_voken_world(tmp_path / "world", family)
    model = trained(world, tmp_path / "checkpoint.pt", arch)
    export_language_model(tmp_path / "checkpoint.pt", str(world / "tokenizer"), tmp_path / "out")
    again = voken_task(world).build_model(Namespace(arch=arch, bert=str(tmp_path / "out"))).eval()
    own, others = model.state_dict(), again.state_dict()
    alike = [name for name in own if torch.equal(own[name], others[name])]
    # What isn't exported, and positions that stand for padding.
    assert {name for name in own if name not in alike} <= {
        "voken_head.output.weight", "voken_head.output.bias", "body.embeddings.position_embeddings.weight"
    }  # fmt: skip
    bridge = TokenizerBridge(str(world / "tokenizer"))
    for text in TEXTS:
        for found, expected in zip(own_outputs(again, bridge, text), own_outputs(model, bridge, text)):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_roberta_whose_padding_is_another_number_is_read_and_another_family_is_not(tmp_path):
    from transformers import RobertaConfig, RobertaForMaskedLM

    world = make_voken_world(tmp_path / "world")  # whose tokenizer pads with number 0
    folder = make_tokenizer(tmp_path / "roberta", "wordpiece")
    bridge = TokenizerBridge(str(folder))
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(1)
    theirs = RobertaForMaskedLM(
        RobertaConfig(**sizes, vocab_size=len(bridge), max_position_embeddings=17, pad_token_id=0, type_vocab_size=1)
    ).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    theirs.save_pretrained(folder)
    model = voken_task(world).build_model(Namespace(arch="voken_roberta", bert=str(folder))).eval()
    assert model.max_positions() == 16
    for text in TEXTS:
        ids = torch.tensor([bridge.tokenizer(text)["input_ids"]])
        with torch.no_grad():
            expected = theirs(input_ids=ids).logits[0]
        torch.testing.assert_close(own_outputs(model, bridge, text)[1], expected, rtol=0, atol=1e-5)
    with pytest.raises(InputError, match=r"roberta should be a BERT with absolute positions, but is of kind 'roberta'"):
        voken_task(world).build_model(Namespace(arch="voken_bert", bert=str(folder)))


def test_model_of_vokens_alone_has_no_head_and_says_so(voken_world, tmp_path, capsys):
    from transformers import AutoModel

    trained(voken_world, tmp_path / "checkpoint.pt", mlm_weight=0.0)
    words = ["export", "--checkpoint", tmp_path / "checkpoint.pt", "--to", "transformers", "--tokenizer",
             voken_world / "tokenizer", "--out", tmp_path / "out"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    assert "BertModel, 2 layers of 16, " in (said := capsys.readouterr().out) and "without a head for masked" in said
    assert json.loads((tmp_path / "out/config.json").read_text())["architectures"] == ["BertModel"]
    _, found = AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert {name.partition(".")[0] for name in found["missing_keys"]} <= {"pooler"} and not found["unexpected_keys"]


def test_bert_of_a_vision_language_model_is_exported_without_what_is_for_images(tmp_path):
    from transformers import AutoModelForMaskedLM
    from vision_language import flags, make_task, make_world

    world = make_world(tmp_path)
    tokenizer = make_tokenizer(tmp_path / "tokenizer", "wordpiece")
    bridge = TokenizerBridge(str(tokenizer))
    (tmp_path / "bin/dict.txt").write_text("".join(f"{line}\n" for line in bridge.dictionary_lines()), encoding="utf-8")
    task, args = make_task(world, image_tags=None), flags()
    model = task.build_model(args).eval()
    state = {"cfg": {"model": args}, "model": model.state_dict(), "task_state": task.state_dict()}
    torch.save(state, tmp_path / "checkpoint.pt")
    export_language_model(tmp_path / "checkpoint.pt", str(tokenizer), tmp_path / "out")
    exported = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    numbers = bridge.numbers_of(["a dog"])[0]
    tokens, ids = torch.tensor([[*numbers, 2]]), torch.tensor([bridge.tokenizer("a dog")["input_ids"]])
    with torch.no_grad():
        expected = model(tokens, hidden_words=torch.ones_like(tokens, dtype=torch.bool)).words
        found = exported(input_ids=ids).logits[0, 1:][:, bridge.tokenizer_ids]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_padding_words_of_the_dictionary_are_dropped(voken_world, tmp_path):
    from transformers import AutoConfig

    for name in ("vokens", "tokenizer"):
        (tmp_path / name).symlink_to(voken_world / name)
    (tmp_path / "bin").mkdir()
    lines = (voken_world / "bin/dict.txt").read_text(encoding="utf-8") + "madeupword0000 0\nmadeupword0001 0\n"
    (tmp_path / "bin/dict.txt").write_text(lines, encoding="utf-8")
    model = trained(tmp_path, tmp_path / "checkpoint.pt")
    export_language_model(tmp_path / "checkpoint.pt", str(tmp_path / "tokenizer"), tmp_path / "out")
    pieces = len(TokenizerBridge(str(tmp_path / "tokenizer")))
    assert AutoConfig.from_pretrained(tmp_path / "out").vocab_size == pieces == len(model.words) - 2


@pytest.fixture(scope="module")
def exported(voken_world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint, and the folder of its tokenizer."""
    place = tmp_path_factory.mktemp("checkpoint") / "checkpoint.pt"
    trained(voken_world, place)
    return place, voken_world / "tokenizer"


def test_other_tokenizers_and_other_models_are_refused(exported, tmp_path):
    checkpoint, tokenizer = exported
    other = make_tokenizer(tmp_path / "bytes", "bytes")
    with pytest.raises(
        InputError, match=r"bytes should have the tokenizer whose pieces .*checkpoint.pt was trained on, "
    ) as e:
        export_language_model(checkpoint, str(other), tmp_path / "out")
    assert e.value.choices == ("tokenizer",)
    swapped = tmp_path / "swapped"  # as many pieces, in another order
    swapped.mkdir()
    for path in tokenizer.iterdir():
        text = path.read_text(encoding="utf-8")
        (swapped / path.name).write_text(text.replace('"dog": 12', '"dog": 13').replace('"run": 13', '"run": 12'))
    assert len(TokenizerBridge(str(swapped))) == len(TokenizerBridge(str(tokenizer)))
    with pytest.raises(InputError, match=r"but its \d+ pieces are others, or in another order"):
        export_language_model(checkpoint, str(swapped), tmp_path / "out")
    cased = make_cased(tmp_path / "cased", tokenizer)
    with pytest.raises(InputError, match=r"cased has the pieces of .*checkpoint.pt, but cuts text in another way than"):
        export_language_model(checkpoint, str(cased), tmp_path / "out")
    state = torch.load(checkpoint, weights_only=True)
    torch.save({**state, "cfg": {"model": {"_name": "vtlm"}}}, tmp_path / "vtlm.pt")
    with pytest.raises(
        InputError, match=r"vtlm.pt should be of --arch voken_bert, voken_roberta, vlp_bert, or a preset"
    ):
        export_language_model(tmp_path / "vtlm.pt", str(tokenizer), tmp_path / "out")
    known = json.loads(state["cfg"]["model"].bert_config)
    many = [json.dumps({**known, name: 10**6}) for name in ("num_hidden_layers", "intermediate_size")]
    for broken in (None, "{", "[]", '{"hidden_size": "x"}', *many):
        flags = Namespace(**{**vars(state["cfg"]["model"]), "bert_config": broken})
        torch.save({**state, "cfg": {**state["cfg"], "model": flags}}, tmp_path / "broken.pt")
        with pytest.raises(
            InputError,
            match=r"broken.pt should be a checkpoint of --arch voken_bert, but can't"
            if broken not in many[1:]
            else r"broken.pt should hold .* of another shape",
        ):
            export_language_model(tmp_path / "broken.pt", str(tokenizer), tmp_path / "out")
    state["model"].pop("body.encoder.layer.1.output.dense.bias")
    torch.save(state, tmp_path / "part.pt")
    with pytest.raises(
        InputError, match=r"part.pt should hold .* 1 missing \(bert.encoder.layer.1.output.dense.bias\)"
    ):
        export_language_model(tmp_path / "part.pt", str(tokenizer), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_older_model_is_replaced_and_what_else_lies_there_stays(exported, tmp_path):
    checkpoint, tokenizer = exported
    out = tmp_path / "out"
    export_language_model(checkpoint, str(tokenizer), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert os.stat(out / "model.safetensors").st_mode & 0o044  # others may read it
    (out / "notes").write_text("mine")
    (out / "config.json").write_text("{")
    export_language_model(checkpoint, str(tokenizer), out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {**before, "notes": b"mine"}
    assert sorted(os.listdir(tmp_path)) == ["out"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match=r"other should be a new folder .* holds 1 other things, such as config\.json"):
        export_language_model(checkpoint, str(tokenizer), tmp_path / "other")
    out.rename(f"{out}{REPLACED}")  # by an export that was killed
    export_language_model(checkpoint, str(tokenizer), out)
    assert (out / "notes").read_text() == "mine" and sorted(os.listdir(tmp_path)) == ["other", "out"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--to", "transformers"], "the tokenizer that cut the model's text is needed, too"),
        (["--to", "transformers", "--tokenizer", "t", "--data", "d"], "--data d is for a retriever; --to transformers"),
        (["--tokenizer", "t"], "--tokenizer t belongs to --to transformers; a retriever has its own"),
    ],
)
def test_flags_that_exclude_each_other_are_refused(more, message, capsys):
    assert main(["export", "--checkpoint", "c", "--out", "o", *more]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_neither_writing_nor_reading_needs_fairseq(exported, tmp_path):
    checkpoint, tokenizer = exported
    code = (
        "import sys; sys.modules['fairseq'] = None\n"
        "from visual_grounding.cli.main import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "from transformers import AutoModelForMaskedLM\n"
        "AutoModelForMaskedLM.from_pretrained(sys.argv[-1])\n"
    )
    words = ["export", "--checkpoint", checkpoint, "--to", "transformers", "--tokenizer", tokenizer, "--out",
             tmp_path / "out"]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
