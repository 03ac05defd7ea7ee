"""Translation of VLP: what its encoder gives, what it begins with, its two stages, and what it refuses."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from vision_language import (
    TINY,
    make_translation_world,
    make_world,
    small_bert,
    train_in_process,
    translation_task,
    whole,
)

from visual_grounding import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.models.vlp_translation import VLPTranslationModel
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

SMALL = {"decoder_embed_dim": 12, "decoder_ffn_embed_dim": 16, "decoder_layers": 2, "decoder_attention_heads": 2}
FLAGS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", value)]
SIZES = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_translation_world(make_world(tmp_path_factory.mktemp("world")))


@pytest.fixture(scope="module")
def pretrained(world: Path) -> Path:
    """A checkpoint of `--arch vlp_bert`."""
    train_in_process(
        world, world / "pretrained", "vision_language_pretraining", "vlp_bert", "masked_lm_with_paired_image", *SIZES
    )
    return world / "pretrained/checkpoint_last.pt"


def build(task, sizes: dict | None = None, **given: object) -> VLPTranslationModel:
    torch.manual_seed(1)
    sizes = TINY if sizes is None else sizes
    return task.build_model(Namespace(arch="vlp_translation", _name="vlp_translation", **{**SMALL, **sizes, **given}))


def scores(model: VLPTranslationModel, batch: dict, **given: object) -> torch.Tensor:
    with torch.no_grad():
        return model(**{**batch["net_input"], **given})[0]


def test_encoder_gives_the_stream_in_the_decoders_size_text_first(world):
    task = translation_task(world)
    model, batch = build(task).eval(), whole(task)
    given = {name: batch["net_input"][name] for name in ("src_tokens", "visual")}
    with torch.no_grad():
        found = model.encoder(**given)
        stream = model.encoder.stream(given["src_tokens"], given["visual"])
        torch.testing.assert_close(found["encoder_out"][0].transpose(0, 1), model.encoder.projection(stream.hidden))
    assert torch.equal(found["region_padding_mask"][0], given["visual"]["padding_mask"].flatten(1))
    text = 1 + given["src_tokens"].shape[1] + given["visual"]["tags"].shape[1] + 1
    assert found["encoder_padding_mask"][0].shape == (8, text + 2) and found["encoder_out"][0].shape[2] == 12
    for row, tokens in enumerate(given["src_tokens"]):
        for column, place in enumerate(found["source_positions"][0][row].tolist()):
            assert place == (-1 if tokens[column] == 1 else 1 + column)


def test_regions_that_are_all_absent_are_text_alone(world):
    model = build(translation_task(world)).eval()
    blank = whole(translation_task(world, image_order="blank"))
    seen = whole(translation_task(world))
    alone = scores(model, blank, visual=None)
    there = (blank["net_input"]["prev_output_tokens"] != 1).unsqueeze(2)
    torch.testing.assert_close(scores(model, blank) * there, alone * there, rtol=0, atol=1e-5)
    assert (scores(model, seen) - alone).abs().max() > 1e-3


def test_a_gradient_reaches_every_parameter(world):
    task = translation_task(world)
    model, batch = build(task, dropout=0.0).eval(), whole(task)
    found, extra = model(**batch["net_input"], attend_apart=(0,))
    assert [part.shape for part in extra["attended_apart"][0]] == [(8, found.shape[1], 12)] * 2
    (found * torch.randn_like(found)).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.abs().sum() > 0, name


def test_beams_of_one_model_and_of_two_are_those_of_a_sentence_at_a_time(world):
    """What beam search reorders and pads changes nothing."""
    task = translation_task(world)
    models, batch = [build(task).eval(), build(task, dropout=0.5).eval()], whole(task)
    with torch.no_grad():
        for weight in models[1].parameters():
            weight.add_(0.1 * torch.randn_like(weight))
        for ensemble in (models[:1], models):
            generator = task.build_generator(ensemble, Namespace(beam=3, max_len_a=0, max_len_b=6))
            together = task.inference_step(generator, ensemble, batch)
            dataset = task.dataset("valid")
            for row, item in enumerate(batch["id"].tolist()):
                (alone,) = task.inference_step(generator, ensemble, dataset.collater([dataset[item]]))
                assert [each["tokens"].tolist() for each in alone] == [
                    each["tokens"].tolist() for each in together[row]
                ]


def test_pretrained_start_copies_the_stream_and_reads_it_once(world, pretrained, tmp_path, caplog):
    task = translation_task(world)
    path = tmp_path / "vlp.pt"
    path.write_bytes(pretrained.read_bytes())
    args = Namespace(arch="vlp_translation", **SMALL, visual_pretrained=str(path))
    with caplog.at_level("INFO"):
        model = VLPTranslationModel.build_model(args, task)
    learned = load_checkpoint(path)["model"]
    own = model.encoder.stream.state_dict()
    assert all(torch.equal(value, learned[f"stream.{name}"]) for name, value in own.items())
    said = next(record.getMessage() for record in caplog.records if "started from" in record.getMessage())
    assert f"copied {len(own)} weights" in said and "encoder.projection.weight" in said
    assert "left out: 7 (word_head" in said
    assert "pre-trained with" not in caplog.text
    path.unlink()
    again = VLPTranslationModel.build_model(args, task)  # as fairseq-generate does, by what the checkpoint keeps
    again.load_state_dict(model.state_dict())
    batch = whole(task)
    assert torch.equal(scores(again.eval(), batch), scores(model.eval(), batch))


def test_pretrained_start_of_text_alone_leaves_the_projection_of_regions_out(world, pretrained):
    task = translation_task(world, images=False)
    model = build(task, {}, visual_pretrained=str(pretrained))
    assert not any("image_" in name for name, _ in model.named_parameters())
    assert model.needs_columns == () and build(translation_task(world)).needs_columns == ("boxes",)


def test_other_tags_than_in_pretraining_are_told(world, pretrained, caplog):
    build(translation_task(world, image_tags=None), {}, visual_pretrained=str(pretrained))
    assert "was pre-trained with words from score 0.3 beside the text, but here it gets none: see --" in caplog.text


def test_bert_without_pretraining_is_the_encoder_of_text_alone(tmp_path):
    from transformers import BertModel

    folder = small_bert(tmp_path / "bert", head=False)
    bridge = TokenizerBridge(str(folder))
    lines = "".join(f"{line}\n" for line in bridge.dictionary_lines())
    world = make_translation_world(make_world(tmp_path), lines)
    task = translation_task(world, images=False)
    model = build(task, {}, bert=str(folder)).eval()
    numbers = bridge.numbers_of(["a dogs run"])[0]
    own = BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found = model.encoder(torch.tensor([[1, *numbers, 2]]))
        hidden = own(torch.tensor([[int(bridge.tokenizer_ids[n]) for n in (0, *numbers, 2)]])).last_hidden_state[0]
    absent = found["encoder_padding_mask"][0][0]
    torch.testing.assert_close(found["encoder_out"][0][~absent, 0], model.encoder.projection(hidden), rtol=0, atol=1e-5)
    assert model.encoder.max_positions() == 23


def train(world: Path, save_dir: Path, *more: object, images: bool = True, epochs: int = 2) -> dict[str, torch.Tensor]:
    """Weights after `fairseq-train` in this process."""
    train_in_process(
        world, save_dir, "grounded_translation", "vlp_translation", "label_smoothed_cross_entropy", *FLAGS, *more,
        images=images, epochs=epochs,
    )  # fmt: skip
    return load_checkpoint(save_dir / "checkpoint_last.pt")["model"]


def test_first_stage_freezes_what_was_pretrained_and_the_second_trains_it(world, pretrained, tmp_path):
    learned = load_checkpoint(pretrained)["model"]
    frozen = train(world, tmp_path / "first", "--visual-pretrained", pretrained, "--visual-freeze-encoder",
                   "--weight-decay", 0.1)  # fmt: skip
    for name, value in learned.items():
        assert not name.startswith("stream.") or torch.equal(frozen[f"encoder.{name}"], value), name
    first = tmp_path / "first/checkpoint_last.pt"
    started = train(world, tmp_path / "none", "--visual-pretrained", pretrained, "--lr", 0, epochs=1)
    moved = [name for name in frozen if not torch.equal(frozen[name], started[name])]
    assert "encoder.projection.weight" in moved and any(name.startswith("decoder.") for name in moved)

    second = train(world, tmp_path / "second", "--finetune-from-model", first)  # neither sizes nor the file again
    changed = {name for name in learned if name.startswith("stream.") and not torch.equal(
        second[f"encoder.{name}"], learned[name])}  # fmt: skip
    assert "stream.image_projection.linear.weight" in changed
    assert "stream.bert.encoder.layer.0.attention.self.query.weight" in changed
    for flag, other, own in (("decoder_attention_heads", 3, 2), ("activation_fn", "gelu", "relu")):
        said = f"--{flag.replace('_', '-')} should be {own}, as .*first/checkpoint_last.pt was .* but is {other}: its"
        with pytest.raises(InputError, match=said):
            build(translation_task(world, finetune_from_model=str(first)), {}, **{flag: other})
    stays = train(world, tmp_path / "stays", "--finetune-from-model", first, "--lr", 0, epochs=1)
    assert all(torch.equal(stays[name], frozen[name]) for name in frozen)


def test_frozen_encoder_is_in_evaluation_mode_and_wants_no_gradient(world, pretrained):
    task = translation_task(world)
    model, batch = build(task, {}, visual_pretrained=str(pretrained), visual_freeze_encoder=True), whole(task)
    model.train()
    given = {name: batch["net_input"][name] for name in ("src_tokens", "visual")}
    first, second = (model.encoder(**given)["encoder_out"][0] for _ in range(2))
    assert torch.equal(first, second) and first.requires_grad
    assert {name for name, weight in model.encoder.named_parameters() if weight.requires_grad} == {
        "projection.weight", "projection.bias"}  # fmt: skip
    free = build(task, {}, visual_pretrained=str(pretrained)).train()
    assert not torch.equal(*(free.encoder(**given)["encoder_out"][0] for _ in range(2)))


def test_training_goes_on_without_the_file_that_it_began_with(world, pretrained, tmp_path):
    path = tmp_path / "vlp.pt"
    path.write_bytes(pretrained.read_bytes())
    given = ["--visual-pretrained", path, "--visual-freeze-encoder"]
    first = train(world, tmp_path / "one", *given, epochs=1)
    path.unlink()
    later = train(world, tmp_path / "one", *given)
    (history,) = load_checkpoint(tmp_path / "one/checkpoint_last.pt")["optimizer_history"][-1:]
    assert history["num_updates"] == 6  # two epochs of three
    moved = {name for name in first if not torch.equal(first[name], later[name])}
    assert "encoder.projection.weight" in moved and not any(name.startswith("encoder.stream") for name in moved)


def test_sizes_come_from_the_preset_and_a_flag_beats_it(world):
    from fairseq.models import ARCH_CONFIG_REGISTRY

    task = translation_task(world)
    for arch, expected in (("", (6, 512, 8, 2048)), ("_small", (4, 256, 4, 1024)), ("_tiny", (4, 128, 4, 256))):
        args = Namespace(arch=f"vlp_translation{arch}", **TINY)
        ARCH_CONFIG_REGISTRY[args.arch](args)
        model = VLPTranslationModel.build_model(args, task)
        layer = model.decoder.layers[0]
        found = len(model.decoder.layers), layer.embed_dim, layer.nh, layer.fc1.out_features
        assert found == expected and model.encoder.stream.size == 16
    args = Namespace(arch="vlp_translation_tiny", decoder_layers=1, **TINY)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    assert len(VLPTranslationModel.build_model(args, task).decoder.layers) == 1 and args.dropout == 0.3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoder_layers": 3, "share_all_embeddings": True},
         r"--encoder-layers, --share-all-embeddings are for fairseq's own encoder, but that of --arch vlp"),
        ({"visual_freeze_encoder": True}, r"--visual-freeze-encoder keeps what .*, but BERT begins with random"),
        ({"visual_pretrained": "nothing.pt"}, r"should be of --arch vlp_bert, but nothing.pt doesn't exist"),
        ({"visual_feature_size": 5}, "takes image features of size 5, but .*store has size 6"),
        ({"bert_heads": 3}, "a BERT's 3 heads should divide its size, 16"),
    ],
)  # fmt: skip
def test_flags_that_do_not_fit_are_refused(world, given, message):
    with pytest.raises(InputError, match=message):
        build(translation_task(world), **given)


def test_bert_beside_a_pretrained_checkpoint_is_refused(world, pretrained):
    with pytest.raises(InputError, match=r"--bert and --visual-pretrained both say .*: leave --bert some/bert out"):
        build(translation_task(world), {}, visual_pretrained=str(pretrained), bert="some/bert")
    with pytest.raises(InputError, match=r"--bert-size is 8, but the BERT is that of .*_last.pt, where it is 16"):
        build(translation_task(world), {"bert_size": 8}, visual_pretrained=str(pretrained))


def test_projection_of_regions_that_nothing_trained_is_not_frozen(tmp_path):
    folder = small_bert(tmp_path / "bert")
    lines = "".join(f"{line}\n" for line in TokenizerBridge(str(folder)).dictionary_lines())
    world = make_translation_world(make_world(tmp_path), lines)
    given = {"bert": str(folder), "visual_freeze_encoder": True}
    with pytest.raises(InputError, match=r"but the regions' projection begins with random .*--visual-pretrained CH"):
        build(translation_task(world, image_tags=None), {}, **given)
    frozen = build(translation_task(world, images=False), {}, **given)  # BERT-enc, first stage
    assert not any(weight.requires_grad for weight in frozen.encoder.stream.parameters())


@pytest.mark.parametrize("broken", ["{", "[" * 9999, "3", "{}", 3])
def test_settings_of_a_checkpoint_that_no_training_wrote_are_refused(world, tmp_path, broken):
    """Where it is loaded, where training goes on from it, and where it begins with it."""
    with pytest.raises(
        InputError, match=r"^(the checkpoint's settings should make a model|the configuration of a BERT)"
    ):
        build(translation_task(world), bert_config=broken, visual_feature_size=6)
    for arch, begins in (("vlp_translation", {}), ("vlp_bert", {"visual_pretrained": str(tmp_path / "one.pt")})):
        args = Namespace(arch=arch, bert_config=broken)
        torch.save({"args": args, "model": {"any": torch.ones(1)}}, tmp_path / "one.pt")
        task = translation_task(world, finetune_from_model=None if begins else str(tmp_path / "one.pt"))
        with pytest.raises(InputError, match=rf"^{tmp_path}/one\.pt should (have|be) "):
            build(task, {}, **begins)


def test_checkpoint_of_another_vocabulary_is_refused(world, pretrained, tmp_path):
    lines = (world / "bin/dict.en.txt").read_text().splitlines(True)
    (tmp_path / "moved").mkdir()
    moved = make_translation_world(make_world(tmp_path / "moved"), "".join(lines[::-1]))
    with pytest.raises(InputError, match=r"the dictionary of the source should have the words that .*_last.pt was"):
        build(translation_task(moved), {}, visual_pretrained=str(pretrained))


def test_features_of_another_making_than_in_pretraining_are_refused(world, pretrained, tmp_path):
    task = translation_task(world)
    task.image_store = FeatureStore(write_store(tmp_path / "other", np.ones((8, 2, 6)), signature="another"))
    with pytest.raises(InputError, match=r"other.* another .*See --image-features-unchecked"):
        build(task, {}, visual_pretrained=str(pretrained))
    task.cfg.image_features_unchecked = True
    build(task, {}, visual_pretrained=str(pretrained))


def test_images_for_a_model_of_text_alone_are_refused(world):
    args = Namespace(arch="vlp_translation", **SMALL, **TINY)
    model = VLPTranslationModel.build_model(args, translation_task(world, images=False))
    with pytest.raises(InputError, match=r"the model was trained on text alone, but it is given images: leave"):
        VLPTranslationModel.build_model(args, translation_task(world))
    batch = whole(translation_task(world))
    with pytest.raises(InputError, match="the model was trained on text alone, but it is given images"):
        model(**batch["net_input"])


def test_store_without_boxes_is_refused_by_name(world, tmp_path):
    folder = write_store(tmp_path / "bare", np.ones((8, 2, 6)))
    with pytest.raises(InputError, match=r"boxes of regions are needed for VLPTranslationModel, but .*bare has feat"):
        build(translation_task(world, image_features=str(folder), image_tags=None))


def test_features_of_another_size_are_refused(world):
    task = translation_task(world)
    model, batch = build(task), whole(task)
    batch["net_input"]["visual"]["features"] = torch.ones(8, 1, 2, 5)
    with pytest.raises(InputError, match="trained on image features of size 6, but these have 5"):
        model(**batch["net_input"])


def test_projection_begins_with_a_spread_that_keeps_sizes(world):
    projection = build(translation_task(world), {**TINY}).encoder.projection
    limit = (6 / (projection.in_features + projection.out_features)) ** 0.5  # Glorot and Bengio 2010
    assert 0.8 * limit < projection.weight.abs().max() <= limit and not projection.bias.any()
