"""Which checkpoint training goes on from, what is read of it, and that other words are refused."""

import os
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.tasks.fairseq_task import StatefulContainer

from visual_grounding import InputError
from visual_grounding.data.word_memory import (
    WordMemory,
    check_restored_choices,
    restored_checkpoint,
    task_state_of,
)
from visual_grounding.text.words import digest_of_symbols

STATE = {"dictionaries": {"source": digest_of_symbols("abc")}}


def checkpoint(path: Path, state: dict) -> Path:
    torch.save({"model": {"weight": torch.ones(1)}, "task_state": state}, path)
    return path


def memory(symbols: str = "abc") -> WordMemory:
    made = WordMemory(StatefulContainer())
    made.remember_words("source", "dict.txt", symbols)
    return made


def test_restored_checkpoint_is_the_one_that_fairseq_takes(tmp_path):
    flags = {"save_dir": str(tmp_path), "continue_once": None, "finetune_from_model": None, "checkpoint_suffix": None}
    cfg = Namespace(restore_file="checkpoint_last.pt", **flags)
    assert restored_checkpoint(cfg) is None
    cfg.finetune_from_model = str(checkpoint(tmp_path / "first.pt", {}))
    assert restored_checkpoint(cfg) == cfg.finetune_from_model
    last = checkpoint(tmp_path / "checkpoint_last.pt", STATE)
    assert restored_checkpoint(cfg) == str(last)  # a second start goes on where the first stopped
    assert task_state_of(str(last)) == STATE
    cfg.checkpoint_suffix = "-part1"
    part = checkpoint(tmp_path / "checkpoint_last-part1.pt", {})
    assert restored_checkpoint(cfg) == str(part)
    cfg.restore_file = str(tmp_path / "checkpoint_last.pt")
    assert restored_checkpoint(cfg) == str(part)
    torch.save({"model": {}}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert task_state_of(str(tmp_path / "old.pt")) == {}


def test_other_words_are_refused_wherever_a_checkpoint_is_met(tmp_path):
    path = checkpoint(tmp_path / "last.pt", STATE)
    cfg = Namespace(restore_file=str(path), checkpoint_suffix="")
    for meet in (lambda made: made.merge_state_dict(dict(STATE)), lambda made: made.take_over_restored(cfg)):
        meet(memory())
        with pytest.raises(InputError, match=r"dict.txt should have the words that the checkpoint was trained with"):
            meet(memory("acb"))
    seen = memory("acb")
    seen.has_loaded = True
    seen.take_over_restored(cfg)  # once is enough


def test_what_the_task_knows_itself_stays_and_all_else_is_the_checkpoints():
    made = memory()
    made.merge_state_dict({**STATE, "other": 3})
    made.merge_state_dict({"dictionaries": {"labels": "1"}})
    assert made.state_dict == {**STATE, "other": 3}


@pytest.mark.parametrize("state", [[1], "x", 3, b"x", True, Namespace(dictionaries={}), torch.ones(2)])
def test_task_state_of_another_type_is_refused(tmp_path, state):
    said = "should be a fairseq checkpoint, with names and values as 'task_state', but has "
    with pytest.raises(InputError, match=rf"^the checkpoint {said}"):
        memory().merge_state_dict(state)
    path = checkpoint(tmp_path / "last.pt", state)
    with pytest.raises(InputError, match=rf"^\S+/last\.pt {said}"):
        memory().take_over_restored(Namespace(restore_file=str(path), checkpoint_suffix=""))


@pytest.mark.parametrize("learned", ["x", 3, b"x", ["source"], {"source": 3}, {"source": None}, {3: "x"}, True])
def test_dictionaries_of_another_type_are_refused(tmp_path, learned):
    said = r"should say the sha256 of each dictionary, by its name, as task_state\['dictionaries'\], but says "
    with pytest.raises(InputError, match=rf"^the checkpoint {said}"):
        memory().merge_state_dict({"dictionaries": learned})
    path = checkpoint(tmp_path / "last.pt", {"dictionaries": learned})
    with pytest.raises(InputError, match=rf"^\S+/last\.pt {said}"):
        task_state_of(str(path))


def test_task_state_of_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "last.pt")
    with pytest.raises(InputError, match=r"last\.pt can't be read: is a pipe or a device, not a file"):
        task_state_of(str(tmp_path / "last.pt"))


def test_what_a_checkpoint_does_not_say_is_nothing(tmp_path):
    made = memory()
    for state in (None, {}, {"dictionaries": None}):
        made.merge_state_dict(state)
        made.take_over_restored(Namespace(restore_file=str(checkpoint(tmp_path / "a.pt", state)), checkpoint_suffix=""))
    assert made.state_dict == STATE


@pytest.mark.parametrize("known_by", ["cfg", "args", "dataclass"])
def test_other_heads_than_the_restored_checkpoints_are_refused(tmp_path, known_by):
    learned = Namespace(encoder_attention_heads=2, activation_fn="gelu", encoder_layers=3, no_scale_embedding=True)
    path = tmp_path / "first.pt"
    kept = {
        "cfg": {"cfg": {"model": learned}},
        "args": {"args": learned},
        "dataclass": {"cfg": {"model": vars(learned)}},
    }
    torch.save({"model": {}, **kept[known_by]}, path)
    cfg = Namespace(restore_file=str(path), checkpoint_suffix="")
    check_restored_choices(cfg, Namespace(encoder_attention_heads=2, decoder_attention_heads=8, encoder_layers=4))
    check_restored_choices(Namespace(), Namespace(encoder_attention_heads=4))  # a task that restores nothing
    for name, other, own in (("encoder_attention_heads", 4, 2), ("activation_fn", "relu", "gelu")):
        said = rf"--{name.replace('_', '-')} should be {own}, as .*first\.pt was trained with, but is {other}: its weig"
        with pytest.raises(InputError, match=said):
            check_restored_choices(cfg, Namespace(**{name: other}))
    with pytest.raises(InputError, match=r"should be True.* but is False: .* Give --no-scale-embedding, or choose"):
        check_restored_choices(cfg, Namespace(no_scale_embedding=False))


def test_restored_checkpoint_of_another_model_names_the_flag_that_starts_from_it(tmp_path):
    path = tmp_path / "first.pt"
    torch.save({"model": {}, "args": Namespace(arch="vtlm")}, path)
    cfg = Namespace(restore_file=str(path), checkpoint_suffix="")
    own = Namespace(arch="vtlm_translation_tiny", visual_pretrained=None)
    with pytest.raises(
        InputError,
        match=r"should be of --arch vtlm_translation_tiny, but .*first\.pt is of --arch vtlm\. .* --visual-pretrained",
    ):
        check_restored_choices(cfg, own)
    torch.save({"model": {}, "args": Namespace(arch="vtlm_translation")}, path)
    check_restored_choices(cfg, own)  # another preset of the same model: what its weights fit
    torch.save({"model": {}, "args": Namespace(arch="vtlm")}, path)
    check_restored_choices(cfg, Namespace(arch="vtlm"))
