"""What a task refuses of a checkpoint, and which checkpoint training goes on from."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from fairseq.tasks import FairseqTask
from masked_text import text_dataset
from omegaconf import OmegaConf
from PIL import Image

from visual_grounding import InputError
from visual_grounding.data.visual_context import VisualContext, VisualContextConfig
from visual_grounding.features.backbones import Preprocessing
from visual_grounding.features.pixels import PixelSource
from visual_grounding.images.sources import open_images
from visual_grounding.text.words import digest_of_symbols

OWN = "extract|images:4|backbone:resnet50|pool:mean|version:0.2.0"
OTHER_PHOTOS = "extract|images:9|backbone:resnet50|pool:mean|version:0.1.0"
NOISE = "import|images:4|arrays:0123abcd|version:0.2.0"


def make_task(folder: Path, signature: str | None = OWN, **flags: object) -> tuple[FairseqTask, VisualContext]:
    """A task with a store of a signature, or without images."""
    if signature and not folder.exists():
        write_store(folder, np.ones((4, 1, 3)), signature=signature)
    cfg = VisualContextConfig(image_features=str(folder) if signature else None, train_subset="train", seed=1)
    for name, value in {"restore_file": "checkpoint_last.pt", "save_dir": "nowhere", "continue_once": None,
                        "finetune_from_model": None, "checkpoint_suffix": "", **flags}.items():  # fmt: skip
        setattr(cfg, name, value)
    task = FairseqTask(cfg)
    task.state.add_factory("words", lambda: ["a"])
    return task, VisualContext(cfg, task)


def test_task_state_remembers_the_signature_beside_whatever_else_there_is(tmp_path):
    task, _ = make_task(tmp_path / "store")
    assert task.state.words == ["a"] and task.state_dict() == {"image_features": OWN, "words": ["a"]}
    task.load_state_dict({"image_features": OTHER_PHOTOS, "words": ["b"]})
    assert task.state_dict() == {"image_features": OWN, "words": ["b"]}
    blind, _ = make_task(tmp_path / "nothing", None)
    assert blind.state_dict() == {"image_features": None}


def test_a_run_without_images_forgets_nothing(tmp_path):
    blind, _ = make_task(tmp_path / "nothing", None)
    blind.load_state_dict({"image_features": OWN})
    assert blind.state_dict() == {"image_features": OWN}
    torch.save({"task_state": {"image_features": NOISE}, "model": {}}, tmp_path / "before.pt")
    blind, context = make_task(tmp_path / "nothing", None, finetune_from_model=str(tmp_path / "before.pt"))
    context.add(text_dataset(), "train", "train.en")  # as fairseq-train, which gives the task no state
    assert blind.state_dict() == {"image_features": NOISE}


def test_the_flag_that_leaves_features_unchecked_is_kept_out_of_checkpoints(tmp_path):
    write_store(tmp_path / "store", np.ones((4, 1, 3)), signature=OWN)
    given = {"image_features": str(tmp_path / "store"), "image_features_unchecked": True, "train_subset": "train"}
    whole = OmegaConf.create({"task": {**given, "seed": 1}})  # what fairseq's trainer saves
    cfg = OmegaConf.merge(OmegaConf.create({"seed": 1}), whole.task)
    cfg.__dict__["_parent"] = whole  # as fairseq merges a task's configuration
    task = FairseqTask(cfg)
    VisualContext(cfg, task)
    assert whole.task.image_features_unchecked is False and cfg.image_features_unchecked
    task.load_state_dict({"image_features": NOISE})  # it holds for this run


def test_checkpoint_of_another_making_is_refused_with_both_signatures_or_taken_by_the_flag(tmp_path):
    task, _ = make_task(tmp_path / "store")
    with pytest.raises(InputError) as refused:
        task.load_state_dict({"image_features": NOISE})
    message = str(refused.value)
    assert f"{tmp_path}/store should hold features made as those that the checkpoint was trained on" in message
    assert f": {OWN} ≠ {NOISE}. " in message and message.endswith("See --image-features-unchecked.")
    assert not refused.value.choices  # our own commands, too, would say the flag once more
    task, _ = make_task(tmp_path / "store", image_features_unchecked=True)
    task.load_state_dict({"image_features": NOISE})
    assert task.state_dict()["image_features"] == OWN


def test_every_checkpoint_of_an_ensemble_is_compared(tmp_path):
    task, _ = make_task(tmp_path / "store")
    task.load_state_dict({"image_features": OTHER_PHOTOS})
    task.load_state_dict({"image_features": None})  # trained without images
    with pytest.raises(InputError, match=r"≠ import\|"):
        task.load_state_dict({"image_features": NOISE})


def test_checkpoint_that_does_not_say_warns_once(tmp_path, caplog):
    task, _ = make_task(tmp_path / "store")
    for _ in range(2):
        task.load_state_dict({})
    assert caplog.text.count("the checkpoint doesn't say how the image features that it was trained on") == 1
    caplog.clear()
    make_task(tmp_path / "nothing", None)[0].load_state_dict({})
    assert not caplog.text


def test_pictures_are_compared_by_how_they_are_framed(tmp_path):
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")

    def task_with(resize: int) -> FairseqTask:
        cfg = VisualContextConfig(train_subset="train", seed=1)
        task = FairseqTask(cfg)
        VisualContext(cfg, task, PixelSource(open_images(tmp_path), Preprocessing(resize, 8), str(tmp_path)))
        return task

    before = task_with(8).state_dict()
    assert before["image_features"].startswith("pixels|preprocessing:resize 8")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "b.png")  # other photos
    task_with(8).load_state_dict(before)
    with pytest.raises(
        InputError, match=r": pixels\|preprocessing:resize 9 .* ≠ pixels\|preprocessing:resize 8 .*See --image-f"
    ):
        task_with(9).load_state_dict(before)


def checkpoint(path: Path, state: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model": {"weight": torch.ones(1)}, "task_state": state}, path)
    return path


@pytest.mark.parametrize("how", ["resumed", "restored", "continued", "finetuned"])
def test_training_that_goes_on_from_a_checkpoint_of_another_making_is_refused(tmp_path, how):
    path = checkpoint(
        tmp_path / ("save/checkpoint_last.pt" if how == "resumed" else "some.pt"), {"image_features": NOISE}
    )
    flag = {"restored": "restore_file", "continued": "continue_once", "finetuned": "finetune_from_model"}.get(how)
    flags = {"save_dir": str(tmp_path / "save"), **({flag: str(path)} if flag else {})}
    _, images = make_task(tmp_path / "store", **flags)
    images.add_rows(text_dataset(), np.zeros((11, 1), int), "valid")
    with pytest.raises(InputError, match=r"≠ import\|"):
        images.add_rows(text_dataset(), np.zeros((11, 1), int), "train")
    make_task(tmp_path / "store", image_features_unchecked=True, **flags)[1].add_rows(
        text_dataset(), np.zeros((11, 1), int), "train"
    )


WORDS, PERMUTED = (digest_of_symbols(words) for words in ("abc", "acb"))


def test_dictionary_is_remembered_and_the_same_words_in_another_order_are_refused(tmp_path, caplog):
    task, images = make_task(tmp_path / "store")
    images.remember_words("source", "bin/dict.en.txt", "abc")
    assert task.state_dict()["dictionaries"] == {"source": WORDS}
    task.load_state_dict({"image_features": OWN})  # of before
    task.load_state_dict({"image_features": OWN, "dictionaries": {"source": WORDS, "target": PERMUTED}})
    with pytest.raises(InputError, match=rf"bin/dict.en.txt should have .* is {WORDS}, of theirs {PERMUTED}\. A word"):
        task.load_state_dict({"image_features": OWN, "dictionaries": {"source": PERMUTED}})  # the fourth of an ensemble
    assert task.state_dict()["dictionaries"] == {"source": WORDS} and not caplog.text


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("flag", ["restore_file", "continue_once", "finetune_from_model"])
def test_training_that_goes_on_with_words_in_another_order_is_refused(tmp_path, flag, images):
    """`--image-features-unchecked` is about features alone."""
    state = {"image_features": OWN, "dictionaries": {"source": PERMUTED}}
    flags = {flag: str(checkpoint(tmp_path / "some.pt", state)), "image_features_unchecked": True}
    _, context = make_task(tmp_path / "store", OWN if images else None, **flags)
    context.remember_words("source", "dict.en.txt", "abc")
    with pytest.raises(InputError, match=rf"dict.en.txt should have the words .*, of theirs {PERMUTED}\."):
        context.add_rows(text_dataset(), np.zeros((11, 1), int), "train")


def test_number_of_images_is_that_of_the_training_set_and_a_run_without_images_keeps_it(tmp_path):
    task, images = make_task(tmp_path / "store")
    images.add_rows(text_dataset(), np.zeros((11, 3), int), "valid")
    assert "images_per_sentence" not in task.state_dict()
    images.add_rows(text_dataset(), np.zeros((11, 2), int), "train")
    assert task.state_dict()["images_per_sentence"] == 2
    task.load_state_dict({"image_features": OWN, "images_per_sentence": 5})
    assert task.state_dict()["images_per_sentence"] == 2 and images.trained_with == [5]
    blind, _ = make_task(tmp_path / "nothing", None)
    for count in (4, 4, 1):
        blind.load_state_dict({"image_features": OWN, "images_per_sentence": count})
    assert blind.state_dict() == {"image_features": OWN, "images_per_sentence": 4}


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize(
    ("name", "learned"),
    [
        *((name, each) for name in ("image_features", "image_tags") for each in (3, 0.5, True, b"x", [1], {}, (1,))),
        *(("images_per_sentence", each) for each in ("3", 2.0, True, -1, 10**30, b"3", [3], {})),
    ],
)
def test_what_a_checkpoint_keeps_of_images_in_another_type_is_refused(tmp_path, name, learned, images):
    task, _ = make_task(tmp_path / "store", OWN if images else None)
    before = dict(task.state_dict())
    said = {"images_per_sentence": "how many images a sentence had, in a whole number", "image_tags": "which tags it"}
    said["image_features"] = "how its features were made, in text"
    with pytest.raises(
        InputError, match=rf"^the checkpoint should say {said[name]}.* as task_state\['{name}'\], but s"
    ):
        task.load_state_dict({"image_features": OWN, name: learned})
    assert task.state_dict() == before
