"""The retriever as a fairseq model: what it says of checkpoints that don't fit, and what it makes of old ones."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from visual_grounding import InputError
from visual_grounding.models.visual_semantic_embedding import (
    VisualSemanticEmbeddingConfig,
    VisualSemanticEmbeddingModel,
)
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig


def build(pooling: str = "weldon", joint_size: int = 4) -> VisualSemanticEmbeddingModel:
    config = JointEmbeddingConfig("bag", pooling, 5, joint_size=joint_size, vocabulary_size=9, text_embed_size=3)
    return VisualSemanticEmbeddingModel(JointEmbedding(config))


def test_checkpoint_with_other_sizes_is_refused_with_the_names() -> None:
    with pytest.raises(InputError, match=r"4 of another shape \(embedding\.text\.projection\.weight is \(6, 3\), not"):
        build("linear").load_state_dict(build("linear", joint_size=6).state_dict())


def test_training_that_goes_on_from_before_keeps_its_pooling() -> None:
    state = build().state_dict()
    model = build()
    model.load_state_dict(dict(state))
    assert model.embedding.image.full_from == 49
    del state["embedding.image.full_from"]
    model.load_state_dict(state)
    assert model.embedding.image.full_from == 60
    assert model.half().embedding.image.full_from.dtype == torch.int64


def test_image_network_comes_last_among_the_weights() -> None:
    """fairseq's flat copy for --fp16 leaves gradients of frozen weights out, and what follows would move up."""
    model = VisualSemanticEmbeddingModel(build().embedding, nn.Linear(2, 2))
    names = [name for name, _ in model.named_parameters()]
    assert names[-2:] == ["image_network.weight", "image_network.bias"] and len(names) > 4


@pytest.mark.parametrize(
    ("pretrained", "given", "epochs"), [(True, None, 8), (False, None, 0), (True, 2, 2), (False, 3, 3)]
)
def test_image_network_is_kept_for_the_papers_epochs_where_it_was_trained_and_nothing_else_is_said(
    pretrained: bool, given: int | None, epochs: int
) -> None:
    network = nn.Linear(2, 2)
    network.map_shape, network.pretrained = lambda: (1, 5), pretrained
    config = VisualSemanticEmbeddingConfig(joint_size=4, text_encoder="bag", image_backbone_freeze_epochs=given)
    task = SimpleNamespace(take_image_network=lambda: network, vocabulary=range(9))
    assert VisualSemanticEmbeddingModel.build_model(config, task).freeze_epochs == epochs


def test_image_network_learns_from_the_epoch_behind_the_frozen_ones_on() -> None:
    build().begin_epoch(1)  # without a network there is nothing to freeze
    network, asked = nn.Linear(2, 2), []
    network.freeze, network.frozen = asked.append, False
    model = VisualSemanticEmbeddingModel(build().embedding, network, freeze_epochs=2)
    for epoch in (1, 2, 3):
        model.begin_epoch(epoch)
    assert asked == [True, True, False]
