"""The index: keys that were swapped, rows that aren't numbers, copies in other processes, what is refused."""

import json
import pickle
import re

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from small_retriever import make_retriever, make_store, retrieve_dense

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval import search
from visual_grounding.retrieval.faiss_index import FaissSearcher, build_faiss
from visual_grounding.retrieval.image_names import ImageNames
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.retriever import Retriever


@pytest.fixture
def retriever(tmp_path):
    return make_retriever(tmp_path / "retriever")


@pytest.fixture
def store(tmp_path):
    return FeatureStore(make_store(tmp_path / "store"))


def change(index, row, value):
    """Write a number into an index's embeddings."""
    embeddings = np.load(index.folder / "embeddings.npy", mmap_mode="r+")
    embeddings[row, 3] = value
    embeddings.flush()


@pytest.mark.parametrize("kind", ["exact", "flat"])
def test_queries_of_another_shape_are_refused(retriever, store, tmp_path, kind):
    if kind != "exact":
        pytest.importorskip("faiss")
    build_index(retriever, store, tmp_path / "index", kind=kind)
    index, queries = Index(tmp_path / "index"), retriever.encode_text(["w1 w2", "w3"])
    for wrong in (queries[0], queries[:, 1:], queries.unsqueeze(0), np.zeros((0, 3))):
        shape = re.escape(str(tuple(wrong.shape)))
        with pytest.raises(
            InputError, match=rf"a row of {queries.shape[1]} numbers each, .* but are of shape {shape}\."
        ):
            index.search(wrong, 1)
    assert index.search(queries[:0], 2)[1].shape == (0, 2)


@pytest.mark.parametrize("norm", [-1.0, 2.0, 1e300])
def test_a_length_that_no_unit_vector_has_is_refused(retriever, store, tmp_path, norm):
    """By it the exact search knows how far rounding may have gone."""
    build_index(retriever, store, tmp_path / "index")
    path = tmp_path / "index/meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"largest_norm": norm}))
    with pytest.raises(InputError, match=r"length of a unit vector, or 0, as largest_norm, but has .* the index again"):
        Index(tmp_path / "index")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["exact", "flat", "ivf"])
@pytest.mark.parametrize("many", [False, True])
def test_row_that_is_no_number_is_refused_where_it_is_read(retriever, store, tmp_path, monkeypatch, kind, value, many):
    if kind != "exact":
        pytest.importorskip("faiss")
    monkeypatch.setitem(search._CHUNK, "cpu", 6)
    build_index(retriever, store, tmp_path / "index", kind=kind, **({"lists": 2} if kind == "ivf" else {}))
    index = Index(tmp_path / "index")
    change(index, 13, value)
    queries = retriever.encode_text(["w1 w2", "w3", "w4 w5 w6"] * (500 if many else 1)).clone()
    queries[0] = 0  # an empty sentence tells as well
    message = (
        f"{index.folder / 'embeddings.npy'} should hold unit vectors, but row 13 (image13.jpg) holds NaN or infinity"
    )
    for method in (index.search, index.search_exactly):
        with pytest.raises(InputError, match=re.escape(message)):
            method(queries, 20, nprobe=2) if method == index.search and kind == "ivf" else method(queries, 20)
    with pytest.raises(search.NonFiniteRow, match="row 13 of the embeddings"):
        search.rerank(queries[:1], index.embeddings, torch.tensor([[2, 13, -1]]), 2)
    with pytest.raises(search.NonFiniteRow, match="row 13 of the embeddings"):
        search.search_in_float64(queries[:1], index.embeddings, 2, None)


def test_row_that_is_no_number_in_faisss_own_file_is_never_found(retriever, store, tmp_path):
    """faiss itself refuses to train lists on such rows."""
    pytest.importorskip("faiss")
    build_index(retriever, store, tmp_path / "index", kind="flat")
    index = Index(tmp_path / "index")
    change(index, 13, np.nan)
    (index.folder / "index.faiss").unlink()
    build_faiss(index.faiss, index.embeddings, index.folder, tmp_path)
    queries = retriever.encode_text(["w1 w2", "w3", "w4 w5 w6"])
    scores, rows = FaissSearcher(index.folder, index.faiss, 20, 8).candidates(queries, 8)
    assert 13 not in rows and scores.isfinite().all()
    assert 13 not in index.search(queries, 3)[1]


@pytest.mark.parametrize("row", [4000, 5999])  # among others, and behind the last whole block
def test_row_that_is_no_number_is_refused_where_no_candidate_shows_it(tmp_path, row):
    """A scan compares the maximum of a block: NaN is never above the last candidate, and would hide its neighbours."""
    embeddings = np.random.default_rng(0).normal(size=(6000, 4)).astype(np.float32)
    embeddings[row, 1] = np.nan
    np.save(tmp_path / "e.npy", embeddings)
    mapped = np.load(tmp_path / "e.npy", mmap_mode="r")
    with pytest.raises(search.NonFiniteRow, match=f"row {row} of the embeddings"):
        search.exact_search(torch.ones(2, 4), mapped, 2, chunk=3000, largest_norm=9.0)


def test_large_numbers_whose_sum_is_infinite_are_numbers(tmp_path):
    embeddings = np.full((40, 4), 1e38, dtype=np.float32)
    np.save(tmp_path / "e.npy", embeddings)
    mapped = np.load(tmp_path / "e.npy", mmap_mode="r")
    scores, ids = search.exact_search(torch.full((1, 4), 0.5), mapped, 2)
    assert ids.tolist() == [[0, 1]] and scores.isfinite().all()


@pytest.mark.parametrize("shard_size", [3, 8192])
def test_index_of_a_retriever_with_huge_weights_is_refused(retriever, store, tmp_path, shard_size):
    path = retriever.folder / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.startswith("image") and name.endswith("weight"))
    weights[name] = torch.full_like(weights[name], 3e38)
    save_file(weights, path)
    message = (
        f"retriever {retriever.folder} should turn every image of {store.folder} into numbers, but makes NaN or "
        rf"infinity of row 1 \(image1.jpg\) and \d+ more of rows 0..{min(shard_size, 20) - 1}"
    )
    for _ in range(2):  # a rerun doesn't publish what the first left
        with pytest.raises(InputError, match=message):
            build_index(Retriever.load(retriever.folder), store, tmp_path / "index", shard_size=shard_size)
        assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_index_names_the_only_image_that_a_retriever_makes_no_numbers_of(
    retriever, store, tmp_path, monkeypatch, value
):
    """Row 13 is row 5 of the second shard."""
    encode = Retriever.encode_images

    def broken(self, features, padding_mask):
        vectors = encode(self, features, padding_mask).clone()
        vectors[(features == torch.from_numpy(store.features[13])).all(dim=(1, 2)), 2] = value
        return vectors

    monkeypatch.setattr(type(retriever), "encode_images", broken)
    message = r"infinity of row 13 \(image13.jpg\) and 0 more of rows 8\.\.15\. Its weights are too large or broken"
    with pytest.raises(InputError, match=message):
        build_index(retriever, store, tmp_path / "index", shard_size=8)
    assert not (tmp_path / "index").exists()


def test_retrieving_with_a_retriever_whose_sentences_are_no_numbers_is_refused(retriever, store, tmp_path, monkeypatch):
    build_index(retriever, store, tmp_path / "index")
    encode = Retriever.encode_tokens

    def broken(self, tokens, batch_size):
        vectors = encode(self, tokens, batch_size).clone()
        vectors[1:] *= float("inf")
        return vectors

    monkeypatch.setattr(Retriever, "encode_tokens", broken)
    with pytest.raises(InputError, match="makes NaN or infinity of 'w2 w3' and 1 more of 3"):
        retrieve_dense(retriever, Index(tmp_path / "index"), ["w1", "w2 w3", "w4"], tmp_path / "ids")


def swap(path):
    """Exchange two lines of a key list; nothing else tells."""
    lines = path.read_text().splitlines()
    lines[2], lines[7] = lines[7], lines[2]
    path.write_text("".join(f"{line}\n" for line in lines))
    return f"{path} was changed after its artefact was made: its sha256 is"


def test_swapped_keys_are_refused_wherever_keys_are_read(retriever, store, tmp_path, capsys):
    build_index(retriever, store, tmp_path / "index")
    index = Index(tmp_path / "index")
    (tmp_path / "captions.tsv").write_text("image2.jpg\tw1\nimage7.jpg\tw2\n")
    (tmp_path / "text").write_text("w1\nw2\n")
    (tmp_path / "keys").write_text("image2.jpg\nimage7.jpg\n")
    Image.new("RGB", (4, 4)).save(tmp_path / "image2.jpg")
    retrieve_dense(retriever, index, ["w1", "w2"], tmp_path / "ids", 2)
    of_store, of_index = swap(store.folder / "keys.txt"), swap(index.folder / "keys.txt")
    text, features = ["--text", tmp_path / "text"], ["--image-features", store.folder]
    dense = ["--method", "dense", "--retriever", retriever.folder, "--index", index.folder, *text]
    keyword = ["--method", "keyword", "--captions", tmp_path / "captions.tsv", *features, *text]
    photos = ["--images", tmp_path, "--image-ids", tmp_path / "ids"]
    for said, verb, *flags in (
        (of_store, "retrieve", "--method", "paired", *features, "--keys", tmp_path / "keys"),
        (of_store, "retrieve", *keyword),
        (of_index, "retrieve", *dense, "--exclude-paired", tmp_path / "keys"),
        (of_store, "report", *features, *text, *photos),
        (of_store, "index", "--retriever", retriever.folder, *features),
    ):
        assert main([verb, *map(str, flags), "--out", str(tmp_path / "out")]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    for collection, said in ((store, of_store), (index, of_index)):
        with pytest.raises(InputError, match=re.escape(said)):
            ImageNames(collection)  # what fairseq-interactive prints
        with pytest.raises(InputError, match=re.escape(said)):
            list(collection.keys())
    with pytest.raises(InputError, match=re.escape(of_store)):
        store.key(0)
    with pytest.raises(InputError, match=re.escape(of_store)):
        store.rows_of(["image0.jpg"])


def test_copy_of_an_index_opens_its_files_itself(retriever, store, tmp_path):
    build_index(retriever, store, tmp_path / "index")
    index = Index(tmp_path / "index")
    copied = pickle.dumps(index)
    assert len(copied) < 300  # the folder's name, not the embeddings
    assert np.array_equal(pickle.loads(copied).embeddings, index.embeddings)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("images", -1, "should have a count as 'images', but has -1"),
        ("keys_sha256", None, "should have text as 'keys_sha256', but has nothing"),
        ("signature", "x" * 10_001, "should have text as 'signature', but has 10001 letters: at most 10000 are taken"),
        ("kind", "ivf", "should say in its meta.json how faiss's files were built, but that can't be used: KeyError"),
    ],
)
def test_index_refuses_a_description_that_cannot_be(retriever, store, tmp_path, field, value, message):
    build_index(retriever, store, tmp_path / "index")
    path = tmp_path / "index/meta.json"
    meta = json.loads(path.read_text())
    meta[field] = value
    path.write_text(json.dumps({name: content for name, content in meta.items() if content is not None}))
    with pytest.raises(InputError, match=re.escape(message)):
        Index(tmp_path / "index")


@pytest.mark.parametrize("said", [{"kind": "flat", "lists": 0, "code_bytes": 0}, "flat", {"shard_size": 0}])
def test_index_refuses_settings_of_faiss_that_cannot_be(retriever, store, tmp_path, said):
    pytest.importorskip("faiss")
    build_index(retriever, store, tmp_path / "index", kind="flat")
    path = tmp_path / "index/meta.json"
    meta = json.loads(path.read_text())
    assert meta["faiss"] == {"kind": "flat", "lists": 0, "code_bytes": 0, "shard_size": 2**28 // 32}
    meta["faiss"] = {**meta["faiss"], **said} if said == {"shard_size": 0} else said
    path.write_text(json.dumps(meta))
    with pytest.raises(
        InputError, match=r"should say in its meta.json how faiss's files were built, but that can't be"
    ):
        Index(tmp_path / "index")


def test_signature_names_what_an_index_was_made_of_in_eight_letters_each(retriever, store, tmp_path):
    build_index(retriever, store, tmp_path / "index")
    parts = dict(part.split(":", 1) for part in Index(tmp_path / "index").signature.split("|")[1:])
    made_of = {"retriever": retriever.sha256, "keys": store.keys_sha256, "features": store.digest}
    assert {name: parts[name] for name in made_of} == {name: digest[:8] for name, digest in made_of.items()}
