"""The model of VLP's pre-training: what its heads are asked, where its BERT comes from, what a checkpoint keeps."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from vision_language import WORDS, flags, make_task, make_world, small_bert, whole

from visual_grounding import InputError
from visual_grounding.models.vlp_bert import VLPBertModel
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def task(world):
    return make_task(world)


def build(task, **given: object) -> VLPBertModel:
    torch.manual_seed(1)
    return task.build_model(flags(**given)).eval()


def asked(batch: dict) -> dict:
    return {**batch["net_input"], "hidden_words": batch["target"] != 1, "hidden_tags": batch["tag_target"] != 1}


def test_heads_are_asked_for_what_is_hidden_in_its_order(task):
    model, batch = build(task), whole(task, "train")
    with torch.no_grad():
        found = model(**asked(batch))
        stream = model.stream(batch["net_input"]["src_tokens"], batch["net_input"]["visual"]).hidden
        for name, logits, first in (
            ("target", found.words, 1),
            ("tag_target", found.tags, 1 + batch["target"].shape[1]),
        ):
            places = (batch[name] != 1).nonzero()
            assert len(logits) == len(places) > 3
            for row, (sentence, column) in zip(logits, places.tolist()):
                expected = model.word_head(stream[sentence, first + column], model.stream.words)
                torch.testing.assert_close(row, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(found.paired, model.paired_head(stream[:, 0]))
        nothing = model(**batch["net_input"])
    assert nothing.words.shape == (0, len(task.dictionary)) and nothing.tags.shape == nothing.words.shape


def test_a_gradient_reaches_every_parameter(task):
    model, batch = build(task), whole(task, "train")
    found = model(**asked(batch))
    (torch.cat([found.words, found.tags]).square().mean() + found.paired.square().mean()).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.abs().sum() > 0, name


def test_hidden_tags_that_were_cut_are_not_predicted(world):
    """8 positions: [CLS], at most three words and </s> leave room for 2 tags with [SEP] or fewer."""
    task = make_task(world, mask_prob=0.999)
    batch = whole(task, "train")
    model = build(task, bert_positions=8)
    found = model(**asked(batch))
    hidden = batch["tag_target"] != 1
    assert len(found.tags) == int(found.predicted_tags.sum()) < int(hidden.sum())
    assert not (found.predicted_tags & ~hidden).any()


def test_sizes_come_from_the_preset_and_a_flag_beats_it(task):
    from fairseq.models import ARCH_CONFIG_REGISTRY

    for arch, sizes in (("vlp_bert_tiny", (4, 128)), ("vlp_bert_small", (6, 512)), ("vlp_bert", (12, 768))):
        args = Namespace(arch=arch, bert_layers=1 if arch == "vlp_bert" else None)
        ARCH_CONFIG_REGISTRY[arch](args)
        config = VLPBertModel.build_model(args, task).stream.bert.config
        layers, size = sizes
        assert (config.num_hidden_layers, config.hidden_size) == (1 if arch == "vlp_bert" else layers, size)


def test_checkpoint_keeps_the_configuration_and_reads_nothing(world, tmp_path):
    folder = small_bert(tmp_path / "bert", max_position_embeddings=20)
    (tmp_path / "bin").mkdir()
    for name in ("store", "ids"):
        (tmp_path / name).symlink_to(world / name)
    lines = TokenizerBridge(str(folder)).dictionary_lines()
    (tmp_path / "bin/dict.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    task = make_task(tmp_path, image_tags=str(folder))
    args = Namespace(arch="vlp_bert", bert=str(folder))
    model = VLPBertModel.build_model(args, task)
    assert json.loads(args.bert_config)["max_position_embeddings"] == 20 and model.max_positions() == 19
    assert args.visual_feature_size == 6
    folder.rename(tmp_path / "elsewhere")
    again = VLPBertModel.build_model(args, make_task(tmp_path, image_tags=None))
    again.load_state_dict(model.state_dict())
    assert again.stream.bert.config.to_dict() == model.stream.bert.config.to_dict()


def test_pretrained_bert_brings_its_weights_and_its_head(world, tmp_path):
    from transformers import BertForMaskedLM

    folder = small_bert(tmp_path / "bert")
    (tmp_path / "bin").mkdir()
    for name in ("store", "ids"):
        (tmp_path / name).symlink_to(world / name)
    bridge = TokenizerBridge(str(folder))
    (tmp_path / "bin/dict.txt").write_text("".join(f"{line}\n" for line in bridge.dictionary_lines()), encoding="utf-8")
    task = make_task(tmp_path, image_tags=None)
    model = VLPBertModel.build_model(Namespace(arch="vlp_bert", bert=str(folder)), task).eval()
    own = BertForMaskedLM.from_pretrained(folder).eval()
    numbers = bridge.numbers_of(["a dogs run"])[0]
    tokens = torch.tensor([[*numbers, 2]])
    ids = torch.tensor([[bridge.tokenizer_ids[n] for n in (0, *numbers, 2)]])
    everything = torch.ones_like(tokens, dtype=torch.bool)
    with torch.no_grad():
        logits = model(tokens, hidden_words=everything).words
        expected = own(input_ids=ids).logits[0, 1:][:, bridge.tokenizer_ids]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bert_size": 15}, "a BERT's 2 heads should divide its size, 15"),
        ({"visual_feature_size": 5}, "takes image features of size 5, but .*store has size 6"),
    ],
)
def test_what_does_not_fit_is_refused(task, given, message):
    with pytest.raises(InputError, match=message):
        build(task, **given)


def test_size_beside_a_bert_that_has_its_own_is_refused(world, tmp_path):
    folder = small_bert(tmp_path / "bert")
    (tmp_path / "bin").mkdir()
    lines = TokenizerBridge(str(folder)).dictionary_lines()
    (tmp_path / "bin/dict.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    task = make_task(world, data=str(tmp_path / "bin"), image_tags=None)
    build(task, bert=str(folder))  # the same sizes
    with pytest.raises(InputError, match=r"--bert-layers is 3, but the BERT is that of --bert .*, where it is 2: le"):
        build(task, bert=str(folder), bert_layers=3)


def test_training_that_goes_on_takes_the_configuration_of_its_checkpoint(world, tmp_path, caplog):
    """The sizes needn't be given again, and --bert isn't read, which may be gone."""
    args = flags(bert_dropout=0.3)
    make_task(world).build_model(args)
    args.bert = "begun"
    torch.save({"args": args, "model": {"any": torch.ones(1)}, "task_state": {}}, tmp_path / "checkpoint_last.pt")
    task = make_task(world, save_dir=str(tmp_path))
    for given in ({"bert": "gone"}, {"bert": "begun"}, {"bert_dropout": 0.0}):
        caplog.clear()
        later = Namespace(arch="vlp_bert", **given)
        config = VLPBertModel.build_model(later, task).stream.bert.config
        assert (config.hidden_size, config.hidden_dropout_prob) == (16, given.get("bert_dropout", 0.3))
        assert (
            ("--bert gone isn't read" in caplog.text) == ("isn't read" in caplog.text) == (given.get("bert") == "gone")
        )
    with pytest.raises(InputError, match=r"--bert-size is 8, but the BERT is that of .*_last.pt, where it is 16: l"):
        VLPBertModel.build_model(Namespace(arch="vlp_bert", bert_size=8), task)


@pytest.mark.parametrize("broken", ["{", "[" * 9999, "3", "{}", 3, '"x"'])
def test_settings_of_a_checkpoint_that_no_training_wrote_are_refused(world, tmp_path, broken):
    """Where it is loaded, and where training goes on from it."""
    args = flags(bert_config=broken)
    with pytest.raises(
        InputError, match=r"^(the checkpoint's settings should make a model|the configuration of a BERT)"
    ):
        VLPBertModel.build_model(args, make_task(world))
    path = tmp_path / "checkpoint_last.pt"
    torch.save({"args": args, "model": {"any": torch.ones(1)}}, path)
    with pytest.raises(InputError, match=rf"^{path} should (have|be)"):
        VLPBertModel.build_model(Namespace(arch="vlp_bert"), make_task(world, save_dir=str(tmp_path)))


def test_translation_is_another_architectures(world):
    task = make_task(world)
    task.target_dictionary = task.source_dictionary
    with pytest.raises(InputError, match=r"train it with --task vision_language_pretraining.* --arch vlp_translation"):
        build(task)


def test_dropout_is_that_of_the_flag(task):
    assert build(task).stream.bert.config.hidden_dropout_prob == 0.1
    config = build(task, bert_dropout=0.3).stream.bert.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.3)


@pytest.mark.parametrize("dropout", [7.0, 1.0, -0.1, float("nan")])
def test_a_dropout_that_is_no_share_is_refused(task, dropout):
    with pytest.raises(InputError, match="--bert-dropout should be at least 0 and less than 1, but is"):
        build(task, bert_dropout=dropout)


def test_weights_of_another_vocabulary_are_refused(task, world):
    state = {**build(task).state_dict(), "word_head.bias": torch.zeros(len(WORDS))}
    with pytest.raises(InputError, match=r"word_head.bias.*other model flags, .* or with data of other words"):
        build(task).load_state_dict(state)
