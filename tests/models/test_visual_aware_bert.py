"""Models of understanding: transformers' own states, VA's layer behind them, heads, checkpoints, and pre-training."""

import json
from argparse import Namespace
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from small_examples import make_task, make_world, whole
from small_grounded import KINDS, make_encoder
from small_grounded import make_task as make_lm_task
from small_grounded import make_world as make_lm_world

from visual_grounding.errors import InputError
from visual_grounding.models.grounded_albert import GroundedAlbertModel
from visual_grounding.models.visual_aware_bert import VisualAwareBertModel
from visual_grounding.modules.visual_attention import VisualAttention


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def aware(world, task, **flags):
    given = {"arch": "visual_aware_bert", "_name": "visual_aware_bert", "bert": str(world / "encoder"), **flags}
    args = Namespace(**given)
    torch.manual_seed(0)
    return VisualAwareBertModel.build_model(args, task).eval(), args


def grounded(world, task, **flags):
    given = {"arch": "grounded_albert", "_name": "grounded_albert", "grounded_text_encoder": str(world / "encoder")}
    args = Namespace(**{**given, **flags})
    torch.manual_seed(0)
    return GroundedAlbertModel.build_model(args, task).eval(), args


BUILDERS = {"visual_aware_bert": aware, "grounded_albert": grounded}


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_pairs_are_those_of_transformers(kind, world, tmp_path):
    """Segments included, but for DistilBERT, which has none."""
    from transformers import AutoModel, AutoTokenizer

    folder = make_encoder(tmp_path / kind, kind)
    task = make_task(world, images=False)
    model, _ = aware(world, task, bert=str(folder))
    batch = whole(task)
    found = model.encoder.states(batch["net_input"]["src_tokens"])
    texts = [(world / f"pairs/valid.{side}").read_text().splitlines() for side in ("first", "second")]
    tokenizer, theirs = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    given = tokenizer(*texts, padding=True, return_tensors="pt")
    expected = theirs(
        **{name: value for name, value in given.items() if name != "token_type_ids" or kind != "distilbert"}
    )
    there = given["attention_mask"].bool()
    assert torch.allclose(found[there], expected.last_hidden_state[there], atol=1e-5)


def test_segments_matter(world):
    task = make_task(world, images=False)
    model, _ = aware(world, task)
    tokens = whole(task)["net_input"]["src_tokens"]
    with_segments = model(tokens)
    model.encoder.text.segments = False
    assert not torch.allclose(model(tokens), with_segments, atol=1e-4)


def test_states_look_at_images_by_equations_2_and_3(world):
    task = make_task(world)
    model, _ = aware(world, task)
    net_input = whole(task)["net_input"]
    net_input["visual"]["padding_mask"][0] = True
    encoder = model.encoder
    states, _ = encoder.text(net_input["src_tokens"])
    visual = net_input["visual"]
    images = encoder.image_projection(visual["features"], visual["padding_mask"])
    attention = encoder.fusion.attention(states.transpose(0, 1), images, visual["padding_mask"].flatten(1)).transpose(
        0, 1
    )
    fused = encoder.fusion.norm(encoder.fusion.output(states + attention))
    expected = fused[:, 0] @ model.head.output.weight.T + model.head.output.bias
    assert torch.allclose(model(**net_input), expected, atol=1e-5) and not attention[0].any() and attention[1].any()
    assert isinstance(encoder.fusion, VisualAttention) and encoder.fusion.attention.heads == 2


@pytest.mark.parametrize("arch", BUILDERS)
@pytest.mark.parametrize(
    ("name", "shape"), [("pairs", (12, 2)), ("values", (12, 1)), ("words", (12, 2)), ("tags", None)]
)
def test_every_kind_of_answer_has_its_outputs(arch, name, shape, world):
    task = make_task(world, name)
    model, _ = BUILDERS[arch](world, task)
    batch = whole(task)
    found = model(**batch["net_input"])
    assert found.shape == (shape or (*batch["target"].shape, 7))
    found.sum().backward()
    unused = {name for name, weight in model.named_parameters() if weight.grad is None}
    assert not unused
    gold, said = task.answered(found, batch)
    assert gold.shape == said.shape


@pytest.mark.parametrize("arch", BUILDERS)
def test_a_judged_word_is_told_from_its_own_state(arch, world):
    task = make_task(world, "words", images=False)
    model, _ = BUILDERS[arch](world, task)
    net_input = whole(task)["net_input"]
    states = model.encoder.states(net_input["src_tokens"])
    place = net_input["word_positions"] + 1
    expected = model.head(states[torch.arange(len(states)), place])
    assert torch.allclose(model(**net_input), expected) and len(set(place.tolist())) > 1


@pytest.mark.parametrize("arch", BUILDERS)
def test_images_change_what_is_told_and_absent_ones_do_not(arch, world):
    task = make_task(world)
    model, _ = BUILDERS[arch](world, task)
    net_input = whole(task)["net_input"]
    before = model(**net_input)
    net_input["visual"]["features"] = net_input["visual"]["features"].flip(0)
    assert not torch.allclose(model(**net_input), before, atol=1e-5)
    net_input["visual"]["padding_mask"][:] = True
    blank = model(**net_input)
    del net_input["visual"]
    assert torch.allclose(model(**net_input), blank, atol=1e-6)


@pytest.mark.parametrize("arch", BUILDERS)
def test_without_images_there_is_nothing_for_them(arch, world):
    task = make_task(world, images=False)
    model, _ = BUILDERS[arch](world, task)
    names = [name for name, _ in model.named_parameters() if "image_" in name or "fusion" in name]
    assert names == ([] if arch == "visual_aware_bert" else ["encoder.image_placeholder"])


@pytest.mark.parametrize("arch", BUILDERS)
def test_more_padding_changes_nothing(arch, world):
    task = make_task(world, "tags")
    model, _ = BUILDERS[arch](world, task)
    net_input = whole(task)["net_input"]
    before = model(**net_input)
    tokens = net_input["src_tokens"]
    net_input["src_tokens"] = torch.cat([tokens, tokens.new_ones(len(tokens), 3)], dim=1)
    assert torch.allclose(model(**net_input), before, atol=1e-5)


@pytest.mark.parametrize("arch", BUILDERS)
def test_a_checkpoint_needs_no_encoder_again(arch, world, tmp_path):
    task = make_task(world)
    model, args = BUILDERS[arch](world, task)
    flag = "bert" if arch == "visual_aware_bert" else "grounded_text_encoder"
    again, _ = BUILDERS[arch](world, task, **{**vars(args), flag: str(tmp_path / "gone")})
    again.load_state_dict(model.state_dict())
    net_input = whole(task)["net_input"]
    assert torch.equal(again(**net_input), model(**net_input))


@pytest.mark.parametrize("arch", BUILDERS)
def test_dropout_is_the_flags(arch, world):
    flag = "bert_dropout" if arch == "visual_aware_bert" else "grounded_dropout"
    model, _ = BUILDERS[arch](world, make_task(world), **{flag: 0.37})
    found = {each.p for each in model.modules() if isinstance(each, torch.nn.Dropout)} - {0.0}
    assert found == {0.37} and model.head.dropout.p == 0.37
    if arch == "visual_aware_bert":
        assert model.encoder.fusion.attention.dropout == 0.37


def test_the_flags_of_images_reach_their_projection(world):
    model, _ = aware(world, make_task(world))
    plain = model.encoder.image_projection
    assert (plain.hidden, plain.standardise, plain.dropout.p) == (None, None, 0.0)
    model, _ = aware(world, make_task(world), visual_ffn_dim=5, visual_dropout=0.37, visual_standardise=True)
    found = model.encoder.image_projection
    assert (found.hidden.in_features, found.hidden.out_features) == (6, 5) and found.dropout.p == 0.37
    assert found.standardise is not None and found.standardise.norm.num_features == 6


def test_flags_that_make_no_sense_are_refused(world):
    task = make_task(world)
    with pytest.raises(InputError, match="--visual-attention-heads should divide the encoder's size, 16, but is 3"):
        aware(world, task, visual_attention_heads=3)
    with pytest.raises(InputError, match="--bert-dropout should be at least 0 and less than 1, but is 1"):
        aware(world, task, bert_dropout=1.0)
    with pytest.raises(InputError, match="--visual-dropout should be at least 0 and less than 1, but is nan"):
        aware(world, task, visual_dropout=float("nan"))
    with pytest.raises(
        InputError, match="tells classes, numbers or tags of text: train it with --task grounded_sentence"
    ):
        aware(world, Namespace(source_dictionary=task.source_dictionary))
    with pytest.raises(InputError, match="--visual-feature-size is for a model with images: give --image-features"):
        aware(world, make_task(world, images=False), visual_feature_size=6)
    for build in BUILDERS.values():
        model, _ = build(world, make_task(world, images=False))
        with pytest.raises(InputError, match="the model was trained on text alone, but it is given images"):
            model(**whole(task)["net_input"])


def test_training_goes_on_with_as_many_heads(world, tmp_path):
    """Weights of the attention to images have the same shapes with any."""
    task = make_task(world)
    flags = {"arch": "visual_aware_bert", "_name": "visual_aware_bert", "bert": str(world / "encoder")}
    args = Namespace(**flags, visual_attention_heads=4)
    model = task.build_model(args)
    torch.save({"cfg": {"model": args, "task": {"_name": task.cfg._name}}, "model": model.state_dict()},
               tmp_path / "one.pt")  # fmt: skip
    again = make_task(world, finetune_from_model=str(tmp_path / "one.pt"))
    assert again.build_model(Namespace(**flags, visual_attention_heads=4)).encoder.fusion.attention.heads == 4
    with pytest.raises(InputError, match=r"--visual-attention-heads should be 4, as .*one\.pt was trained with, but"):
        again.build_model(Namespace(**flags))


KEPT = {"visual_aware_bert": "bert_config", "grounded_albert": "grounded_config"}
NO_JSON = ("{", "[" * 9999, "3", "null", "[1, 2]", "[{}, {}]", "{}", 3, ["x"], b"x")
OF_ENCODERS = (
    ("opening", [99]), ("opening", ["x"]), ("opening", "x"), ("closes", 3), ("max_positions", "x"), ("segments", 3),
    ("dropout", 7.0), ("dropout", "x"), ("config", None), ("config", {"model_type": "none"}),
)  # fmt: skip
OF_CONFIGURATIONS = (
    ("hidden_size", "x"), ("hidden_size", 15), ("hidden_act", "none"), ("num_hidden_layers", 10**9),
    ("num_attention_heads", 0), ("hidden_dropout_prob", 7.0), ("type_vocab_size", -1),
)  # fmt: skip


def broken_settings(kept):
    """What a checkpoint may have instead of an encoder's choices, or of a pair of encoders'."""
    whole = json.loads(kept)
    one = whole[0] if isinstance(whole, list) else whole
    others = [{**one, name: value} for name, value in OF_ENCODERS]
    others += [{**one, "config": {**one["config"], name: value}} for name, value in OF_CONFIGURATIONS]
    return *NO_JSON, *(json.dumps([each, each] if isinstance(whole, list) else each) for each in others)


@pytest.mark.parametrize("arch", BUILDERS)
def test_settings_of_a_checkpoint_that_no_training_wrote_are_refused(arch, world, tmp_path):
    """Where it is loaded, and where training goes on from it."""
    path = tmp_path / "one.pt"
    task, later = make_task(world), make_task(world, finetune_from_model=str(path))
    anew = {"bert": None, "grounded_text_encoder": None}
    _, args = BUILDERS[arch](world, task)
    for broken in broken_settings(getattr(args, KEPT[arch])):
        with pytest.raises(InputError, match=r"^.{40,500}$") as refused:
            BUILDERS[arch](world, task, **{**vars(args), KEPT[arch]: broken})
        assert "\n" not in str(refused.value)
        torch.save({"args": Namespace(**{**vars(args), KEPT[arch]: broken}), "model": {"any": torch.ones(1)}}, path)
        with pytest.raises(InputError, match=rf"^(?=.*{path}).{{40,600}}$"):
            BUILDERS[arch](world, later, **anew)


@pytest.mark.parametrize(
    ("arch", "name"),
    [
        *(("visual_aware_bert", name) for name in ("bert", "bert_config")),
        *(("grounded_albert", name) for name in ("image_ranks", "visual_feature_size", "grounded_config")),
    ],
)
def test_a_checkpoint_without_a_setting_is_not_gone_on_from(arch, name, world, tmp_path):
    _, args = BUILDERS[arch](world, make_task(world))
    delattr(args, name)
    path = tmp_path / "one.pt"
    torch.save({"args": args, "model": {"any": torch.ones(1)}}, path)
    with pytest.raises(
        InputError,
        match=rf"^{path} should be a checkpoint whose .*: '.*' object has no .* '{name}' \(.*\.py, line \d+\)\.$",
    ):
        BUILDERS[arch](
            world, make_task(world, finetune_from_model=str(path)), **{"bert": None, "grounded_text_encoder": None}
        )


@pytest.mark.parametrize("arch", BUILDERS)
@pytest.mark.parametrize(
    ("name", "value"), [("visual_feature_size", "x"), ("bert_dropout", [1]), ("grounded_dropout", "x")]
)
def test_a_number_of_a_checkpoint_that_is_none_is_refused(arch, name, value, world):
    with pytest.raises(InputError, match=rf"^--{name.replace('_', '-')} should be .* but is \W*{value[0]}"):
        BUILDERS[arch](world, make_task(world), **{name: value})


def test_what_fails_without_a_checkpoint_fails_as_it_did(world, monkeypatch):
    """It is no fault of a user's: whoever mends it wants to know where."""
    for name in ("visual_aware_bert", "grounded_albert"):
        monkeypatch.setattr(f"visual_grounding.models.{name}.parse_json", Mock(side_effect=KeyError("ours")))
    for build in BUILDERS.values():
        with pytest.raises(KeyError, match="ours"):
            build(world, make_task(world))


def test_a_full_gpu_is_no_fault_of_the_checkpoint(world, monkeypatch):
    for name, build in BUILDERS.items():
        _, args = build(world, make_task(world))
        full = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
        monkeypatch.setattr(f"visual_grounding.models.{name}.parse_json", full)
        with pytest.raises(torch.OutOfMemoryError, match="CUDA"):
            build(world, make_task(world), **vars(args))


def test_text_of_another_tokenizer_is_refused(world):
    for name, build in BUILDERS.items():
        task = make_task(world)
        task.asked = replace(task.asked, tokenizer_sha256="0" * 64)
        with pytest.raises(InputError, match="but was cut by another, 0000"):
            build(world, task)
        task.asked = replace(task.asked, tokenizer_sha256="")  # which isn't known
        assert build(world, task), name


def test_everything_is_trained_downstream(world):
    """The text encoder is frozen in pre-training alone (GS §3.3)."""
    model, _ = grounded(world, make_task(world))
    model.train()
    assert all(weight.requires_grad for weight in model.parameters())
    assert model.encoder.text.training and model.encoder.text.model.embeddings.word_embeddings.weight.requires_grad


@pytest.fixture
def pretrained(world, tmp_path):
    """A grounded language model's checkpoint, with images and without, over the same encoder's pieces."""

    def make(images=True, **flags):
        folder = make_lm_world(tmp_path / f"lm{images}")
        task = make_lm_task(folder, images=images)
        flags["grounded_text_encoder"] = str(folder / "encoder")
        args = Namespace(arch="grounded_albert", _name="grounded_albert", **flags)
        torch.manual_seed(7)
        model = GroundedAlbertModel.build_model(args, task)
        if model.encoder.standardise is not None:
            model.encoder.standardise.norm.running_mean.uniform_()
        path = tmp_path / f"lm{images}.pt"
        torch.save({"cfg": {"model": args, "task": {"_name": "grounded_lm"}}, "model": model.state_dict(),
                    "task_state": dict(task.state._state)}, path)  # fmt: skip
        return path, model

    return make


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("images", [True, False])
def test_pretraining_is_gone_on_from(pretrained, seen, images, world, caplog):
    path, before = pretrained(seen)
    caplog.set_level("INFO")
    model, args = grounded(
        world, make_task(world, images=images), visual_pretrained=str(path), grounded_text_encoder=None
    )
    own, theirs = model.state_dict(), before.state_dict()
    same = [name for name in own if name.startswith("encoder.") and name in theirs]
    assert len(same) > 40 and all(torch.equal(own[name], theirs[name]) for name in same)
    assert args.visual_pretrained is None and args.visual_feature_size == (6 if images else 0)
    (said,) = [record.getMessage() for record in caplog.records if "started from" in record.getMessage()]
    assert "left out: " in said and "word_head." in said.partition("left out")[2]
    anew = said.partition("started anew: ")[2].partition(";")[0]
    assert "head.output.weight" in anew and ("image_projection" in anew) == (images and not seen)
    assert ("image_projection" in said.partition("left out")[2]) == (seen and not images)


@pytest.mark.parametrize("images", [True, False])
def test_features_are_standardised_as_in_pretraining(pretrained, world, images):
    path, before = pretrained(visual_standardise=True)
    model, args = grounded(
        world, make_task(world, images=images), visual_pretrained=str(path), grounded_text_encoder=None
    )
    assert args.visual_standardise
    if images:
        kept = before.encoder.standardise.norm.running_mean
        assert kept.any() and torch.equal(model.encoder.standardise.norm.running_mean, kept)
    else:
        assert model.encoder.standardise is None


def test_features_that_pretraining_read_as_they_are_cannot_be_standardised(pretrained, world):
    path, _ = pretrained()
    flags = {"visual_pretrained": str(path), "grounded_text_encoder": None, "visual_standardise": True}
    with pytest.raises(InputError, match=r"--visual-standardise is given, but training goes on from .* as they are"):
        grounded(world, make_task(world), **flags)
    path, _ = pretrained(images=False)  # which never saw any
    model, _ = grounded(world, make_task(world), **{**flags, "visual_pretrained": str(path)})
    assert model.encoder.standardise is not None


def test_what_was_pretrained_on_other_words_or_features_is_refused(pretrained, world, tmp_path):
    path, _ = pretrained()
    state = torch.load(path, weights_only=False)
    state["task_state"]["dictionaries"] = {"source": "0" * 64}
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(InputError, match="the dictionary of the text should have the words that"):
        grounded(world, make_task(world), visual_pretrained=str(tmp_path / "other.pt"), grounded_text_encoder=None)
    with pytest.raises(InputError, match=r"--image-ranks is 3, but training goes on from .* where it is 24"):
        grounded(world, make_task(world), visual_pretrained=str(path), grounded_text_encoder=None, image_ranks=3)
    state["task_state"] = {**torch.load(path, weights_only=False)["task_state"], "image_signature": "extract|other"}
    learned = [name for name, value in state["task_state"].items() if "test" in str(value)]
    for name in learned:
        state["task_state"][name] = "another making"
    torch.save(state, tmp_path / "features.pt")
    with pytest.raises(InputError, match="another making"):
        grounded(world, make_task(world), visual_pretrained=str(tmp_path / "features.pt"), grounded_text_encoder=None)
    with pytest.raises(InputError, match="--visual-pretrained is for tasks of understanding"):
        grounded(world, Namespace(), visual_pretrained=str(path))


def test_text_that_another_tokenizer_cut_into_the_same_pieces_is_refused(pretrained, world, tmp_path):
    path, _ = pretrained()
    flags = {"grounded_text_encoder": None}
    state = torch.load(path, weights_only=False)
    args = state["cfg"]["model"]
    choices = json.loads(args.grounded_config)
    own = make_task(world).asked.tokenizer_sha256
    assert choices[0]["tokenizer_sha256"] == own
    for kept, heard in (("0" * 64, True), (None, False)):  # of before, a checkpoint doesn't say
        choices[0] = {name: value for name, value in choices[0].items() if name != "tokenizer_sha256"}
        choices[0] |= {} if kept is None else {"tokenizer_sha256": kept}
        args.grounded_config = json.dumps(choices)
        torch.save(state, tmp_path / "other.pt")
        with (
            pytest.raises(InputError, match=rf"whose sha256 is 0{{64}}, but was cut by another, {own}\. Prepare it")
            if heard
            else nullcontext()
        ):
            grounded(world, make_task(world), visual_pretrained=str(tmp_path / "other.pt"), **flags)
