"""Language models that tell vokens: what is asked of which head, where a BERT comes from, what a checkpoint keeps."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from small_voken_lm import model_flags, train_language_model, voken_task, whole_split
from torch.nn import functional
from vision_language import small_bert

from visual_grounding import InputError
from visual_grounding.modules.pretrained_bert import read_bert
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

ARCHITECTURES = ("voken_bert", "voken_roberta")


@pytest.fixture(scope="module")
def world(voken_world: Path) -> Path:
    return voken_world


def build(world: Path, arch: str = "voken_bert", flags: dict[str, Any] | None = None, **given: Any):
    torch.manual_seed(1)
    return voken_task(world, **(flags or {})).build_model(model_flags(arch, **given)).eval()


def asked(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch["net_input"], "word_targets": batch["word_targets"], "voken_targets": batch["voken_targets"]}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_losses_are_those_of_the_heads_at_each_place(world, arch):
    model, batch = build(world, arch, voken_head="deep"), whole_split(voken_task(world), "train")
    with torch.no_grad():
        found = model(**asked(batch))
        hidden = model.states(**batch["net_input"])
        words = model.word_head(hidden, model.words)  # (B, T, W)
        vokens = model.voken_head.scores(hidden)  # (B, T, V)
    for scores, target, answers in (
        (words, batch["word_targets"], found.words),
        (vokens, batch["voken_targets"], found.vokens),
    ):
        there = target >= 0
        expected = functional.cross_entropy(scores[there], target[there], reduction="sum")
        torch.testing.assert_close(answers.loss, expected)
        assert torch.equal(answers.right, scores[there].argmax(dim=1) == target[there]) and len(answers.right) > 5
    assert model(**batch["net_input"]) == (None, None)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_dropout_is_the_flags_and_in_training_alone(world, arch):
    model, batch = build(world, arch, voken_head="deep", bert_dropout=0.37), whole_split(voken_task(world), "train")
    assert {each.p for each in model.modules() if isinstance(each, torch.nn.Dropout)} - {0.0} == {0.37}
    with torch.no_grad():
        assert torch.equal(*(model.states(**batch["net_input"]) for _ in range(2)))
        model.train()
        assert not torch.allclose(*(model.states(**batch["net_input"]) for _ in range(2)))
    by_default = {each.p for each in build(world, arch).modules() if isinstance(each, torch.nn.Dropout)}
    assert by_default - {0.0} == {0.1}  # of states and of attention


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_states_are_those_of_transformers_and_padding_changes_nothing(world, arch):
    model, batch = build(world, arch), whole_split(voken_task(world), "train")
    tokens, mask = batch["net_input"]["src_tokens"], batch["net_input"]["padding_mask"]
    with torch.no_grad():
        hidden = model.states(tokens, mask)
        short = int(mask.any(dim=1).nonzero()[0])
        length = int((~mask[short]).sum())
        torch.testing.assert_close(
            hidden[short, :length], model.states(tokens[short : short + 1, :length])[0], rtol=0, atol=1e-5
        )
        own = model.body(input_ids=tokens[:1]).last_hidden_state
    torch.testing.assert_close(hidden[:1], own, rtol=0, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("weights", [(1, 1), (0, 1), (1, 0)])
def test_a_gradient_reaches_every_parameter_whatever_is_learned(world, arch, weights):
    flags = dict(zip(("voken_weight", "mlm_weight"), weights))
    task = voken_task(world, **flags)
    batch = whole_split(task, "train")
    model = build(world, arch, flags, voken_head="deep")
    found = model(**batch["net_input"], word_targets=batch["word_targets"], voken_targets=batch.get("voken_targets"))
    sum(each.loss for each in found if each is not None).backward()
    assert [each is not None for each in (found.vokens, found.words)] == [bool(weight) for weight in weights]
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.abs().sum() > 0, name


def test_the_heads_share_nothing_and_words_are_told_by_their_embedding(world):
    model = build(world, voken_head="deep")
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters() if "head" in name}
    words = len(voken_task(world).dictionary)
    assert shapes == {
        "word_head.bias": (words,), "word_head.transform.dense.weight": (16, 16),
        "word_head.transform.dense.bias": (16,), "word_head.transform.LayerNorm.weight": (16,),
        "word_head.transform.LayerNorm.bias": (16,),
        "voken_head.transform.0.weight": (16, 16), "voken_head.transform.0.bias": (16,),
        "voken_head.transform.2.weight": (16,), "voken_head.transform.2.bias": (16,),
        "voken_head.output.weight": (7, 16), "voken_head.output.bias": (7,),
    }  # fmt: skip
    assert "voken_head.transform.0.weight" not in build(world).state_dict()  # linear, the paper's


@pytest.mark.parametrize("flags", [{"voken_weight": 0.0}, {"vokens": None}])
def test_without_vokens_all_else_begins_alike_and_there_is_no_head_for_them(world, flags):
    with_vokens, without = build(world).state_dict(), build(world, flags=flags).state_dict()
    assert {name for name in with_vokens if name not in without} == {
        "voken_head.output.weight",
        "voken_head.output.bias",
    }
    assert all(torch.equal(with_vokens[name], weight) for name, weight in without.items())
    alone = build(world, flags={"mlm_weight": 0.0}).state_dict()
    assert not any(name.startswith("word_head") for name in alone)


def test_the_number_of_vokens_is_that_of_the_labels(world):
    count = len(voken_task(world).dictionary)
    for labels, expected in {"vokens": 7, "shuffled": 7, "random": 7, "tokens": count}.items():
        flags = {"voken_labels": labels, "vokens": None if labels == "tokens" else str(world / "vokens")}
        assert build(world, flags=flags).voken_head.output.out_features == expected


@pytest.mark.parametrize(
    ("preset", "sizes"),
    {"": (12, 768, 12, 3072), "_6l_512h": (6, 512, 8, 2048), "_12l_768h": (12, 768, 12, 3072)}.items(),
)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_presets_have_the_papers_sizes_and_a_flag_beats_them(world, arch, preset, sizes):
    args = Namespace(arch=arch + preset)
    ARCH_CONFIG_REGISTRY[arch + preset](args)
    with torch.device("meta"):
        ARCH_MODEL_REGISTRY[arch + preset].build_model(args, voken_task(world))
    config = json.loads(args.bert_config)
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    assert tuple(config[name] for name in names) == sizes
    roberta = arch == "voken_roberta"
    assert config["max_position_embeddings"] == (514 if roberta else 512)
    assert (config["type_vocab_size"], config["layer_norm_eps"]) == ((1, 1e-5) if roberta else (2, 1e-12))
    args = Namespace(arch=arch + preset, bert_layers=1)
    ARCH_CONFIG_REGISTRY[arch + preset](args)
    with torch.device("meta"):
        ARCH_MODEL_REGISTRY[arch + preset].build_model(args, voken_task(world))
    assert json.loads(args.bert_config)["num_hidden_layers"] == 1


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_blocks_may_be_as_long_as_there_are_positions(world, arch):
    assert build(world, arch).max_positions() == 16
    task = voken_task(world, tokens_per_sample=16)
    model = task.build_model(model_flags(arch)).eval()
    model(**whole_split(task, "train")["net_input"])
    with pytest.raises(
        InputError, match=r"--tokens-per-sample is 17, but the model has 16 positions\. .*--bert-position"
    ):
        voken_task(world, tokens_per_sample=17).build_model(model_flags(arch))


def test_checkpoint_keeps_its_heads_and_sizes_and_asks_the_task_for_nothing(world):
    args = model_flags(voken_head="deep", bert_dropout=0.0)
    model = voken_task(world).build_model(args)
    assert (args.voken_count, args.masked_words) == (7, True)
    again = ARCH_MODEL_REGISTRY["voken_bert"].build_model(args, voken_task(world, vokens=None))
    again.load_state_dict(model.state_dict())


def test_weights_of_other_vokens_are_refused(world):
    state = {**build(world).state_dict(), "voken_head.output.bias": torch.zeros(3)}
    with pytest.raises(
        InputError, match=r"voken_head.output.bias is \(3,\), not \(7,\).*other model flags, .* or with data"
    ):
        build(world).load_state_dict(state)


def test_another_task_is_refused(world):
    with pytest.raises(InputError, match="--arch voken_bert learns by --task voken_lm, not by Namespace"):
        ARCH_MODEL_REGISTRY["voken_bert"].build_model(model_flags(), Namespace())


def test_training_that_goes_on_takes_the_sizes_of_its_checkpoint(world, tmp_path):
    args = model_flags()
    voken_task(world).build_model(args)
    torch.save({"args": args, "model": {"any": torch.ones(1)}, "task_state": {}}, tmp_path / "checkpoint_last.pt")
    task = voken_task(world, save_dir=str(tmp_path))
    assert task.build_model(Namespace(arch="voken_bert", bert="gone")).body.config.hidden_size == 16
    with pytest.raises(
        InputError, match=r"--bert-size is 8, but the BERT is that of .*_last.pt, where it is 16: leave"
    ):
        task.build_model(Namespace(arch="voken_bert", bert_size=8))
    with pytest.raises(InputError, match=r"should be of --arch voken_roberta, but .*last.pt is of --arch voken_bert"):
        task.build_model(Namespace(arch="voken_roberta"))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_settings_of_a_checkpoint_that_no_training_wrote_are_refused(world, tmp_path, arch):
    """Where it is loaded, and where training goes on from it."""
    args = model_flags(arch)
    voken_task(world).build_model(args)
    kept = json.loads(args.bert_config)
    path, task = tmp_path / "checkpoint_last.pt", voken_task(world, save_dir=str(tmp_path))

    def refused(**broken):
        later = Namespace(**{**vars(args), **broken})
        with pytest.raises(InputError, match=r"^.{40,500}$") as loaded:
            voken_task(world).build_model(Namespace(**vars(later)))
        assert "\n" not in str(loaded.value)
        torch.save({"args": later, "model": {"any": torch.ones(1)}, "task_state": {}}, path)
        return str(loaded.value)

    for broken in ("{", "[" * 9999, "3", "[]", "{}", 3, ["x"], *(
        json.dumps({**kept, name: value}) for name, value in (
            ("hidden_size", "x"), ("hidden_size", 15), ("num_hidden_layers", 10**9), ("hidden_act", "none"),
            ("hidden_act", 3), ("hidden_dropout_prob", None), ("layer_norm_eps", "x"), ("type_vocab_size", -1),
            ("max_position_embeddings", 1), ("initializer_range", [1])))):  # fmt: skip
        refused(bert_config=broken)
        with pytest.raises(InputError, match=rf"^(?=.*{path}).{{40,600}}$"):
            task.build_model(Namespace(arch=arch))
    for count in ("x", -5, [3]):
        assert refused(voken_count=count).startswith("the checkpoint's settings should make a model, but don't: ")
    del kept["hidden_act"]
    torch.save({"args": Namespace(arch=arch, bert_config=json.dumps(kept)), "model": {"any": torch.ones(1)}}, path)
    with pytest.raises(
        InputError, match=r"_last\.pt should have the hidden_size, .* of a BERT, but lacks hidden_act\."
    ):
        task.build_model(Namespace(arch=arch))


def test_an_update_of_several_batches_counts_each_batchs_means_by_its_blocks(world, tmp_path):
    flags = ["--optimizer", "sgd", "--bert-dropout", 0, "--clip-norm", 0, "--batch-size", 6, "--max-update", 1]
    flags += ["--mlm-weight", 0.7, "--seed", 1, "--no-epoch-checkpoints"]
    train_language_model(world, tmp_path / "still", *flags, "--lr", 0)
    train_language_model(world, tmp_path / "moved", *flags, "--lr", 1, "--update-freq", 99)
    before, after = (load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("still", "moved"))
    task = voken_task(world, mlm_weight=0.7)
    model = task.build_model(model_flags(bert_dropout=0.0)).train()
    model.load_state_dict(before)
    whole_split(task, "train")
    dataset = task.dataset("train")
    batches = task.get_batch_iterator(dataset, max_sentences=6, seed=1).frozen_batches
    blocks = [len(batch) for batch in batches]
    assert len(batches) > 2 and len(set(blocks)) > 1
    for batch, count in zip(batches, blocks):
        sample = dataset.collater([dataset[index] for index in batch])
        asked_of = (sample["word_targets"], sample["voken_targets"])
        found = model(**sample["net_input"], word_targets=asked_of[0], voken_targets=asked_of[1])
        words, vokens = (
            answers.loss / int((asked >= 0).sum()) for answers, asked in zip((found.words, found.vokens), asked_of)
        )
        ((vokens + 0.7 * words) * count / sum(blocks)).backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(after[name], before[name] - weight.grad, rtol=1e-4, atol=1e-6)
        assert not torch.equal(after[name], before[name]), name


def test_a_bert_is_gone_on_from_with_its_head_or_begins_one(world, tmp_path):
    for head in (True, False):
        folder = small_bert(tmp_path / str(head), head)
        model = voken_task(world, tokens_per_sample=12).build_model(Namespace(arch="voken_bert", bert=str(folder)))
        read = read_bert(str(folder), TokenizerBridge(str(folder)).symbols, "dict.txt")
        own = model.word_head.state_dict()
        body = {f"bert.{name}": weight for name, weight in model.body.state_dict().items()}
        assert body.keys() == read.body.keys() and all(torch.equal(body[name], read.body[name]) for name in body)
        assert all(torch.equal(own[name], weight) for name, weight in read.head.items()) and bool(read.head) == head


def own_flags(kind: type) -> bool:
    return any("add_args" in vars(each) for each in kind.__mro__ if each.__module__.startswith("visual_grounding."))


@pytest.mark.parametrize("arch", [arch for arch, kind in ARCH_MODEL_REGISTRY.items() if own_flags(kind)])
def test_flags_that_nobody_gives_are_left_to_presets(arch):
    parser = ArgumentParser()
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    assert set(vars(parser.parse_args([])).values()) <= {None, False}  # of a switch
