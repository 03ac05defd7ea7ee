"""The text-only twin: of every preset, the same model but for what images need."""

import pytest
import torch
from small_models import ARCHITECTURES, Task, build, build_preset

from visual_grounding.models.presets import TRANSFORMER_PRESETS

FOR_IMAGES = ("encoder.fusion.", "encoder.image_projection.")


def sizes(model: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in model.state_dict().items()}


def dropouts(model: torch.nn.Module) -> dict[str, float]:
    return {name: module.p for name, module in model.named_modules() if hasattr(module, "p")}


@pytest.mark.parametrize("preset", TRANSFORMER_PRESETS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_twin_of_every_preset_is_the_model_without_what_images_need(arch: str, preset: str) -> None:
    with torch.device("meta"):  # the big ones have 180 million parameters
        model, twin = build_preset(arch + preset), build_preset("text_only_transformer" + preset)
    for found in (sizes, dropouts):
        own, theirs = found(model), found(twin)
        assert theirs == {name: value for name, value in own.items() if not name.startswith(FOR_IMAGES)}
        assert len(theirs) > 20
    assert set(sizes(model)) - set(sizes(twin))
    choices, others = (
        {name: value for name, value in vars(built.args).items() if name != "arch"} for built in (model, twin)
    )
    assert others == {name: value for name, value in choices.items() if not name.startswith("visual_")}
    assert {"encoder", "decoder", "dropout"} < others.keys()
    parameters = [sum(weight.numel() for weight in built.parameters()) for built in (model, twin)]
    for_images = sum(w.numel() for name, w in model.named_parameters() if name.startswith(FOR_IMAGES))
    assert parameters[0] - for_images == parameters[1]


def test_twins_tiny_preset_is_not_the_tiny_transformer_of_fairseq() -> None:
    with torch.device("meta"):
        twin, other = build_preset("text_only_transformer_tiny"), build_preset("transformer_tiny")
    assert [model.args.encoder.embed_dim for model in (twin, other)] == [128, 64]


def test_twin_starts_from_the_numbers_of_fairseqs_transformer_and_takes_no_images() -> None:
    twin, other = build("text_only_transformer", Task(0)), build("transformer", Task(0))
    assert twin.state_dict().keys() == other.state_dict().keys()
    assert all(torch.equal(weight, other.state_dict()[name]) for name, weight in twin.state_dict().items())
    with pytest.raises(TypeError, match="visual"):
        twin(visual=None)
