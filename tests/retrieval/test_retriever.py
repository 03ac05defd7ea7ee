"""Retriever folders: what is saved is what is loaded; broken folders are refused."""

import json
import sys

import pytest
import torch
from small_retriever import make_retriever, make_sentences

from visual_grounding.errors import InputError
from visual_grounding.retrieval.retriever import Retriever


@pytest.fixture
def retriever(tmp_path):
    return make_retriever(tmp_path / "retriever")


@pytest.fixture
def sentences():
    return make_sentences()


def test_retriever_embeds_alike_in_any_batch_and_keeps_the_order(retriever, sentences):
    together = retriever.encode_text(sentences)
    alone = torch.cat([retriever.encode_text([sentence]) for sentence in sentences])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(retriever.encode_text(sentences, batch_size=4), together)
    assert together.norm(dim=1).round(decimals=5).tolist() == [float(bool(sentence)) for sentence in sentences]


def test_retriever_identity_changes_with_any_of_its_files(tmp_path):
    first, same, other = (make_retriever(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert first.sha256 == same.sha256 != other.sha256
    (tmp_path / "b" / "README").write_text("where it came from")
    assert Retriever.load(tmp_path / "b").sha256 == first.sha256
    (tmp_path / "b" / "dict.txt").write_text("w1 1\n" * 40)
    assert Retriever.load(tmp_path / "b").sha256 != first.sha256


def test_retriever_knows_words_it_has_not_seen_as_unknown(retriever):
    assert retriever.tokenize(["W1 zebra"]) == ([[5, 3]], 0)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "should hold a retriever, version 1, but its config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json can't be used: Expecting property name"),
        (
            lambda folder: (folder / "model.safetensors").unlink(),
            r"model.safetensors should be a state_dict .* but doesn't exist\. Export the retriever again",
        ),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 20),
            r"model.safetensors should be a state_dict of plain tensors, but can't be read: .* Export",
        ),
        (lambda folder: (folder / "dict.txt").unlink(), r"dict.txt can't be read: No such file"),
    ],
)
def test_retriever_load_refuses_a_broken_folder(retriever, break_it, message):
    break_it(retriever.folder)
    with pytest.raises(InputError, match=message):
        Retriever.load(retriever.folder)


def test_retriever_load_refuses_weights_of_another_shape(retriever):
    path = retriever.folder / "config.json"
    description = json.loads(path.read_text())
    description["architecture"]["joint_size"] = 7
    path.write_text(json.dumps(description))
    with pytest.raises(InputError, match=r"weights of this retriever, but has 5 of another shape \(.*Export"):
        Retriever.load(retriever.folder)


@pytest.mark.parametrize(("shape", "found"), [((2, 1, 5), "1 with 5"), ((2, 3, 6), "3 with 6")])
def test_retriever_refuses_images_it_was_not_trained_on(retriever, shape, found):
    features = torch.ones(shape)
    with pytest.raises(InputError, match=f"images of 1 region with 6 numbers, but these have {found}"):
        retriever.encode_images(features, torch.zeros(shape[:2], dtype=torch.bool))


def test_retriever_module_works_where_fairseq_and_torchvision_are_not_installed(retriever, sentences):
    import subprocess

    script = (
        "import sys; sys.modules['fairseq'] = sys.modules['torchvision'] = None\n"
        "from visual_grounding.retrieval.retriever import Retriever\n"
        f"print(tuple(Retriever.load({str(retriever.folder)!r}).encode_text(['w1 w2']).shape))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 8)", done.stderr


def test_export_takes_an_older_retriever_out_and_refuses_another_folder(tmp_path):
    make_retriever(tmp_path / "retriever")
    (tmp_path / "retriever/text_encoder").mkdir()
    make_retriever(tmp_path / "retriever", 1)
    assert not (tmp_path / "retriever/text_encoder").exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(b"")
    with pytest.raises(InputError, match=r"photos should be a new folder .* holds 1 other things, such as a\.jpg"):
        make_retriever(tmp_path / "photos")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.jpg"]
