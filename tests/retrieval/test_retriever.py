"""Retriever folders: what is saved is what is loaded; broken folders are refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from safetensors.torch import load_file, save_file
from small_retriever import WORDS, make_retriever, make_sentences

from visual_grounding.errors import InputError
from visual_grounding.features.image_network import build_image_network
from visual_grounding.features.store import FeatureStore
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.retrieval.index import build_index
from visual_grounding.retrieval.joint_embedding import save_joint_embedding
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.text.words import Vocabulary, WordTokenizer


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


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"backbone": [], "preprocessing": {}}, r"should have text as 'backbone', but has \[\]"),
        (
            {"backbone": "resnet18", "preprocessing": {"crop": 10**9}},
            "a whole number from 1 to 8192 as 'crop', but has",
        ),
    ],
)
def test_retriever_load_refuses_an_image_network_that_says_nothing_of_sense(tmp_path, said, message):
    embedding = JointEmbedding(JointEmbeddingConfig("bag", "linear", 512, 8, vocabulary_size=44, text_embed_size=8))
    network = build_image_network("resnet18", "none", 32)
    save_joint_embedding(tmp_path / "r", embedding, WordTokenizer(Vocabulary(WORDS)), "seed", network)
    assert Retriever.load(tmp_path / "r").image_network.preprocessing.crop == 32
    state = load_file(tmp_path / "r/model.safetensors")
    state["image_network.description"] = torch.tensor(list(json.dumps(said).encode()), dtype=torch.uint8)
    save_file(state, tmp_path / "r/model.safetensors")
    expected = rf"^the image network's weights in .*/r/model\.safetensors can't be used: .*{message}"
    with pytest.raises(InputError, match=expected):
        Retriever.load(tmp_path / "r")


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


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "token",
            r"kind should be one of joint_embedding, dual_encoder, token_matcher, or package\.module:Name .*'token'",
        ),
        ("json.decoder:JSONDecoder", r"kind json\.decoder:JSONDecoder should be a class derived .*\.Retriever, but is"),
        ("json:loads", r"kind json:loads should be a class derived .*\.Retriever, but is <function loads"),
        ("json:", "kind should be one of joint_embedding, dual_encoder, token_matcher, or"),
        ("no_such.package:Kind", r"config\.json: kind no_such\.package:Kind can't be loaded: No module named"),
    ],
)
def test_unknown_kind_is_refused(retriever, kind, message):
    path = retriever.folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kind": kind}))
    with pytest.raises(InputError, match=message):
        Retriever.load(retriever.folder)


def test_kind_from_an_entry_point_is_loaded(retriever, monkeypatch):
    from importlib.metadata import EntryPoint

    from visual_grounding import extensions

    group = "visual_grounding.retrievers"
    entry = EntryPoint("nearest", "visual_grounding.retrieval.joint_embedding:JointEmbeddingRetriever", group)
    monkeypatch.setattr(extensions, "entry_points", lambda group: [entry])
    path = retriever.folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kind": "nearest"}))
    again = Retriever.load(retriever.folder)
    assert again.kind == "nearest" and torch.equal(again.encode_text(["w1"]), retriever.encode_text(["w1"]))


EXTRACTED = "extract|images:9|backbone:resnet50|weights:V2|preprocessing:256/224|pool:mean|grid:None|version:0.1.0"


def signed_store(folder: Path, signature: str, shape: tuple[int, int, int] = (3, 1, 6)) -> FeatureStore:
    meta = write_store(folder, np.ones(shape)) / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "signature": signature}))
    return FeatureStore(folder)


def test_store_of_another_making_is_refused_or_taken_unchecked(tmp_path):
    retriever = make_retriever(tmp_path / "retriever", image_features=EXTRACTED)
    assert retriever.image_features == EXTRACTED and not retriever.why_unchecked
    retriever.check_store(signed_store(tmp_path / "more", EXTRACTED.replace("images:9", "images:5000")))
    other = signed_store(tmp_path / "random", EXTRACTED.replace("weights:V2", "weights:random-1"))
    with pytest.raises(InputError, match=r"\(another weights\): .*random-1.* ≠ extract\|images:9\|.*weights:V2"):
        retriever.check_store(other)
    with pytest.raises(InputError, match=r"another weights"):
        build_index(retriever, other, tmp_path / "index")
    assert not (tmp_path / "index.partial").exists()
    build_index(retriever, other, tmp_path / "index", features_unchecked=True)
    larger = signed_store(tmp_path / "larger", "import|images:3", (3, 1, 7))
    with pytest.raises(InputError, match="images of 1 region with 6 numbers, but these have 1 with 7"):
        retriever.check_store(larger, features_unchecked=True)


def test_retriever_of_before_takes_any_features_of_its_size_and_says_so(tmp_path):
    retriever = make_retriever(tmp_path / "retriever", image_features=None)
    retriever.check_store(signed_store(tmp_path / "store", EXTRACTED))
    assert "doesn't say how the features that it was trained on were made" in retriever.why_unchecked


def test_retriever_of_an_import_that_does_not_say_what_made_it_compares_what_it_can(tmp_path):
    retriever = make_retriever(tmp_path / "retriever", image_features="import|images:9|normalise:no|version:0.1.0")
    assert "was trained on imported features that don't say what made them" in retriever.why_unchecked
    retriever.check_store(signed_store(tmp_path / "import", "import|images:3|normalise:no|version:0.1.0"))
    with pytest.raises(InputError, match=r"\(another arrays\)"):
        retriever.check_store(signed_store(tmp_path / "later", "import|images:3|normalise:no|arrays:12|version:0.1.0"))
    told = make_retriever(tmp_path / "told", image_features="import|images:9|normalise:no|made_by:a net|version:0.1.0")
    assert told.why_unchecked == ""


GRID = "extract|images:2|backbone:resnet50|weights:V2|preprocessing:448/448|pool:grid|grid:2|precision:bfloat16"


@pytest.mark.parametrize(
    ("learned_from", "cells", "message"),
    [
        (EXTRACTED, GRID, None),  # the mean of such cells, of smaller pictures
        (EXTRACTED, GRID.replace("V2", "V1"), r"another weights"),
        (EXTRACTED, GRID.replace("resnet50", "vgg19"), r"another backbone"),
        (EXTRACTED, "import|images:2|normalise:no", r"import instead of extract"),
        (EXTRACTED.replace("pool:mean", "pool:own"), GRID, r"another preprocessing, pool, grid"),
        (None, GRID, None),
    ],
)
def test_cells_are_those_of_the_same_network_however_it_was_pooled(tmp_path, learned_from, cells, message):
    retriever = make_retriever(tmp_path / "retriever", image_features=learned_from)
    store = signed_store(tmp_path / "grid", cells, (2, 4, 6))
    if message is None:
        retriever.check_cells(store)
    else:
        with pytest.raises(InputError, match=message):
            retriever.check_cells(store)
        retriever.check_cells(store, features_unchecked=True)


def test_cells_of_another_size_are_refused_before_any_is_read(retriever, tmp_path):
    store = signed_store(tmp_path / "grid", "test", (2, 4, 7))
    with pytest.raises(InputError, match="trained on regions with 6 numbers, but these have 7"):
        retriever.check_cells(store)


def test_a_folder_that_changes_while_it_is_loaded_is_refused(tmp_path, monkeypatch):
    """Else it would bear the name of weights that it hasn't, and so would an index that it makes."""
    folder = make_retriever(tmp_path / "one").folder
    kind, whole = type(Retriever.load(folder)), type(Retriever.load(folder)).open

    def changed(*given):
        found = whole(*given)
        found.sha256 = "0" * 64
        return found

    monkeypatch.setattr(kind, "open", changed)
    with pytest.raises(InputError, match=rf"{folder} should stay as it is while it is loaded, but was changed"):
        Retriever.load(folder)
