"""Both towers: unit vectors, padding and absence, gradients, and configurations from trained weights."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig, config_of_state
from visual_grounding.storage.weights import load_strictly


class TinyBert(nn.Module):
    """What a transformers encoder looks like from outside: one embedding, mixed over the real tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=6)
        self.words = nn.Embedding(9, 6)
        self.dropout = nn.Dropout(0.5)
        self.pooler = nn.Linear(6, 6)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        hidden = self.words(input_ids)
        context = (hidden * attention_mask.unsqueeze(-1)).sum(dim=1, keepdim=True)
        return SimpleNamespace(last_hidden_state=self.dropout(hidden + context))


def build(text_encoder: str, pooling: str, batch_norm: bool = False, freeze: bool = False) -> JointEmbedding:
    torch.manual_seed(0)
    config = JointEmbeddingConfig(
        text_encoder, pooling, image_feature_size=5, joint_size=4, vocabulary_size=9, text_embed_size=3, sru_layers=2,
        joint_batch_norm=batch_norm, text_encoder_freeze=freeze,
    )  # fmt: skip
    return JointEmbedding(config, TinyBert() if text_encoder == "pretrained" else None)


def batch(regions: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "tokens": torch.tensor([[4, 5, 6], [7, 1, 1], [8, 4, 1]]),
        "token_padding_mask": torch.tensor([[False] * 3, [False, True, True], [False, False, True]]),
        "features": torch.randn(3, regions, 5, generator=generator),
        "feature_padding_mask": torch.zeros(3, regions, dtype=torch.bool),
    }


ENCODERS = pytest.mark.parametrize("text_encoder", ["sru", "bag", "pretrained"])


@ENCODERS
@pytest.mark.parametrize(("pooling", "regions"), [("linear", 1), ("weldon", 6)])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_joint_embedding_gives_unit_vectors_and_a_gradient_to_every_parameter(
    text_encoder: str, pooling: str, regions: int, batch_norm: bool
) -> None:
    model = build(text_encoder, pooling, batch_norm)
    text, images = model(**batch(regions))
    assert text.shape == images.shape == (3, 4)
    torch.testing.assert_close(text.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(images.norm(dim=1), torch.ones(3))
    ((text @ images.T) * torch.randn(3, 3)).sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == []


@ENCODERS
def test_joint_embedding_of_text_does_not_change_with_more_padding(text_encoder: str) -> None:
    model = build(text_encoder, "linear", batch_norm=True).eval()
    inputs = batch(1)
    tokens, mask = inputs["tokens"], inputs["token_padding_mask"]
    more = torch.cat([tokens, torch.full((3, 4), 8)], dim=1)  # even where padding isn't the padding symbol
    more_mask = torch.cat([mask, torch.ones(3, 4, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(model.encode_text(more, more_mask), model.encode_text(tokens, mask))


def test_joint_embedding_is_zero_for_an_absent_image_and_an_empty_sentence() -> None:
    model = build("bag", "weldon", batch_norm=True).eval()
    inputs = batch(6)
    inputs["features"][1], inputs["feature_padding_mask"][1] = 0, True
    inputs["token_padding_mask"][2] = True
    text, images = model(**inputs)
    assert text.any(dim=1).tolist() == [True, True, False]
    assert images.any(dim=1).tolist() == [True, False, True]


def test_joint_embedding_standardises_over_the_images_that_are_there() -> None:
    model = build("bag", "linear", batch_norm=True).train()
    inputs = batch(1)
    inputs["features"][1], inputs["feature_padding_mask"][1] = 1e6, True
    _, images = model(**inputs)
    there = inputs["features"][[0, 2], 0]
    torch.testing.assert_close(model.image.standardise.norm.running_mean, 0.1 * there.mean(dim=0))
    assert images.isfinite().all() and not images[1].any()
    assert model.text.standardise is not None
    plain = build("bag", "linear")
    assert plain.text.standardise is None and plain.image.standardise is None


def test_joint_embedding_trains_on_a_batch_of_one_with_batch_norm() -> None:
    model = build("bag", "linear", batch_norm=True)
    text, images = model(**{name: tensor[:1] for name, tensor in batch(1).items()})
    assert text.isfinite().all() and images.isfinite().all()


def test_frozen_pretrained_encoder_stays_in_evaluation_mode_and_gets_no_gradient() -> None:
    model = build("pretrained", "linear", freeze=True).train()
    encoder = model.text.encoder.model
    assert not encoder.dropout.training and model.text.training
    text, images = model(**batch(1))
    (text * images).sum().backward()
    assert all(parameter.grad is None for parameter in encoder.parameters())
    assert model.text.projection.weight.grad is not None


def test_frozen_pretrained_encoder_encodes_each_sentence_once_when_told_to_remember() -> None:
    model, twin = build("pretrained", "linear", freeze=True), build("pretrained", "linear", freeze=True)
    model.text.encoder.remember_sentences(2)
    rows = []
    model.text.encoder.model.words.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    inputs = batch(1)
    for order in ([0, 1, 2], [2, 0], [1, 0, 1]):
        arguments = inputs["tokens"][order], inputs["token_padding_mask"][order]
        torch.testing.assert_close(model.eval().encode_text(*arguments), twin.eval().encode_text(*arguments))
    assert rows == [3, 1]  # room for two of the three: the third comes again, then nothing is new


def test_pretrained_encoder_refuses_to_remember_sentences_when_it_is_trained() -> None:
    with pytest.raises(ValueError, match="only a frozen encoder may remember"):
        build("pretrained", "linear").text.encoder.remember_sentences(10)


@ENCODERS
@pytest.mark.parametrize("pooling", ["linear", "weldon"])
def test_config_of_state_finds_the_configuration_of_trained_weights(text_encoder: str, pooling: str) -> None:
    model = build(text_encoder, pooling)
    choices = {**asdict(model.config), "text_encoder": "some/folder" if text_encoder == "pretrained" else text_encoder}
    found = asdict(config_of_state(model.state_dict(), choices))
    expected = {**asdict(model.config), "vocabulary_size": 0 if text_encoder == "pretrained" else 9}
    assert found == expected


def test_joint_embedding_refuses_an_unknown_text_encoder() -> None:
    with pytest.raises(ValueError, match="sru, bag, or pretrained with a model, but is 'gru'"):
        build("gru", "linear")


def test_weights_keep_the_pooling_that_they_were_trained_with() -> None:
    """From before the rule was said along: 12 + 12 of 49 regions; since then 15 + 15."""
    old, new = build("bag", "weldon").eval(), build("bag", "weldon").eval()
    new_state = {name: weight.clone() for name, weight in new.state_dict().items()}
    assert new_state["image.full_from"] == 49
    old_state = {name: weight for name, weight in new_state.items() if name != "image.full_from"}
    load_strictly(old, old_state, "old", "a retriever")
    assert "image.full_from" not in old_state  # a caller's weights stay as they are
    images = {name: tensor for name, tensor in batch(49).items() if name.startswith("feature")}
    regions = old.image.regions(images["features"])
    pooled = regions.sort(dim=1).values
    for model, k in ((old, 12), (new, 15)):
        expected = model.image.projection(pooled[:, :k].mean(1) + pooled[:, -k:].mean(1))
        found = model.encode_images(images["features"], images["feature_padding_mask"])
        torch.testing.assert_close(found, nn.functional.normalize(expected, dim=-1))
    load_strictly(new, old.state_dict(), "old, saved again", "a retriever")
    assert new.image.full_from == 60
    load_strictly(old, new_state, "new", "a retriever")
    assert old.image.full_from == 49
    assert "image.full_from" not in build("bag", "linear").state_dict()
