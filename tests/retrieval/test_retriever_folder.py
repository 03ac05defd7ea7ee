"""A retriever's folder is whole at any moment: the older one or the new one; nothing else in it is lost."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from faults.processes import KILLED, Commands
from small_retriever import make_retriever

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.retrieval import retriever_folder
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.retrieval.retriever_folder import Description, read_description, write_retriever
from visual_grounding.storage import whole_folder


def change(folder: Path, **fields: object) -> None:
    """Set fields of a description; None takes one out."""
    path = folder / "config.json"
    said = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in said.items() if value is not None}))


def test_description_says_what_was_written(tmp_path):
    description = Description("a.b:C", {"sizes": [1, 2]}, "how", "extract|pool:mean")
    write_retriever(tmp_path / "new/folder", description, lambda folder: None)
    assert read_description(tmp_path / "new/folder") == description


@pytest.mark.parametrize(
    ("architecture", "kind"), [({"joint_size": 8}, "joint_embedding"), ({"dual_encoder": "clip"}, "dual_encoder")]
)
def test_kind_and_features_of_a_folder_from_before_it_said_them(tmp_path, architecture, kind):
    said = {"format": "retriever", "version": 1, "architecture": architecture, "signature": "old"}
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert read_description(tmp_path) == Description(kind, architecture, "old", None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": 3}, "config.json can't be used: kind should be text, but is 3"),
        ({"image_features": ["x"]}, r"can't be used: image_features should be text, but is \['x'\]"),
        ({"architecture": "x"}, "can't be used: architecture should be names with values, but is 'x'"),
        ({"version": 2}, "version 1, but its config.json can't be used: it says retriever, version 2"),
    ],
)
def test_description_that_is_none_is_refused(tmp_path, fields, message):
    make_retriever(tmp_path / "retriever")
    change(tmp_path / "retriever", **fields)
    with pytest.raises(InputError, match=message):
        read_description(tmp_path / "retriever")


def test_another_flags_folder_is_called_what_it_is(tmp_path):
    write_store(tmp_path / "store", np.ones((1, 1, 2)), ["a"])
    with pytest.raises(InputError, match="store should hold a retriever, but is a feature store"):
        read_description(tmp_path / "store")


def test_older_retriever_is_replaced_and_what_else_lies_there_stays(tmp_path):
    older = make_retriever(tmp_path / "retriever")
    (tmp_path / "retriever/text_encoder").mkdir()
    (tmp_path / "retriever/notes/config.json").mkdir(parents=True)  # a name of ours, but not its place
    (tmp_path / "retriever/README").write_text("where it came from")
    (tmp_path / "link").symlink_to(tmp_path / "retriever")
    newer = make_retriever(tmp_path / "link", seed=1)
    assert newer.sha256 == Retriever.load(tmp_path / "retriever").sha256 != older.sha256
    assert (tmp_path / "retriever/README").read_text() == "where it came from"
    assert (tmp_path / "retriever/notes/config.json").is_dir()
    assert not (tmp_path / "retriever/text_encoder").exists()
    assert sorted(os.listdir(tmp_path)) == ["link", "retriever"]


def test_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(b"")
    with pytest.raises(InputError, match=r"photos should be a new folder .* holds 1 other things, such as a\.jpg") as e:
        make_retriever(tmp_path / "photos")
    assert e.value.choices == ("out",)
    (tmp_path / "bert").mkdir()  # another library's model has files of the same names
    for name, content in {"config.json": '{"model_type": "bert"}', "model.safetensors": "weights"}.items():
        (tmp_path / "bert" / name).write_text(content)
    with pytest.raises(InputError, match=r"bert should be a new folder .* holds 2 other things, such as config\.json"):
        make_retriever(tmp_path / "bert")
    assert (tmp_path / "bert/model.safetensors").read_text() == "weights"
    assert sorted(os.listdir(tmp_path)) == ["bert", "photos"]


def test_empty_folder_and_a_damaged_retriever_are_replaced(tmp_path):
    (tmp_path / "empty").mkdir()
    make_retriever(tmp_path / "empty")
    (tmp_path / "empty/config.json").write_text("{")
    make_retriever(tmp_path / "empty", seed=1)
    assert Retriever.load(tmp_path / "empty").signature == "seed1"


def test_full_disk_leaves_the_older_retriever(tmp_path, monkeypatch):
    older = make_retriever(tmp_path / "retriever").sha256

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for module, name in ((whole_folder, "_flush"), (retriever_folder, "write_json"), (whole_folder, "sync_folder")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(InputError, match=r"retriever can't be written: No space left on device\."):
                make_retriever(tmp_path / "retriever", seed=1)
        assert os.listdir(tmp_path) == ["retriever"]
        if name != "sync_folder":  # by then it is in its place
            assert Retriever.load(tmp_path / "retriever").sha256 == older


def test_second_rename_that_fails_puts_the_older_retriever_back(tmp_path, monkeypatch):
    older = make_retriever(tmp_path / "retriever").sha256
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.suffix == ".being-written":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(whole_folder, "_exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(InputError, match=r"retriever can't be written: Input/output error\."):
        make_retriever(tmp_path / "retriever", seed=1)
    assert os.listdir(tmp_path) == ["retriever"] and Retriever.load(tmp_path / "retriever").sha256 == older


def test_retriever_that_a_killed_export_moved_aside_is_named_behind_a_link_too(tmp_path):
    older = make_retriever(tmp_path / "retriever").sha256
    (tmp_path / "link").symlink_to(tmp_path / "retriever")
    (tmp_path / "retriever").rename(tmp_path / "retriever.replaced")
    moved = f"mv {tmp_path}/retriever.replaced {tmp_path}/retriever or "
    with pytest.raises(InputError, match=f"{tmp_path}/link should hold a retriever, but .* with: {moved}"):
        Retriever.load(tmp_path / "link")
    (tmp_path / "retriever.replaced").rename(tmp_path / "retriever")
    assert Retriever.load(tmp_path / "link").sha256 == older
    (tmp_path / "retriever.replaced").mkdir()  # left by an export that was killed once its retriever was in place
    assert Retriever.load(tmp_path / "link").sha256 == older


def checkpoint(folder: Path, value: float) -> Path:
    """What `fairseq-train` saves of a bag-of-words retriever with 5 words, and a data folder with them."""
    choices = {
        "_name": "visual_semantic_embedding", "text_encoder": "bag", "text_embed_size": 2, "sru_layers": 4,
        "text_dropout": 0.25, "image_dropout": 0.5, "joint_batch_norm": False, "text_encoder_freeze": False,
    }  # fmt: skip
    sizes = {"text.encoder.embedding.weight": (9, 2), "text.projection.weight": (3, 2), "text.projection.bias": (3,),
             "image.projection.weight": (3, 4), "image.projection.bias": (3,)}  # fmt: skip
    weights = {f"embedding.{name}": torch.full(size, value) for name, size in sizes.items()}
    torch.save({"cfg": {"model": choices}, "model": weights}, folder / f"{value}.pt")
    (folder / "dict.txt").write_text("".join(f"w{number} 1\n" for number in range(5)))
    return folder / f"{value}.pt"


def test_killed_at_any_step_an_export_leaves_the_older_retriever_or_the_new_one(tmp_path):
    data, out = tmp_path, tmp_path / "out/retriever"

    def flags(value: float) -> list[object]:
        return ["export", "--checkpoint", checkpoint(tmp_path, value), "--data", data, "--out", out]

    assert main(list(map(str, flags(1.0)))) == 0
    (out / "README").write_text("notes")
    older = Retriever.load(out).sha256
    found = []
    with Commands("visual_grounding.retrieval.export", "visual_grounding.cli.export") as commands:
        step = 0
        while True:
            step += 1
            done = commands.run(flags(2.0), kill_at=step)
            if done.status != KILLED:
                break
            found.append(Retriever.load(out).sha256)
            assert (out / "README").read_text() == "notes"
            if found[-1] != older:
                assert commands.run(flags(1.0)).status == 0
                assert Retriever.load(out).sha256 == older and (out / "README").read_text() == "notes"
        assert done.status == 0, done.err
    newer = Retriever.load(out).sha256
    assert os.listdir(out.parent) == ["retriever"] and (out / "README").read_text() == "notes"
    order = [older, newer]
    assert len(found) > 8 and set(found) == set(order)
    assert found == sorted(found, key=order.index)  # never back
