"""The grounded model: from encoders of transformers, from its checkpoint alone, by its own flags, and refusals."""

import json
import shutil
from argparse import Namespace

import pytest
import torch
from small_grounded import make_encoder, make_task, make_world, model_flags, whole

from visual_grounding.criterions.grounded_masked_lm import GroundedMaskedLMCriterion
from visual_grounding.errors import InputError


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def test_it_begins_with_the_encoders_that_are_named(world, tmp_path):
    from transformers import AutoModel

    task = make_task(world)
    make_encoder(tmp_path / "other", "albert", 24, seed=3)
    model = task.build_model(model_flags(world, cross_modal_encoder=str(tmp_path / "other")))
    text, other = AutoModel.from_pretrained(world / "encoder"), AutoModel.from_pretrained(tmp_path / "other")
    own = dict(model.encoder.text.model.named_parameters())
    for name, weight in text.named_parameters():
        if name in own and "word_embeddings" not in name:
            assert torch.equal(own[name], weight), name
    layers = dict(model.encoder.cross_modal.model.named_parameters())
    theirs = dict(other.named_parameters())
    assert layers and all(torch.equal(weight, theirs[name]) for name, weight in layers.items())
    assert model.encoder.size == 24 and model.word_head.bias.shape == (len(task.dictionary),)
    same = task.build_model(model_flags(world))
    assert torch.equal(
        same.encoder.cross_modal.model.encoder.layer[0].output.dense.weight,
        same.encoder.text.model.encoder.layer[0].output.dense.weight,
    )
    assert same.encoder.cross_modal.model is not same.encoder.text.model  # a copy, which is trained


@pytest.mark.parametrize("kind", ["bert", "distilbert"])  # which name their number of layers differently
def test_the_cross_modal_encoder_may_end_behind_its_first_layers(world, tmp_path, kind):
    make_encoder(tmp_path / "other", kind)
    task = make_task(world)
    whole_one = task.build_model(model_flags(world, cross_modal_encoder=str(tmp_path / "other")))
    flags = model_flags(world, cross_modal_encoder=str(tmp_path / "other"), cross_modal_layers=1)
    cut = task.build_model(flags)
    kept, every = (model.encoder.cross_modal.state_dict() for model in (cut, whole_one))
    assert set(every) - set(kept) == {name for name in every if "layer.1." in name} != set()
    assert all(torch.equal(weight, every[name]) for name, weight in kept.items())
    assert cut.encoder.text.state_dict().keys() == whole_one.encoder.text.state_dict().keys()
    task.build_model(flags).load_state_dict(cut.state_dict())  # a checkpoint's flags say how many


def test_what_a_checkpoint_keeps_is_enough(world, tmp_path):
    task = make_task(world)
    shutil.copytree(world / "encoder", tmp_path / "encoder")
    flags = model_flags(world, image_ranks=5, grounded_dropout=0.25)
    flags.grounded_text_encoder = str(tmp_path / "encoder")
    model = task.build_model(flags).eval()
    shutil.rmtree(tmp_path / "encoder")
    again = task.build_model(flags).eval()
    again.load_state_dict(model.state_dict())
    sample = whole(task, "valid")["net_input"]
    assert torch.equal(
        again.encoder(sample["src_tokens"], sample["visual"]).text,
        model.encoder(sample["src_tokens"], sample["visual"]).text,
    )
    assert again.encoder.ranks == 5 and json.loads(flags.grounded_config)[0]["config"]["hidden_dropout_prob"] == 0.25


def test_the_text_encoder_is_frozen(world):
    model = make_task(world).build_model(model_flags(world)).train()
    assert not model.encoder.text.training
    trained = {
        name.split(".")[0] + "." + name.split(".")[1]
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }
    assert "encoder.text" not in trained and {"encoder.cross_modal", "encoder.image_projection"} <= trained


def test_without_images_it_has_no_part_for_them(world):
    task = make_task(world, images=False)
    model = task.build_model(model_flags(world))
    assert model.image_head is None and model.encoder.feature_size == 0
    assert not any("image_projection" in name or "image_ranks" in name for name in model.state_dict())
    assert model.max_positions() == 23


def test_a_text_encoder_without_an_end_tells_words_too(world, tmp_path):
    from transformers import GPT2Config, GPT2Model

    folder = shutil.copytree(world / "encoder", tmp_path / "open")
    for name in ("model.safetensors", "config.json"):
        (folder / name).unlink()
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    words = json.loads((folder / "tokenizer.json").read_text())
    words["post_processor"] = None  # nothing stands around a sentence
    for path in (*folder.glob("tokenizer*"), *folder.glob("*.txt")):
        path.unlink()
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    made = Tokenizer.from_str(json.dumps(words))
    PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=24, **special).save_pretrained(folder)
    torch.manual_seed(0)
    GPT2Model(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=15, n_positions=24)).save_pretrained(folder)
    task = make_task(world)
    flags = model_flags(world, cross_modal_encoder=str(world / "encoder"))
    flags.grounded_text_encoder = str(folder)
    model = task.build_model(flags).eval()
    sample = whole(task, "valid")
    net = sample["net_input"]
    hidden = sample["hidden_words"]
    found = model(**net, mask=task.mask, hidden_words=hidden, word_side=sample["word_side"])
    assert len(found.words.right) == int(hidden.sum()) > 0 and model.encoder.text.opens == 0
    states = model.encoder(net["src_tokens"], net["visual"]).text
    assert states.shape[1] == net["src_tokens"].shape[1] - 1


@pytest.mark.parametrize("objective", ["jmlm", "both", "none hidden"])
def test_distributed_training_gets_a_gradient_of_every_weight_in_every_step(world, tmp_path, objective):
    from torch.nn.parallel import DistributedDataParallel

    task = make_task(world, grounding_objective=objective if objective in ("jmlm", "both") else "jmlm")
    model = task.build_model(model_flags(world))
    sample, criterion = whole(task, "train"), GroundedMaskedLMCriterion(task, 1.0)
    if objective == "none hidden":
        sample["hidden_words"][:] = False
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(model)
        for _ in range(3):  # it complains in the step after one that left a weight out
            criterion(wrapped, sample)[0].backward()
    finally:
        torch.distributed.destroy_process_group()
    assert all((weight.grad is not None) == weight.requires_grad for weight in model.parameters())


def checkpoint_of(task, flags, path):
    model = task.build_model(flags)
    torch.save({"model": model.state_dict(), "args": flags, "task_state": {}, "extra_state": {}}, path)
    return model


def test_training_goes_on_without_the_encoders_folder_and_minds_its_flags(world, tmp_path):
    shutil.copytree(world / "encoder", tmp_path / "encoder")
    flags = model_flags(world, image_ranks=5)
    flags.grounded_text_encoder = str(tmp_path / "encoder")
    model = checkpoint_of(make_task(world), flags, tmp_path / "one.pt")
    shutil.rmtree(tmp_path / "encoder")
    task = make_task(world, finetune_from_model=str(tmp_path / "one.pt"))

    def again(**given):
        return task.build_model(Namespace(arch="grounded_albert", _name="grounded_albert", **given))

    found = again(grounded_text_encoder=str(tmp_path / "encoder"), grounded_dropout=0.35)
    assert found.encoder.ranks == 5 and found.state_dict().keys() == model.state_dict().keys()
    drops = {module.p for module in found.encoder.cross_modal.modules() if isinstance(module, torch.nn.Dropout)}
    assert drops == {0.35}
    others = {"image_ranks": 3, "cross_modal_layers": 1}
    others |= dict.fromkeys(("grounded_text_encoder", "cross_modal_encoder"), "other")
    for name, value in others.items():
        with pytest.raises(InputError, match=rf"--{name.replace('_', '-')} is {value}, but training goes on from"):
            again(**{name: value})


def test_dropout_is_that_of_both_encoders(world):
    model = make_task(world).build_model(model_flags(world, grounded_dropout=0.37))
    for part in (model.encoder.text, model.encoder.cross_modal):
        assert {module.p for module in part.modules() if isinstance(module, torch.nn.Dropout)} == {0.37}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"image_ranks": -1}, "--image-ranks should be 1 to 1048576, but is -1"),
        ({"image_ranks": 0}, "--image-ranks should be 1 to 1048576, but is 0"),
        ({"cross_modal_layers": 0}, "--cross-modal-layers should be 1 to 100, but is 0"),
        ({"cross_modal_layers": 3}, "--cross-modal-layers should be 1 to 2, as many as there are, but is 3"),
        ({"grounded_dropout": 2.0}, "--grounded-dropout should be at least 0 and less than 1, but is 2.0"),
        ({"grounded_dropout": -0.5}, "--grounded-dropout should be at least 0 and less than 1"),
    ],
)
def test_impossible_numbers_are_refused(world, flags, message):
    with pytest.raises(InputError, match=message):
        make_task(world).build_model(model_flags(world, **flags))


def test_what_does_not_fit_is_refused(world, tmp_path):
    task = make_task(world)
    make_encoder(tmp_path / "other")
    words = (tmp_path / "other/tokenizer.json").read_text()
    (tmp_path / "other/tokenizer.json").write_text(words.replace('"near"', '"nearby"'))
    flags = model_flags(world)
    flags.grounded_text_encoder = str(tmp_path / "other")
    with pytest.raises(InputError, match="the dictionary of the text should be the dictionary of tokenizer"):
        task.build_model(flags)
    model = task.build_model(model_flags(world))
    sample = whole(task, "valid")["net_input"]
    with pytest.raises(InputError, match="trained on image features of size 6, but these have 3"):
        model(sample["src_tokens"], visual={**sample["visual"], "features": sample["visual"]["features"][..., :3]})


def test_a_cross_modal_encoder_that_reads_absent_images_is_refused(world, tmp_path):
    make_encoder(tmp_path / "other", "convbert")
    with pytest.raises(InputError, match="should leave out images that are absent, but in one of kind 'convbert'"):
        make_task(world).build_model(model_flags(world, cross_modal_encoder=str(tmp_path / "other")))
