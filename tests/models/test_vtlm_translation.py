"""Translation from the stream: its encoder and decoder, images that are absent, and the start from pre-training."""

import logging
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from fairseq.models import ARCH_CONFIG_REGISTRY
from small_streams import (
    SIZE,
    StreamTask,
    TranslationTask,
    build_translation,
    build_vtlm,
    region_inputs,
    translation_inputs,
)
from torch.nn import functional

from visual_grounding import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.models.vtlm_translation import PositionsOfLanguage
from visual_grounding.tasks.grounded_translation import GroundedTranslationConfig, GroundedTranslationTask
from visual_grounding.text.words import digest_of_symbols

TINY = "vtlm_tiny"


def checkpoint(folder: Path, vtlm=None, symbols: list[str] | None = None) -> Path:
    """A pre-trained model as fairseq writes it."""
    vtlm = vtlm or build_vtlm()
    digest = digest_of_symbols(symbols or vtlm.encoder.dictionary.symbols)
    torch.save(
        {
            "cfg": {
                "model": Namespace(
                    arch=TINY,
                    _name=TINY,
                    encoder_attention_heads=2,
                    activation_fn="gelu",
                    encoder_normalize_before=False,
                )
            },
            "model": vtlm.state_dict(),
            "task_state": {"dictionaries": {"stream": digest}, "image_features": None},
        },
        folder / "pretrained.pt",
    )
    return folder / "pretrained.pt"


def test_encoder_reads_a_sentence_as_pretraining_does(tmp_path):
    vtlm = build_vtlm()
    model = build_translation(visual_pretrained=str(checkpoint(tmp_path, vtlm)))
    inputs, visual = translation_inputs(), region_inputs(masked=False)
    encoded = model.encoder(inputs["src_tokens"], visual=visual)
    tokens = torch.tensor([[2, 4, 5, 6, 2], [2, 7, 8, 2, 1]])
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 3, 0]])
    states, _, regions = vtlm.encoder(tokens, positions, torch.ones_like(tokens), visual)  # 1 is English
    assert encoded["encoder_out"][0].shape == (5 + 4, 2, 16)
    torch.testing.assert_close(encoded["encoder_out"][0][:, 0], states[:, 0])
    torch.testing.assert_close(encoded["encoder_out"][0][1:5, 1], states[:4, 1])  # padded on the other side
    assert encoded["encoder_padding_mask"][0].tolist()[1] == [True, *[False] * 4, False, True, True, True]
    assert torch.equal(encoded["region_padding_mask"][0], regions)
    assert encoded["source_positions"][0].tolist() == [[1, 2, 3, 4], [-1, 2, 3, 4]]
    assert encoded["src_lengths"][0].tolist() == [[4], [3]]


def test_padding_on_either_side_and_more_of_it_changes_nothing():
    model = build_translation()
    inputs, visual = translation_inputs(), region_inputs(masked=False)
    before = model(**inputs, visual=visual)[0]
    for padding in ((0, 2), (3, 0), (1, 1)):
        wider = functional.pad(inputs["src_tokens"], padding, value=1)
        torch.testing.assert_close(model(**{**inputs, "src_tokens": wider}, visual=visual)[0], before)
    assert model.encoder.opened(torch.tensor([[1, 5, 2], [5, 2, 1]])).tolist() == [[1, 2, 5, 2], [2, 5, 2, 1]]


def test_longest_source_has_a_position_for_the_mark_before_it():
    model = build_translation()
    longest = torch.tensor([[4] * 10 + [2]])
    assert model.encoder.max_positions() == longest.shape[1] == 11  # of 12 positions
    assert model.encoder(longest)["encoder_out"][0].shape == (12, 1, 16)


def test_absent_regions_give_what_text_alone_gives():
    """NMT and MMT are the same model."""
    model, inputs, visual = build_translation(), translation_inputs(), region_inputs(masked=False)
    alone = model(**inputs)[0]
    assert not torch.allclose(model(**inputs, visual=visual)[0], alone)
    absent = {**visual, "padding_mask": torch.ones_like(visual["padding_mask"])}
    torch.testing.assert_close(model(**inputs, visual=absent)[0], alone)
    one = {**visual, "padding_mask": visual["padding_mask"] | torch.tensor([True, False])[:, None, None]}
    torch.testing.assert_close(model(**inputs, visual=one)[0][0], alone[0])


def test_text_only_model_from_the_same_weights_equals_absent_regions(tmp_path):
    path, inputs = str(checkpoint(tmp_path)), translation_inputs()
    mmt, nmt = build_translation(visual_pretrained=path), build_translation(TranslationTask(0), visual_pretrained=path)
    visual = region_inputs(masked=False)
    visual["padding_mask"][:] = True
    torch.testing.assert_close(mmt(**inputs, visual=visual)[0], nmt(**inputs)[0])
    assert not any("image" in name for name in nmt.state_dict())


def test_decoder_step_by_step_equals_all_steps_at_once():
    model, inputs = build_translation(), translation_inputs()
    tokens = torch.tensor([[2, 4, 5, 7], [2, 6, 8, 4]])
    encoded = model.encoder(inputs["src_tokens"], visual=region_inputs(masked=False))
    whole, state = model.decoder(tokens, encoder_out=encoded)[0], {}
    for step in range(1, 5):
        each = model.decoder(tokens[:, :step], encoder_out=encoded, incremental_state=state)[0]
        torch.testing.assert_close(each[:, 0], whole[:, step - 1], atol=1e-5, rtol=1e-5)


def test_decoder_embeds_words_as_the_stream_does(tmp_path):
    vtlm = build_vtlm()
    model = build_translation(visual_pretrained=str(checkpoint(tmp_path, vtlm)))
    tokens = torch.tensor([[2, 4, 5]])
    expected = vtlm.encoder.embed_text(tokens, torch.arange(3)[None], torch.zeros_like(tokens))  # 0 is German
    torch.testing.assert_close(model.decoder.embed(tokens), expected)
    torch.testing.assert_close(model.decoder.embed(tokens, incremental_state={}), expected[:, -1:])


def test_output_begins_as_that_of_pretraining():
    shared, apart = build_translation().decoder, build_translation(share_decoder_input_output_embed=False).decoder
    assert shared.output_projection.weight is shared.embed_tokens.weight and not shared.output_projection.bias.any()
    weight = apart.output_projection.weight
    assert weight is not apart.embed_tokens.weight and not apart.output_projection.bias.any()
    assert weight.std().item() == pytest.approx(16**-0.5, rel=0.2)  # of 208 numbers


def test_positions_skip_padding():
    positions = PositionsOfLanguage(8, 4, "de", pad=1)
    left, right = positions(torch.tensor([[1, 2, 5]])), positions(torch.tensor([[2, 5, 1]]))
    torch.testing.assert_close(left[0, 1:], right[0, :2])
    torch.testing.assert_close(right[0, 1], positions.positions.weight[1] + positions.language.language_de)


@pytest.mark.parametrize("images", [True, False])
def test_gradient_reaches_every_parameter(images):
    model = build_translation(TranslationTask(SIZE * images)).train()
    model(**translation_inputs(), visual=region_inputs(masked=False) if images else None)[0].square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if not parameter.grad.any()] == []


def test_start_copies_encoder_and_decoder_and_says_what_was_left_out(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    vtlm = build_vtlm()
    with torch.no_grad():  # norms and biases, too, are then told apart
        for parameter in vtlm.parameters():
            parameter.uniform_(-1, 1)
    model = build_translation(visual_pretrained=str(checkpoint(tmp_path, vtlm)))
    theirs, own = vtlm.state_dict(), model.state_dict()
    attention = [f"{part}_proj.{kind}" for part in ("q", "k", "v", "out") for kind in ("weight", "bias")]
    norm = ["_layer_norm.weight", "_layer_norm.bias"]
    rest = [f"{part}.{kind}" for part in ("fc1", "fc2", "final_layer_norm") for kind in ("weight", "bias")]
    for number in (0, 1):
        layer = f"layers.{number}."
        copies = [*(f"self_attn.{name}" for name in attention), *(f"self_attn{name}" for name in norm), *rest]
        for name in copies:
            assert torch.equal(own[f"decoder.{layer}{name}"], theirs[f"encoder.{layer}{name}"]), name
            assert torch.equal(own[f"encoder.stream.{layer}{name}"], theirs[f"encoder.{layer}{name}"]), name
        for name in (*(f".{name}" for name in attention), *norm):
            expected = theirs[f"encoder.{layer}self_attn{name}"]
            assert torch.equal(own[f"decoder.{layer}encoder_attn{name}"], expected), name
    assert torch.equal(own["decoder.output_projection.bias"], theirs["word_head.bias"])
    assert torch.equal(
        own["decoder.embed_positions.language.language_de"], theirs["encoder.embed_languages.language_de"]
    )
    assert model.decoder.output_projection.weight is model.decoder.embed_tokens.weight
    (line,) = (record.getMessage() for record in caplog.records if "started from" in record.getMessage())
    assert "of decoder.layers.*.encoder_attn from encoder.layers.*.self_attn" in line
    assert "started anew: nothing; left out: " in line
    for name in ("image_label_head.weight", "image_label_head.bias", "language_fr"):
        assert name in line.partition("left out: ")[2]


def test_start_of_every_weight_is_a_pretrained_one(tmp_path):
    """Whatever the model's random start was, nothing of it is left."""
    vtlm = build_vtlm()
    with torch.no_grad():
        for parameter in vtlm.parameters():
            parameter.fill_(7.0)
    model = build_translation(visual_pretrained=str(checkpoint(tmp_path, vtlm)))
    assert all((parameter == 7).all() for parameter in model.parameters())


def test_cross_attention_starts_at_random_where_that_is_asked_for(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    path = str(checkpoint(tmp_path))
    model = build_translation(visual_pretrained=path, visual_random_cross_attention=True)
    copied = build_translation(visual_pretrained=path)
    differ = {
        name
        for (name, first), second in zip(model.named_parameters(), copied.parameters())
        if not torch.equal(first, second)
    }
    assert differ and all(".encoder_attn." in name for name in differ)
    assert "started anew: 20 (decoder.layers.*.encoder_attn.k_proj.weight" in caplog.text
    assert "all weights begin at random" not in caplog.text
    build_translation(visual_random_cross_attention=True)
    assert "all weights begin at random: --visual-random-cross-attention is for --visual-pretrained" in caplog.text


def test_region_embedding_starts_anew_from_text_alone_and_says_so(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    path = checkpoint(tmp_path, build_vtlm(StreamTask(0, 0)))
    build_translation(visual_pretrained=str(path))
    assert "started anew: 5 (encoder.stream.image_embedding.language" in caplog.text
    caplog.clear()
    build_translation(TranslationTask(0), visual_pretrained=str(path))
    assert "started anew: nothing" in caplog.text


def test_text_only_start_leaves_the_regions_out(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    build_translation(TranslationTask(0), visual_pretrained=str(checkpoint(tmp_path)))
    assert "encoder.image_embedding.feature.weight" in caplog.text.partition("left out: ")[2]


def test_word_that_pretraining_added_is_left_out(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    vtlm, task = build_vtlm(), TranslationTask(mask=False)
    path = checkpoint(tmp_path, vtlm, task.source_dictionary.symbols)
    model = build_translation(task, visual_pretrained=str(path))
    assert torch.equal(model.decoder.embed_tokens.weight, vtlm.word_head.weight[:12])
    assert torch.equal(model.decoder.output_projection.bias, vtlm.word_head.bias[:12])
    assert "left out: the word <mask>, which the dictionary of the translation hasn't" in caplog.text


@pytest.mark.parametrize("languages", ["en-it", "it-de"])
def test_start_refuses_a_language_that_pretraining_did_not_have(tmp_path, languages):
    source, target = languages.split("-")
    said = f"languages de, en, fr, but the translation is from {source} to {target}. Pre-train with it, too"
    with pytest.raises(InputError, match=said):
        build_translation(TranslationTask(languages=languages), visual_pretrained=str(checkpoint(tmp_path)))


def test_start_refuses_another_vocabulary(tmp_path):
    path = checkpoint(tmp_path, symbols=["other", "words"])
    with pytest.raises(
        InputError, match=r"bin/dict.en.txt should have the words that .*pretrained.pt was trained with"
    ):
        build_translation(visual_pretrained=str(path))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"encoder_embed_dim": 32}, r"has in another shape .*encoder.embed_tokens.weight \(13, 16\) for"),
        ({"encoder_layers": 1, "decoder_layers": 1}, r"--encoder-layers should be 2, as .* but is 1: .*Give --enc"),
        ({"decoder_layers": 1}, r"--decoder-layers should be 2, as .* but is 1: .*Give --decoder-layers 2"),
        ({"decoder_layers": 3}, r"--decoder-layers should be 2, as .* but is 3"),
        ({"max_target_positions": 20}, r"embed_positions.weight \(12, 16\) for .*positions.weight \(20, 16\)"),
    ],
)
def test_start_refuses_other_sizes(tmp_path, flags, message):
    with pytest.raises(InputError, match=message):
        build_translation(visual_pretrained=str(checkpoint(tmp_path)), **flags)


@pytest.mark.parametrize(
    ("name", "own", "learned"),
    [
        ("encoder_attention_heads", 4, 2),
        ("decoder_attention_heads", 4, 2),
        ("activation_fn", "relu", "gelu"),
        ("encoder_normalize_before", True, False),
        ("decoder_normalize_before", True, False),
    ],
)
def test_start_refuses_what_only_the_flags_of_pretraining_tell(tmp_path, name, own, learned):
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(InputError, match=f"{flag} should be {learned}, as .*pretrained.pt was .* but is {own}: its"):
        build_translation(visual_pretrained=str(checkpoint(tmp_path)), **{name: own})


def test_start_refuses_features_of_another_size(tmp_path):
    with pytest.raises(InputError, match=r"image_embedding.feature.weight \(16, 6\) for .* \(16, 9\)"):
        build_translation(TranslationTask(9), visual_pretrained=str(checkpoint(tmp_path)))


def test_start_refuses_features_of_another_making(tmp_path):
    store = FeatureStore(write_store(tmp_path / "store", np.ones((2, 2, SIZE)), signature="import|arrays:2|version:1"))
    task = TranslationTask()
    task.image_store = store
    learned_from = torch.load(checkpoint(tmp_path), weights_only=False)
    learned_from["task_state"]["image_features"] = "import|arrays:1|version:1"
    torch.save(learned_from, tmp_path / "pretrained.pt")
    with pytest.raises(InputError, match=r"arrays:1.*See --image-features-unchecked"):
        build_translation(task, visual_pretrained=str(tmp_path / "pretrained.pt"))
    task.cfg.image_features_unchecked = True
    build_translation(task, visual_pretrained=str(tmp_path / "pretrained.pt"))


def test_store_without_boxes_is_refused_by_name(tiny_translation):
    places = {"image_features": str(tiny_translation / "store"), "image_ids": str(tiny_translation / "ids")}
    values = {"data": str(tiny_translation / "bin"), "source_lang": "en", "target_lang": "de", **places}
    task = GroundedTranslationTask.setup_task(GroundedTranslationConfig(**values))
    with pytest.raises(
        InputError, match=r"boxes of regions are needed for --arch vtlm_translation, but .*store has feat"
    ):
        build_translation(task)


def test_embeddings_are_shared_where_that_is_asked_for(tmp_path):
    model = build_translation(visual_pretrained=str(checkpoint(tmp_path)), share_all_embeddings=True)
    assert model.encoder.stream.embed_tokens is model.decoder.embed_tokens
    task = TranslationTask()
    task.target_dictionary = TranslationTask(mask=False).target_dictionary
    with pytest.raises(InputError, match=r"one dictionary .* but dict.en.txt has 13 symbols, dict.de.txt 12, and"):
        build_translation(task, share_all_embeddings=True)
    with pytest.raises(InputError, match="and the sizes are 16 and 32"):
        build_translation(share_all_embeddings=True, decoder_embed_dim=32)


@pytest.mark.parametrize(
    "flags",
    [
        {"adaptive_softmax_cutoff": "4"},
        {"adaptive_input": True},
        {"cross_self_attention": True},
        {"no_cross_attention": True},
        {"decoder_embed_path": "vectors.txt"},
        {"encoder_embed_path": "vectors.txt"},
        {"merge_src_tgt_embed": True},
        {"no_token_positional_embeddings": True},
    ],
)
def test_choices_that_the_stream_has_not_are_refused(flags):
    (name,) = flags
    with pytest.raises(InputError, match=f"has no --{name.replace('_', '-')}: leave it out"):
        build_translation(**flags)


def test_model_is_not_for_a_task_without_languages():
    task = TranslationTask()
    task.cfg.target_lang = None
    with pytest.raises(
        InputError, match="translates from one language to another: train it with --task grounded_transl"
    ):
        build_translation(task)


def test_dropout_of_regions_is_that_of_the_flag():
    assert build_translation().encoder.stream.image_embedding.dropout.p == 0.1
    assert build_translation(visual_dropout=0.3).encoder.stream.image_embedding.dropout.p == 0.3


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_model_runs_in_half_precision(precision):
    model = build_translation().to(precision)
    visual = region_inputs(masked=False)
    visual["boxes"] = visual["boxes"].to(precision)
    scores = model(**translation_inputs(), visual=visual)[0]
    assert scores.dtype == precision and scores.isfinite().all()


def test_presets_have_the_sizes_of_pretraining():
    for suffix in ("", "_small", "_tiny"):
        translation, pretraining = Namespace(), Namespace()
        ARCH_CONFIG_REGISTRY[f"vtlm_translation{suffix}"](translation)
        ARCH_CONFIG_REGISTRY[f"vtlm{suffix}"](pretraining)
        for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads"):
            own = {getattr(translation, f"{side}_{name}") for side in ("encoder", "decoder")}
            assert own == {getattr(pretraining, f"encoder_{name}")}
