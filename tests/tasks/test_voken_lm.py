"""The task of language models with vokens: what it loads, what it refuses, training that stops and goes on."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import indexed_dataset
from small_tokenizers import make_cased, make_tokenizer
from small_voken_lm import (
    LINES,
    binarise_vokens,
    make_voken_world,
    model_flags,
    train_language_model,
    voken_task,
    whole_split,
)
from small_vokens import change_vokens, write_vokens

from visual_grounding import InputError
from visual_grounding.criterions.voken_classification import VokenClassificationCriterion
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.text.words import digest_of_symbols


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(path)["model"]


def test_training_is_the_same_again_and_goes_on_as_if_it_had_not_stopped(voken_world, tmp_path):
    train_language_model(voken_world, tmp_path / "one")
    train_language_model(voken_world, tmp_path / "two", "--max-epoch", 1)
    first = weights(tmp_path / "two/checkpoint_last.pt")
    train_language_model(voken_world, tmp_path / "two")
    one, two = weights(tmp_path / "one/checkpoint_last.pt"), weights(tmp_path / "two/checkpoint_last.pt")
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(first[name], two[name]) for name in one)
    state = torch.load(tmp_path / "one/checkpoint_last.pt", weights_only=True)["task_state"]
    assert set(state) == {"dictionaries", "vokens", "voken_labels"} and state["vokens"]["count"] == 7


def test_it_learns_masked_words_and_vokens(voken_world):
    task = voken_task(voken_world)
    torch.manual_seed(1)
    model = task.build_model(model_flags(bert_dropout=0.0, bert_size=32))
    criterion, optimizer = VokenClassificationCriterion(task), torch.optim.Adam(model.parameters(), lr=0.005)
    losses = []
    for epoch in range(1, 61):
        loss, blocks, logged = criterion(model, whole_split(task, "train", epoch))
        optimizer.zero_grad()
        (loss / blocks).backward()
        optimizer.step()
        losses.append([float(logged[f"{part}_loss"]) / max(1, logged[f"{part}s"]) for part in ("voken", "mlm")])
    first, last = np.mean(losses[:5], axis=0), np.mean(losses[-10:], axis=0)
    assert (last < first * (0.6, 0.8)).all()


def test_masks_are_new_in_every_epoch_of_training_and_fixed_in_validation(voken_world):
    task = voken_task(voken_world)

    def masked(split: str, epoch: int) -> torch.Tensor:
        return whole_split(task, split, epoch)["net_input"]["src_tokens"]

    assert torch.equal(masked("train", 1), masked("train", 1))
    assert not torch.equal(masked("train", 1), masked("train", 2))
    assert torch.equal(masked("valid", 1), masked("valid", 2))


def test_what_is_said_of_the_run_is_remembered_and_other_words_or_images_are_refused(voken_world, tmp_path):
    task = voken_task(voken_world)
    assert task.voken_count == 7
    assert task.state_dict()["dictionaries"] == {"pieces": digest_of_symbols(task.dictionary.symbols)}
    with pytest.raises(InputError, match=r"bin/dict.txt should have the words that the checkpoint was trained with"):
        task.load_state_dict({"dictionaries": {"pieces": digest_of_symbols(["a"])}})
    torch.save({"model": {}, "task_state": {"vokens": {"keys_sha256": "0" * 64, "count": 7}}}, tmp_path / "before.pt")
    going_on = voken_task(voken_world, finetune_from_model=str(tmp_path / "before.pt"))
    going_on.load_dataset("valid")
    with pytest.raises(
        InputError, match=r"vokens/train should be numbers of the same images as those of the checkpoint"
    ):
        going_on.load_dataset("train")


def test_vokens_of_more_images_than_there_are_names_of_are_refused(voken_world, tmp_path):
    """The model has an output for each: a number in meta.json alone would decide its memory."""
    shutil.copytree(voken_world / "vokens", tmp_path / "vokens")
    path = tmp_path / "vokens/train/meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps(meta | {"vokens": 50_000_000}))
    with pytest.raises(InputError, match=r"keys\.txt"):
        voken_task(voken_world, vokens=str(tmp_path / "vokens")).load_dataset("train")
    path.write_text(json.dumps(meta))
    keys = tmp_path / "vokens/train/keys.txt"
    keys.write_text(keys.read_text().replace("0", "x", 1))
    with pytest.raises(InputError, match=r"keys\.txt"):
        voken_task(voken_world, vokens=str(tmp_path / "vokens")).load_dataset("train")


def test_a_checkpoint_is_validated_without_vokens_too(voken_world):
    state = voken_task(voken_world)
    assert state.voken_count == 7
    task = voken_task(voken_world, vokens=None)
    task.load_state_dict(state.state_dict())
    assert "voken_targets" not in whole_split(task) and task.voken_count == 0
    assert task.state_dict()["vokens"] == state.state_dict()["vokens"]


def test_training_set_in_several_folders_is_one_an_epoch(voken_world, tmp_path):
    other = make_voken_world(tmp_path / "other")
    lines = LINES["train"][::-1]
    shutil.rmtree(other / "vokens/train")
    made = write_vokens(other / "vokens/train", lines, other / "tokenizer", 7)
    binarise_vokens(made, other / "bin/train")
    both = {name: f"{voken_world / name}:{other / name}" for name in ("bin", "vokens")}
    task = voken_task(voken_world, data=both["bin"], vokens=both["vokens"])
    for epoch, folder in ((1, voken_world), (2, other), (3, voken_world)):
        task.load_dataset("train", epoch=epoch)
        (text,) = task.dataset("train").dataset.texts
        assert text.place == str(folder / "bin/train") and text.vokens.folder == folder / "vokens/train"
    with pytest.raises(
        InputError, match=r"--vokens should name as many folders as there are of text \(2: .*but names 1"
    ):
        voken_task(voken_world, data=both["bin"])
    lines = (other / "bin/dict.txt").read_text().splitlines(True)
    (other / "bin/dict.txt").write_text("".join(lines[::-1]))
    with pytest.raises(
        InputError, match=r"other/bin/dict\.txt should have the symbols of .*bin/dict\.txt, in their ord"
    ):
        voken_task(voken_world, data=both["bin"], vokens=both["vokens"])


def test_parts_of_a_training_set_are_read_with_vokens_for_each(voken_world, tmp_path):
    shutil.copytree(voken_world, tmp_path / "world")
    world = tmp_path / "world"
    for ending in ("bin", "idx"):
        shutil.copy(world / f"bin/valid.{ending}", world / f"bin/train1.{ending}")
    task = voken_task(world)
    with pytest.raises(InputError, match="vokens/train1 should hold vokens, but there is no"):
        task.load_dataset("train", combine=True)
    shutil.copytree(world / "vokens/valid", world / "vokens/train1")
    task.load_dataset("train", combine=True)
    assert [text.place for text in task.dataset("train").dataset.texts] == [
        str(world / name) for name in ("bin/train", "bin/train1")
    ]
    task.load_dataset("train")
    assert len(task.dataset("train").dataset.texts) == 1


def test_tokens_as_labels_need_no_vokens(voken_world):
    task = voken_task(voken_world, vokens=None, voken_labels="tokens")
    batch = whole_split(task)
    own = torch.where(batch["word_targets"] < 0, batch["net_input"]["src_tokens"], batch["word_targets"])
    inner = batch["voken_targets"] >= 0
    assert torch.equal(batch["voken_targets"][inner], own[inner]) and inner.sum() > 10
    assert task.voken_count == len(task.dictionary)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": None}, "--task voken_lm needs a folder of binarised text"),
        (
            {"data": "nowhere"},
            r"nowhere/dict.txt should be the dictionary of the text, as fairseq-preprocess --only-sou",
        ),
        ({"mask_prob": 0.0}, r"--mask-prob should be more than 0 and at most 1, but is 0\.0"),
        ({"tokens_per_sample": 2}, r"--tokens-per-sample should be more than 2, which .* take, but is 2"),
        ({"mlm_weight": -1.0}, r"--mlm-weight should be a number of at least 0, but is -1\.0"),
        ({"voken_weight": float("inf")}, "--voken-weight should be a number of at least 0, but is inf"),
        ({"mlm_weight": 0.0, "vokens": None}, "there is nothing to learn: --mlm-weight 0 leaves masked words out"),
        ({"mlm_weight": 0.0, "voken_weight": 0.0}, "there is nothing to learn: --mlm-weight 0 leaves masked words out"),
        (
            {"voken_labels": "random", "vokens": None},
            "--voken-labels random takes the place of vokens: give those, too",
        ),
        (
            {"voken_sentence_label": "cls", "voken_labels": "shuffled"},
            "--voken-sentence-label cls asks for vokens: giv",
        ),
    ],
)
def test_flags_that_make_no_sense_are_refused(voken_world, given, message):
    with pytest.raises(InputError, match=message):
        voken_task(voken_world, **given)


def test_vokens_of_pieces_are_no_sentence_labels(voken_world):
    with pytest.raises(
        InputError, match=r"--voken-sentence-label first is for vokens .*train were chosen for each token"
    ):
        assert voken_task(voken_world, voken_sentence_label="first").voken_count


def test_one_artefact_instead_of_the_folder_of_all_is_noticed(voken_world):
    with pytest.raises(
        InputError, match=r"itself those of one. .* of the split train, give the folder it lies in: --vo"
    ):
        assert voken_task(voken_world, vokens=str(voken_world / "vokens/train")).voken_count


def test_splits_of_other_images_or_another_tokenizer_are_refused(voken_world, tmp_path):
    shutil.copytree(voken_world / "vokens/train", tmp_path / "images/train")
    write_vokens(tmp_path / "images/valid", LINES["valid"], voken_world / "tokenizer", 8)
    task = voken_task(voken_world, vokens=str(tmp_path / "images"))
    task.load_dataset("train")
    with pytest.raises(
        InputError, match=r"images/valid should be numbers of the same .* but are of 8, .* and those of 7"
    ):
        task.load_dataset("valid")
    shutil.copytree(voken_world / "vokens/train", tmp_path / "pieces/train")
    write_vokens(tmp_path / "pieces/valid", LINES["valid"], make_tokenizer(tmp_path / "bytes", "bytes"), 7)
    task = voken_task(voken_world, vokens=str(tmp_path / "pieces"))
    task.load_dataset("train")
    with pytest.raises(
        InputError, match=r"bin/dict.txt should be the dictionary of tokenizer .*pieces/valid/tokenizer'"
    ):
        task.load_dataset("valid")
    shutil.copytree(voken_world / "vokens/train", tmp_path / "capitals/train")
    cased = make_cased(tmp_path / "cased", voken_world / "tokenizer")  # which has the same dictionary
    write_vokens(tmp_path / "capitals/valid", LINES["valid"], cased, 7)
    task = voken_task(voken_world, vokens=str(tmp_path / "capitals"))
    task.load_dataset("train")
    with pytest.raises(InputError, match=r"capitals/valid should be of text that was cut by the same tokenizer as"):
        task.load_dataset("valid")


def test_vokens_beyond_the_candidates_are_refused(voken_world, tmp_path):
    shutil.copytree(voken_world / "vokens", tmp_path / "vokens")
    vokens = np.load(tmp_path / "vokens/train/vokens.npy")
    vokens[5] = 7
    change_vokens(tmp_path / "vokens/train", vokens)
    with pytest.raises(
        InputError, match=r"should hold numbers of its 7 candidates, 0..6, or -1 for none, but has 7 at 5"
    ):
        voken_task(voken_world, vokens=str(tmp_path / "vokens")).load_dataset("train")


def test_other_vokens_of_the_same_size_are_refused(voken_world, tmp_path):
    shutil.copytree(voken_world / "vokens", tmp_path / "vokens")
    vokens = np.load(tmp_path / "vokens/train/vokens.npy")
    np.save(tmp_path / "vokens/train/vokens.npy", np.roll(vokens, 1))
    with pytest.raises(InputError, match=r"vokens\.npy isn't what was written: its sha256 isn't the one in meta\.json"):
        voken_task(voken_world, vokens=str(tmp_path / "vokens")).load_dataset("train")


def test_vokens_of_another_text_are_refused(voken_world, tmp_path):
    shutil.copytree(voken_world / "vokens/valid", tmp_path / "vokens/train")
    with pytest.raises(
        InputError, match=r"bin/train has 15 lines, but vokens in .*vokens/train are of 3\. They belong to"
    ):
        voken_task(voken_world, vokens=str(tmp_path / "vokens")).load_dataset("train")


def test_text_that_is_not_there_or_is_none_is_refused(voken_world, tmp_path):
    said = r"bin should hold dev.idx, text binarised by fairseq-preprocess --only-source, but .*\. It has train, valid"
    with pytest.raises(InputError, match=said):
        voken_task(voken_world).load_dataset("dev")
    shutil.copytree(voken_world / "bin", tmp_path / "bin")
    (tmp_path / "bin/valid.idx").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"valid.idx should be binarised text, but reading failed: Index file doesn't"):
        voken_task(voken_world, data=str(tmp_path / "bin")).load_dataset("valid")
    (tmp_path / "bin/dict.txt").write_text("a 1\n")
    with pytest.raises(
        InputError, match=r"dict.txt should have a symbol <mask> to hide words with.*the line '<mask> 1'"
    ):
        voken_task(voken_world, data=str(tmp_path / "bin"))


def test_padding_words_of_a_dictionary_are_never_random_words(voken_world, tmp_path):
    shutil.copytree(voken_world / "bin", tmp_path / "bin")
    lines = (tmp_path / "bin/dict.txt").read_text(encoding="utf-8")
    (tmp_path / "bin/dict.txt").write_text(
        lines + "".join(f"madeupword{n:04d} 0\n" for n in range(5)), encoding="utf-8"
    )
    own, padded = voken_task(voken_world), voken_task(voken_world, data=str(tmp_path / "bin"))
    for task in (own, padded):
        task.load_dataset("train")
    words = [task.dataset("train").dataset.masking.words for task in (own, padded)]
    assert words == [range(4, len(own.dictionary))] * 2 and len(padded.dictionary) == len(own.dictionary) + 5


def test_text_is_read_from_disk_as_it_is_asked_for(voken_world):
    task = voken_task(voken_world)
    task.load_dataset("train")
    (text,) = task.dataset("train").dataset.texts
    assert isinstance(text.text, indexed_dataset.MMapIndexedDataset)
    assert isinstance(text.vokens.vokens, np.memmap) and isinstance(text.offsets, np.memmap)
