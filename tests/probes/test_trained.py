"""Checkpoints as probes load them, and what they refuse."""

import os
import re
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from small_trained import translator

from visual_grounding.cli.probing import add_model, add_running, changes_of
from visual_grounding.errors import InputError
from visual_grounding.probes.trained import (
    Trained,
    batches,
    check_orders,
    check_seen,
    check_sizes,
    load_split,
    load_trained,
    on_device,
)
from visual_grounding.tasks.grounded_translation import GroundedTranslationTask

CPU = torch.device("cpu")


def load(path: Path, **changes: object) -> Trained:
    return load_trained(path, "grounded_translation", CPU, changes)


def changed(path: Path, folder: Path, **entries: object) -> Path:
    """A copy of a checkpoint with other entries, such as cfg."""
    state = torch.load(path, weights_only=True) | entries
    torch.save(state, folder / "changed.pt")
    return folder / "changed.pt"


def test_model_and_task_are_those_of_the_checkpoint(animals: Path) -> None:
    trained = load(animals / "seeing.pt")
    assert (trained.arch, trained.sees, trained.model.training) == ("visual_aware_transformer", True, False)
    saved = torch.load(animals / "seeing.pt", weights_only=True)["model"]
    state = trained.model.state_dict()
    assert all(torch.equal(weight, state[name]) for name, weight in saved.items())
    assert not load(animals / "text.pt").sees


def test_settings_of_the_task_are_changed_but_none_of_images_where_there_were_none(
    animals: Path, tmp_path: Path
) -> None:
    shutil.copytree(animals / "store", tmp_path / "store")
    moved = {"image_features": str(tmp_path / "store"), "image_seed": 5}
    assert load(animals / "seeing.pt", **moved).settings.image_features == str(tmp_path / "store")
    assert load(animals / "seeing.pt", **moved).settings.image_seed == 5
    assert load(animals / "text.pt", **moved).settings.image_features is None


def test_zero_is_a_setting_that_was_given() -> None:
    parser = ArgumentParser()
    add_model(parser)
    add_running(parser)
    words = ["--checkpoint", "model.pt", "--out", "out"]
    assert changes_of(parser.parse_args(words)) == {}
    words += ["--image-seed", "0", "--images-per-sentence", "0"]  # another shuffle than training's; all images
    assert changes_of(parser.parse_args(words)) == {"image_seed": 0, "images_per_sentence": 0}


def test_images_come_in_the_order_that_is_asked_for(animals: Path) -> None:
    trained = load(animals / "seeing.pt")
    seen = {}
    for order in ("congruent", "shuffled", "congruent"):
        dataset = load_split(trained, "test", order)
        (batch,) = batches(dataset, range(len(dataset)), 24)
        seen.setdefault(order, []).append(batch["net_input"]["visual"]["features"][batch["id"].argsort()])
    assert torch.equal(*seen["congruent"]) and not torch.equal(seen["congruent"][0], seen["shuffled"][0])
    check_orders(trained, ["shuffled"])
    check_orders(load(animals / "text.pt"), ["congruent"])
    with pytest.raises(InputError, match=r"images can't be shuffled, as .*text.pt was trained without any") as refused:
        check_orders(load(animals / "text.pt"), ["congruent", "shuffled"])
    assert refused.value.choices == ("image_order", "checkpoint")


def test_images_that_no_model_looks_at_are_refused(animals: Path) -> None:
    blind, seeing = (load(animals / f"{name}.pt") for name in ("text", "seeing"))
    check_seen([blind], {"data": "elsewhere"})
    check_seen([blind, seeing], {"image_features": "store", "image_ids": "ids"})
    with pytest.raises(InputError, match=r"images are given, but .*text.pt learned from text alone") as refused:
        check_seen([blind], {"data": "elsewhere", "image_ids": "ids", "images_per_sentence": 2})
    assert refused.value.choices == ("image_ids", "images_per_sentence")


def test_batches_have_the_sentences_that_are_asked_for_the_longest_first(animals: Path) -> None:
    trained = load(animals / "text.pt")
    dataset = load_split(trained, "test")
    found = [batch["id"].tolist() for batch in batches(dataset, [3, 5, 8, 13, 21], 2)]
    assert [len(batch) for batch in found] == [2, 2, 1] and sorted(row for batch in found for row in batch) == [
        3,
        5,
        8,
        13,
        21,
    ]
    longest = [max(max(dataset.size(row)) for row in batch) for batch in found]
    assert longest == sorted(longest, reverse=True)
    assert on_device(trained, {"a": [torch.ones(2)]})["a"][0].device == CPU


def test_what_is_no_checkpoint_is_refused(animals: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.pt can't be read: No such file"):
        load(tmp_path / "gone.pt")
    (tmp_path / "torn.pt").write_bytes((animals / "text.pt").read_bytes()[:5000])
    with pytest.raises(InputError, match=r"torn\.pt (should be a fairseq checkpoint, but is truncated|can't be read)"):
        load(tmp_path / "torn.pt")
    with pytest.raises(InputError, match=r"changed\.pt should be a checkpoint of fairseq-train, but doesn't say how"):
        load(changed(animals / "text.pt", tmp_path, cfg=None))
    cfg = torch.load(animals / "text.pt", weights_only=True)["cfg"]
    without = {name: value for name, value in cfg.items() if name != "task"}
    with pytest.raises(InputError, match=r"changed\.pt should be a checkpoint of .*, but (doesn't say|lacks)"):
        load(changed(animals / "text.pt", tmp_path, cfg=without))
    torch.save({"args": None, "model": {"w": torch.ones(2)}}, tmp_path / "bare.pt")
    with pytest.raises(InputError, match=r"bare\.pt should be a checkpoint .* lacks what fairseq expects .*best_loss"):
        load(tmp_path / "bare.pt")
    with pytest.raises(InputError, match=r"lacks what fairseq expects in one \(IndexError"):
        load(changed(animals / "text.pt", tmp_path, optimizer_history=[]))
    os.mkfifo(tmp_path / "pipe.pt")  # fairseq would wait for it
    with pytest.raises(InputError, match=r"pipe\.pt should be a checkpoint .* is a pipe or a device, not a file"):
        load(tmp_path / "pipe.pt")
    cfg = torch.load(animals / "text.pt", weights_only=True)["cfg"]
    cfg["task"]["data"] = 5
    with pytest.raises(InputError, match=r"5 should hold the binarised text"):
        load(changed(animals / "text.pt", tmp_path, cfg=cfg))


def test_text_that_was_moved_is_refused_until_it_is_named(animals: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"moved should hold the binarised text .* but is no folder from here"
    ) as refused:
        load(animals / "text.pt", data=str(tmp_path / "moved"))
    assert refused.value.choices == ("data",)
    shutil.copytree(animals / "bin", tmp_path / "moved")
    assert load(animals / "text.pt", data=str(tmp_path / "moved")).settings.data == str(tmp_path / "moved")
    (tmp_path / "moved/dict.de.txt").unlink()
    with pytest.raises(InputError, match=r"text.pt can't be used: .*dict\.de\.txt"):
        load(animals / "text.pt", data=str(tmp_path / "moved"))


def test_checkpoints_of_another_task_or_of_an_unknown_architecture_are_refused(animals: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="should hold a model of the task image_text_matching, but was trained on grounded"
    ):
        load_trained(animals / "text.pt", "image_text_matching", CPU, {})
    cfg = torch.load(animals / "text.pt", weights_only=True)["cfg"]
    cfg["model"].arch = cfg["model"]._name = "my_transformer"
    with pytest.raises(InputError, match="of the architecture my_transformer, which isn't known here") as refused:
        load(changed(animals / "text.pt", tmp_path, cfg=cfg))
    assert refused.value.choices == ("user_dir",)
    (tmp_path / "plugin_without_a_file").mkdir()
    (tmp_path / "plugin_without_a_file/__init__.py").write_text("open('its own file')")
    with pytest.raises(FileNotFoundError, match="its own file"):
        load_trained(animals / "text.pt", "grounded_translation", CPU, {}, str(tmp_path / "plugin_without_a_file"))
    with pytest.raises(InputError, match=rf"code should be in a folder, but {tmp_path}/nowhere isn't there") as refused:
        load_trained(animals / "text.pt", "grounded_translation", CPU, {}, str(tmp_path / "nowhere"))
    assert refused.value.choices == ("user_dir",)


def checked(path: Path) -> str:
    """What is said of a checkpoint, of which there is to be no model: one line, not long, which names it."""
    with pytest.raises(InputError, match=rf"^{path} can't be used") as refused:
        load(path)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 600
    return str(refused.value)


@pytest.mark.parametrize("arch", ["transformer", "text_only_transformer"])  # whose loading is fairseq's, and ours
def test_weights_that_are_not_the_models_are_refused(animals: Path, tmp_path: Path, arch: str) -> None:
    sound = translator(animals, tmp_path / "sound.pt", arch=arch, images=False)
    assert load(sound).arch == arch
    weights, name = torch.load(sound, weights_only=True)["model"], "encoder.embed_tokens.weight"
    others = {each: weight for each, weight in weights.items() if each != name}
    for wrong, said in (
        ({**others, name: torch.ones(2, 3)}, r"\[?2, 3\]?"),
        ({**others, "encoder.embed_words.weight": weights[name]}, "encoder.embed_words.weight"),
        (others, name),
        ([1], "list"),
        (3, "int"),
        (None, "None"),
    ):
        found = checked(changed(sound, tmp_path, model=wrong))
        assert re.search(said, found)


def test_settings_that_no_training_wrote_are_refused(animals: Path, tmp_path: Path) -> None:
    cfg = torch.load(animals / "text.pt", weights_only=True)["cfg"]

    def setting(part: str, name: str, value: object) -> str:
        model, task = Namespace(**vars(cfg["model"])), dict(cfg["task"])
        setattr(model, name, value) if part == "model" else task.update({name: value})
        return checked(changed(animals / "text.pt", tmp_path, cfg={**cfg, "model": model, "task": task}))

    said = setting("model", "encoder_attention_heads", 3)  # what fairseq asserts, and where
    assert re.search(
        r"make no model: embed_dim must be divisible by num_heads \(multihead_attention\.py, line \d+\)", said
    )
    assert "it should have 10000 as encoder_layers, but there are" in setting("model", "encoder_layers", 10**4)
    for part, name, value in (
        ("model", "encoder_layers", "two"),
        ("model", "encoder_embed_dim", [1]),
        ("model", "activation_fn", "none"),
        ("task", "left_pad_source", [1]),
        ("task", "max_source_positions", "x"),
    ):
        assert "make no model: " in setting(part, name, value)
    for model in (None, 3, "transformer", [1]):
        with pytest.raises(InputError, match=rf"^{tmp_path}/changed\.pt "):
            load(changed(animals / "text.pt", tmp_path, cfg={**cfg, "model": model}))
    for whole in ([1], "x", 3, {"task": "_name"}, {"task": ["_name"]}, {"task": {"_name": [1]}}):
        with pytest.raises(InputError, match=rf"^{tmp_path}/changed\.pt "):
            load(changed(animals / "text.pt", tmp_path, cfg=whole))


@pytest.mark.parametrize("state", [[1], "x", {"dictionaries": {"source": 3}}, {"image_features": [1]}])
def test_task_state_that_no_training_wrote_is_refused(animals: Path, tmp_path: Path, state: object) -> None:
    assert "can't be used: the checkpoint should " in checked(changed(animals / "text.pt", tmp_path, task_state=state))


def test_a_gpu_without_memory_and_an_interruption_are_no_fault_of_the_checkpoint(
    animals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (torch.OutOfMemoryError("CUDA out of memory"), KeyboardInterrupt()):
        monkeypatch.setattr(GroundedTranslationTask, "build_model", Mock(side_effect=error))
        with pytest.raises(type(error)) as raised:
            load(animals / "text.pt")
        assert raised.value is error


def test_sentences_that_are_too_long_are_refused(animals: Path) -> None:
    trained = load(animals / "text.pt")
    dataset = load_split(trained, "test")
    check_sizes(trained, dataset, range(24), "test")
    trained.model.encoder.max_source_positions = 7
    long = [row for row in range(24) if dataset.size(row)[0] > 7]
    message = rf"{len(long)} of 24 sentences of test have more, the first is sentence {long[0]} \("
    with pytest.raises(InputError, match=message):
        check_sizes(trained, dataset, range(24), "test")


def test_a_machine_without_memory_is_not_the_checkpoints_fault(
    animals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: 9 bytes")

    monkeypatch.setattr("visual_grounding.probes.trained.checkpoint_utils.load_model_ensemble_and_task", no_memory)
    with pytest.raises(InputError, match=rf"^there isn't enough memory for the model of {animals}/text\.pt: "):
        load(animals / "text.pt")
