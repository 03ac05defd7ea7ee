"""Dense retrieval: a naive twin, absence, exclusion, resuming, and what is refused."""

import filecmp
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from small_retriever import make_retriever, make_sentences, make_store, retrieve_dense

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.dense import DenseFinder
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import Index, build_index


def test_flags_name_folders():
    parser = ArgumentParser()
    DenseFinder.add_arguments(parser)
    given = parser.parse_args(["--retriever", "vse", "--index", "index"])
    assert (given.retriever, given.index) == (Path("vse"), Path("index"))


@pytest.fixture
def retriever(tmp_path):
    return make_retriever(tmp_path / "retriever")


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store")


@pytest.fixture
def sentences():
    return make_sentences()


@pytest.fixture
def index(retriever, store, tmp_path):
    build_index(retriever, FeatureStore(store), tmp_path / "index", batch_size=3, shard_size=7)
    return Index(tmp_path / "index")


def test_index_holds_the_retrievers_embedding_of_every_image(index, retriever, store):
    features, mask = FeatureStore(store).gather(np.arange(20))
    expected = retriever.encode_images(torch.from_numpy(features), torch.from_numpy(mask))
    torch.testing.assert_close(torch.from_numpy(np.array(index.embeddings)), expected)
    assert not index.embeddings[4].any() and index.absent == 1
    assert list(index.keys()) == list(FeatureStore(store).keys())


def test_index_continues_after_an_interruption_with_the_same_bytes(retriever, store, index, tmp_path, monkeypatch):
    calls = []

    def stop_at_the_third(features, mask):
        calls.append(1)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return type(retriever).encode_images(retriever, features, mask)

    monkeypatch.setattr(retriever, "encode_images", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        build_index(retriever, FeatureStore(store), tmp_path / "again", batch_size=3, shard_size=7)
    monkeypatch.undo()
    build_index(retriever, FeatureStore(store), tmp_path / "again", batch_size=3, shard_size=7)
    for name in ("embeddings.npy", "keys.txt", "meta.json"):
        assert filecmp.cmp(tmp_path / "again" / name, tmp_path / "index" / name, shallow=False)


@pytest.mark.parametrize("exclude", [False, True])
def test_retrieve_dense_agrees_with_sorting_all_cosines(retriever, index, sentences, tmp_path, exclude):
    keys = [f"image{number % 23}.jpg" for number in range(len(sentences))]  # 20, 21 and 22 aren't in the collection
    counts = retrieve_dense(
        retriever, index, sentences, tmp_path / "ids", 5, keys if exclude else None, batch_size=4, shard_size=10
    )
    table = ImageIds(tmp_path / "ids")
    cosines = retriever.encode_text(sentences).numpy() @ np.array(index.embeddings).T
    for number, sentence in enumerate(sentences):
        allowed = [row for row in range(20) if row != 4 and not (exclude and row == number % 23)]
        best = sorted(allowed, key=lambda row: (-cosines[number, row], row))[:5] if sentence else [-1] * 5
        assert table.ids[number].tolist() == best
        expected = cosines[number, best] if sentence else np.zeros(5)
        np.testing.assert_allclose(table.scores[number], expected, atol=1e-3)
    unknown = {"unknown_excluded": 3} if exclude else {}
    assert counts == {"empty": 1, "truncated": 0, "short": 0, **unknown}
    assert (table.keys_sha256, len(table)) == (index.keys_sha256, 31)


def test_retrieve_dense_fills_up_when_the_collection_is_small_and_counts(retriever, index, tmp_path):
    counts = retrieve_dense(retriever, index, ["w1", " ", "w2 " * 300], tmp_path / "ids", 25)
    ids = ImageIds(tmp_path / "ids").ids
    assert (ids[0] >= 0).sum() == 19 and (ids[0, 19:] == -1).all() and (ids[1] == -1).all()
    assert counts == {"empty": 1, "truncated": 1, "short": 2}


def test_retrieve_dense_gives_no_image_to_what_the_retriever_reads_nothing_of(retriever, index, monkeypatch):
    encode = type(retriever).encode_tokens

    def read_nothing_of_the_second(*arguments):
        vectors = encode(*arguments).clone()
        vectors[1] = 0
        return vectors

    monkeypatch.setattr(type(retriever), "encode_tokens", read_nothing_of_the_second)
    finder = DenseFinder(retriever, index, 3)
    found = finder.find(["w1", "w2", ""])
    assert (found.ids[0] >= 0).all() and (found.ids[1:] == -1).all() and found.counts["empty"] == 2
    assert list(finder.warnings(found.counts, 3)) == [
        "2 of 3 sentences (66.7 %) are empty, or hold nothing that the retriever reads; they have no image."
    ]


def test_retrieve_dense_continues_after_an_interruption_with_the_same_bytes(
    retriever, index, sentences, tmp_path, monkeypatch
):
    retrieve_dense(retriever, index, sentences, tmp_path / "whole", 3, shard_size=8)
    search, calls = Index.search, []

    def stop_at_the_third(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return search(*arguments, **options)

    monkeypatch.setattr(Index, "search", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        retrieve_dense(retriever, index, sentences, tmp_path / "ids", 3, shard_size=8)
    counts = retrieve_dense(retriever, index, sentences, tmp_path / "ids", 3, shard_size=8)
    assert len(calls) == 3 + 2  # two of four shards were done
    assert counts == retrieve_dense(retriever, index, sentences, tmp_path / "ids", 3, shard_size=8)  # nothing to do
    assert len(calls) == 5
    for name in ("ids.npy", "scores.npy", "meta.json"):
        assert filecmp.cmp(tmp_path / "ids" / name, tmp_path / "whole" / name, shallow=False)


def test_retrieve_dense_refuses_another_retriever_than_the_indexs(index, tmp_path):
    other = make_retriever(tmp_path / "other", seed=1)
    message = (
        f"made by another retriever than {other.folder}: sha256 {index.retriever_sha256[:8]}… ≠ {other.sha256[:8]}…"
    )
    with pytest.raises(InputError, match=message):
        retrieve_dense(other, index, ["w1"], tmp_path / "ids")


def test_retrieve_dense_refuses_keys_of_another_length_and_counts_below_one(retriever, store, index, tmp_path):
    with pytest.raises(InputError, match="one key for each of the 2 sentences, but there are 1 lines"):
        retrieve_dense(retriever, index, ["w1", "w2"], tmp_path / "ids", exclude_keys=["image1.jpg"])
    with pytest.raises(InputError, match="images per sentence should be at least 1, but is 0"):
        retrieve_dense(retriever, index, ["w1"], tmp_path / "ids", 0)
    with pytest.raises(InputError, match="shard size should be at least 1, but is -1"):
        build_index(retriever, FeatureStore(store), tmp_path / "other", shard_size=-1)


def test_retrieve_dense_refuses_an_output_of_another_text(retriever, index, tmp_path):
    retrieve_dense(retriever, index, ["w1"], tmp_path / "ids")
    with pytest.raises(InputError, match=r"ids was made with other choices \(another text\)\."):
        retrieve_dense(retriever, index, ["w2"], tmp_path / "ids")


def test_index_refuses_a_truncated_array(index):
    path = index.folder / "embeddings.npy"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"embeddings.npy should be a plain .npy array"):
        Index(index.folder)


def test_index_refuses_images_of_another_size(retriever, tmp_path):
    store = write_store(tmp_path / "wide", np.ones((3, 1, 9)))
    with pytest.raises(InputError, match="images of 1 region with 6 numbers, but these have 1 with 9"):
        build_index(retriever, FeatureStore(store), tmp_path / "index")
    assert not (tmp_path / "index.partial").exists()


def test_words_that_the_retriever_does_not_know_are_counted(retriever, index, tmp_path):
    sentences = ["w1 w2", "ein Hund .", "", "w3 Hund", "Hund w4 w5 w6", "w7", "Hund"]
    counts = retrieve_dense(retriever, index, sentences, tmp_path / "ids", 4, shard_size=2)
    # unknown: ein, Hund and a mark; Hund; Hund; Hund. Known: w1 .. w7
    assert counts == {
        "empty": 1, "truncated": 0, "short": 0, "no_known_word": 2, "unknown_words": 6, "words": 13,
    }  # fmt: skip
    table = ImageIds(tmp_path / "ids")
    assert table.counts == counts
    assert (table.ids >= 0).any(axis=1).tolist() == [True, True, False, True, True, True, True]  # found as before
    known = [sentences[number] for number in (0, 3, 5)]
    counts = retrieve_dense(retriever, index, [known[0], known[2]], tmp_path / "known", 4)
    assert counts == {"empty": 0, "truncated": 0, "short": 0}  # as before there were such counts
    assert np.array_equal(ImageIds(tmp_path / "known").ids, table.ids[[0, 5]])


def test_unknown_text_is_warned_of_with_its_share(retriever, index):
    finder = DenseFinder(retriever, index, 2)
    assert list(finder.warnings(finder.find(["w1 w2 w3 w4", "Hund w5 w6 w7"]).counts, 2)) == []
    assert list(finder.warnings(finder.find(["w1 w2 w3 w4", "Hund Ball", "w6 w7"]).counts, 3)) == [
        "2 of 8 words (25.0 %) aren't known to the retriever. Was it trained on captions of another language, or other "
        "topics?",
        "1 of 3 sentences (33.3 %) have no word that the retriever knows; their images say nothing about them.",
    ]


def test_finder_computes_where_its_retriever_does(index, retriever, monkeypatch):
    """A data loader's workers can't use a GPU, so whoever asks in them looks at it."""
    finder = DenseFinder(retriever, index, 2)
    assert finder.device == "cpu"
    monkeypatch.setattr(retriever, "device", torch.device("cuda:1"))
    assert finder.device == "cuda:1"
