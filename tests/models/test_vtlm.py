"""The model of pre-training: heads, sizes, what it refuses."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from small_streams import LABELS, SIZE, StreamTask, build_vtlm, region_inputs, stream_inputs

from visual_grounding import InputError
from visual_grounding.models.vtlm import VTLMConfig

WORDS = 13  # 4 special symbols, 8 words and the mask


def chosen() -> tuple[torch.Tensor, torch.Tensor]:
    words = torch.tensor([[0, 1, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 0]]).bool()
    return words, torch.tensor([[[0, 1], [1, 0]], [[1, 0], [0, 0]]]).bool()


def test_heads_predict_what_is_chosen_in_its_order():
    model, inputs, visual = build_vtlm(), stream_inputs(), region_inputs()
    words, regions = chosen()
    of_words, of_labels = model(**inputs, visual=visual, words=words, regions=regions)
    every_word, every_label = model(**inputs, visual=visual)
    assert of_words.shape == (3, WORDS) and of_labels.shape == (3, LABELS)
    torch.testing.assert_close(of_words, every_word[words.flatten()])
    torch.testing.assert_close(of_labels, every_label[regions.flatten()])
    states = model.encoder(**inputs, visual=visual, mask=model.mask)[0].transpose(0, 1)
    expected = states[0, 5] @ model.encoder.embed_tokens.weight.T + model.word_head.bias
    torch.testing.assert_close(of_words[1], expected)


def test_word_head_shares_the_embedding_and_has_a_bias_of_its_own():
    model = build_vtlm()
    assert model.word_head.weight is model.encoder.embed_tokens.weight and model.word_head.bias.shape == (WORDS,)
    assert not model.word_head.bias.any()


def test_gradient_reaches_every_parameter():
    model, (words, regions) = build_vtlm().train(), chosen()
    of_words, of_labels = model(**stream_inputs(), visual=region_inputs(), words=words, regions=regions)
    (of_words.square().sum() + of_labels.square().sum()).backward()
    without = [name for name, parameter in model.named_parameters() if not parameter.grad.any()]
    assert without == []


def test_every_parameter_takes_part_where_nothing_is_chosen():
    """Several processes wait for the gradient of each."""
    model, (words, regions) = build_vtlm(), chosen()
    of_words, of_labels = model(**stream_inputs(), visual=region_inputs(), words=words & False, regions=regions & False)
    assert of_words.shape == (0, WORDS) and of_labels.shape == (0, LABELS)
    (of_words.sum() + of_labels.sum()).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_masked_regions_get_the_embedding_of_the_mask_word():
    model, inputs, visual = build_vtlm(), stream_inputs(), region_inputs()
    before = model(**inputs, visual=visual)[1]
    hidden = {**visual, "features": torch.where(visual["masked"].unsqueeze(-1), 9.0, visual["features"].float())}
    torch.testing.assert_close(model(**inputs, visual=hidden)[1], before)
    with torch.no_grad():
        model.encoder.embed_tokens.weight[model.encoder.dictionary.index("<mask>")] += 1
    assert not torch.allclose(model(**inputs, visual=visual)[1], before)


def test_text_alone_has_no_weights_for_images():
    twin, model = build_vtlm(StreamTask(0, 0)), build_vtlm()
    assert not any("image" in name for name in twin.state_dict())
    more = model.state_dict().keys() - twin.state_dict().keys()
    assert all(name.startswith(("encoder.image_embedding.", "image_label_head.")) for name in more) and len(more) == 7
    assert twin(**stream_inputs(), visual=region_inputs())[1] is None


def test_model_with_images_reads_text_alone_as_absent_regions():
    model, inputs, visual = build_vtlm(), stream_inputs(), region_inputs()
    absent = {**visual, "padding_mask": torch.ones_like(visual["padding_mask"])}
    alone, labels = model(**inputs)
    assert labels is None
    there = inputs["tokens"].flatten() != 1
    torch.testing.assert_close(model(**inputs, visual=absent)[0][there], alone[there])


def test_dropout_of_regions_is_that_of_the_flag():
    assert build_vtlm().encoder.image_embedding.dropout.p == 0.1
    assert build_vtlm(visual_dropout=0.3).encoder.image_embedding.dropout.p == 0.3


def test_sizes_of_the_store_are_remembered():
    args = Namespace(arch="vtlm_tiny", visual_labels=VTLMConfig().visual_labels)  # as without the flag
    ARCH_CONFIG_REGISTRY["vtlm_tiny"](args)
    type(build_vtlm()).build_model(args, StreamTask())
    assert (args.visual_feature_size, args.visual_labels) == (SIZE, LABELS)
    again = type(build_vtlm()).build_model(args, StreamTask(0, 0))  # from a checkpoint, without the store
    assert again.image_label_head.out_features == LABELS


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (StreamTask(image_labels=4), "the model predicts 5 labels, but features/some names 4"),
        (StreamTask(image_feature_size=7), "takes image features of size 6, but features/some has size 7"),
        (Namespace(), "--arch vtlm reads two sentences as one stream: train it with --task visual_tlm"),
    ],
)
def test_model_refuses_what_it_was_not_built_for(task, message):
    with pytest.raises(InputError, match=message):
        build_vtlm(task, visual_feature_size=SIZE, visual_labels=LABELS)


def test_checkpoint_of_other_languages_is_refused_by_name():
    task = StreamTask()
    task.stream_languages = ["de", "en", "it"]
    with pytest.raises(InputError, match=r"was trained for \(de, en, fr\), but is used for de, en, it\."):
        build_vtlm(task).load_state_dict(build_vtlm().state_dict())


@pytest.mark.parametrize(("preset", "size"), [("vtlm", (512, 2048, 6, 8)), ("vtlm_small", (256, 1024, 4, 4))])
def test_presets_have_their_sizes(preset, size):
    args = Namespace()
    ARCH_CONFIG_REGISTRY[preset](args)
    names = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
    assert tuple(getattr(args, f"encoder_{name}") for name in names) == size
    assert (args.activation_fn, args.dropout, args.attention_dropout) == ("gelu", 0.1, 0.1)
