"""Indexes by faiss: agreement with exact search, recall, files, resuming, and what is refused."""

import filecmp
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from hypothesis import given, settings
from hypothesis import strategies as st
from small_retriever import make_retriever, make_sentences, make_store, retrieve_dense

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval import faiss_index
from visual_grounding.retrieval import index as index_module
from visual_grounding.retrieval.approximation import recall_of_ids
from visual_grounding.retrieval.faiss_index import (
    FaissSearcher,
    FaissSettings,
    build_faiss,
    choose_settings,
    file_names,
    rows_of_positions,
)
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.search import MARGIN, exact_search, rerank_exactly

pytest.importorskip("faiss")


@pytest.fixture
def retriever(tmp_path):
    return make_retriever(tmp_path / "retriever")


@pytest.fixture
def large_store(tmp_path) -> Path:
    """400 images of 6 numbers; every 50th is absent, the last 20 are copies of row 1."""
    features = np.random.default_rng(0).normal(size=(400, 1, 6))
    features[380:] = features[1]
    features[::50] = 0
    return write_store(tmp_path / "large", features)


def test_rows_of_positions_agree_with_counting_present_rows() -> None:
    rng = np.random.default_rng(0)
    for chance in (0.0, 0.3, 0.9):
        absent = np.flatnonzero(rng.random(200) < chance)
        present = np.setdiff1d(np.arange(200), absent)
        assert rows_of_positions(np.arange(len(present)), absent).tolist() == present.tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 9), st.booleans())
def test_flat_agrees_with_exact_search_ties_and_absent_images_included(tmp_path_factory, seed, images, k, integers):
    folder = tmp_path_factory.mktemp("flat")
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(images, 4)).astype(np.float32)[rng.integers(0, images, images)]  # copies
    if integers:
        embeddings = embeddings.round()
    embeddings[rng.random(images) < 0.2] = 0
    choice = FaissSettings("flat", 0, 0, images_per_file=130)
    build_faiss(choice, embeddings, folder, folder)
    queries = torch.from_numpy(rng.normal(size=(5, 4)).round(int(rng.integers(0, 7))).astype(np.float32))
    exclude = torch.from_numpy(rng.integers(-1, images, 5))
    scores, rows = FaissSearcher(folder, choice, images, queries.shape[1]).candidates(queries, k + MARGIN + 1)
    assert np.isin(rows, [*np.flatnonzero(embeddings.any(axis=1)), -1]).all()
    found = rerank_exactly(queries, embeddings, scores, rows, k, exclude)
    expected = exact_search(queries, embeddings, k, exclude=exclude)
    assert torch.equal(found[1], expected[1]) and torch.equal(found[0], expected[0])


@pytest.mark.parametrize("exclude", [False, True])
def test_retrieve_dense_gives_the_same_with_flat_as_with_exact(retriever, large_store, tmp_path, exclude):
    sentences = make_sentences()
    keys = [f"image{number}.jpg" for number in range(len(sentences))] if exclude else None
    for kind, size in (("exact", None), ("flat", 150)):
        store = FeatureStore(large_store)
        build_index(retriever, store, tmp_path / kind, shard_size=64, kind=kind, images_per_file=size)
        retrieve_dense(retriever, Index(tmp_path / kind), sentences, tmp_path / f"ids-{kind}", 8, keys)
    assert sorted(path.name for path in (tmp_path / "flat").glob("*.faiss")) == [f"index-{n}.faiss" for n in range(3)]
    for name in ("ids.npy", "scores.npy"):
        assert filecmp.cmp(tmp_path / "ids-flat" / name, tmp_path / "ids-exact" / name, shallow=False)
    assert ImageIds(tmp_path / "ids-flat").recall is None
    assert not np.isin(ImageIds(tmp_path / "ids-flat").ids, range(0, 400, 50)).any()


@pytest.mark.parametrize(("kind", "fewest"), [("ivf", 1.0), ("pq", 0.9)])
def test_approximate_kinds_find_everything_when_every_list_is_searched(retriever, large_store, tmp_path, kind, fewest):
    sentences = make_sentences()
    build_index(retriever, FeatureStore(large_store), tmp_path / "index", kind=kind, lists=6, images_per_file=170)
    index = Index(tmp_path / "index")
    retrieve_dense(retriever, index, sentences, tmp_path / "ids", 8, nprobe=6)
    table = ImageIds(tmp_path / "ids")
    cosines = retriever.encode_text(sentences).double() @ torch.from_numpy(np.array(index.embeddings)).double().T
    cosines[:, ::50] = -2  # absent
    last = cosines.float().sort(dim=1).values[:, -8:-7]
    right = [(cosines[n, ids.tolist()].float() >= last[n]).sum() for n, ids in enumerate(table.ids) if sentences[n]]
    assert table.recall == pytest.approx(float(sum(right)) / (8 * len(right))) and table.recall >= fewest
    assert f"|kind:{kind}|probes:6|recall:{table.recall:.4f}|" in table.signature
    # What was found is scored exactly, and equal images are in the order of rows.
    for number, row in enumerate(table.ids):
        if sentences[number]:
            own = cosines[number, row.tolist()].numpy()
            np.testing.assert_allclose(table.scores[number], own, atol=1e-3)
            assert all(
                a > b or (a == b and i < j) for a, b, i, j in zip(np.float32(own), np.float32(own[1:]), row, row[1:])
            )


def test_recall_counts_what_is_missing(retriever, large_store, tmp_path):
    build_index(retriever, FeatureStore(large_store), tmp_path / "index")
    index, sentences = Index(tmp_path / "index"), make_sentences()
    queries = retriever.encode_text(sentences)
    nearest = index.search_exactly(queries, 4)[1].numpy()
    assert recall_of_ids(index, queries, nearest, None) == 1.0
    nearest[:, 1:3] = -1
    assert recall_of_ids(index, queries, nearest, None) == 0.5  # the empty sentence doesn't count
    assert recall_of_ids(index, queries[:2] * 0, nearest[:2], None) == 0.0


@pytest.mark.parametrize("kind", ["flat", "ivf", "pq"])
def test_index_continues_with_faiss_files_and_gives_the_same_bytes(retriever, large_store, tmp_path, monkeypatch, kind):
    flags = {"kind": kind, "images_per_file": 100, "shard_size": 64}
    build_index(retriever, FeatureStore(large_store), tmp_path / "whole", **flags)
    write, calls = faiss_index._write, []

    def stop_at(number):
        def interrupted(*arguments):
            calls.append(arguments[2].name)
            if len(calls) == number:
                raise KeyboardInterrupt
            write(*arguments)

        return interrupted

    for number in (2, 4):  # training and no file; then two files more
        calls.clear()
        monkeypatch.setattr(faiss_index, "_write", stop_at(number))
        with pytest.raises(KeyboardInterrupt):
            build_index(retriever, FeatureStore(large_store), tmp_path / "again", **flags)
    monkeypatch.undo()
    build_index(retriever, FeatureStore(large_store), tmp_path / "again", **flags)
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "again").iterdir())
    assert names == ["absent.npy", "embeddings.npy", *(f"index-{n}.faiss" for n in range(4)), "keys.txt", "meta.json"]
    for name in names:
        assert filecmp.cmp(tmp_path / "whole" / name, tmp_path / "again" / name, shallow=False), name


def test_plan_chooses_sizes_from_the_collection() -> None:
    assert choose_settings("flat", 1000, 512) == FaissSettings("flat", 0, 0, 131072)
    # 4·√90000 = 1200 lists; 262144 images can be trained on, 39 a list at least
    assert choose_settings("ivf", 90_000, 512).lists == 1200
    assert choose_settings("ivf", 100, 512).lists == 2
    assert choose_settings("ivf", 20, 512).lists == 1
    assert choose_settings("ivf", 10**8, 512).lists == 262144 // 39
    assert choose_settings("pq", 90_000, 512) == FaissSettings("pq", 1200, 64, 2**28 // 72)
    assert choose_settings("pq", 90_000, 300).code_bytes == 30  # the largest divisor not above 300 / 8
    assert choose_settings("pq", 90_000, 6).code_bytes == 6
    assert file_names(choose_settings("flat", 250, 4, images_per_file=100), 250) == [
        f"index-{n}.faiss" for n in range(3)
    ]
    assert file_names(choose_settings("flat", 100, 4, images_per_file=100), 100) == ["index.faiss"]
    choice = FaissSettings("ivf", 1200, 0, 1)
    assert (choice.nprobe(None), choice.nprobe(5), FaissSettings("ivf", 3, 0, 1).nprobe(None)) == (37, 5, 3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"kind": "exact", "lists": 5}, "a number of lists is for an index that faiss makes, but the kind is exact"),
        ({"kind": "flat", "lists": 5}, "lists are for an index of kind ivf or pq, but the kind is flat"),
        ({"kind": "ivf", "code_bytes": 2}, "code bytes are for an index of kind pq, but the kind is ivf"),
        ({"kind": "ivf", "lists": 0}, "the number of lists should be at least 1, but is 0"),
        ({"kind": "ivf", "lists": 401}, "the number of lists should be at most that of the images, 400, but is 401"),
        ({"kind": "ivf", "lists": 395}, "needs at least 395 images, but only 392 of 400 have features"),
        (
            {"kind": "pq", "code_bytes": 3},
            "the code bytes should divide the size of the retriever's vectors, 8, but are 3",
        ),
        (
            {"kind": "flat", "images_per_file": -1},
            "the number of images in a file of faiss should be at least 1, but is -1",
        ),
    ],
)
def test_index_refuses_choices_that_do_not_fit(retriever, large_store, tmp_path, flags, message):
    with pytest.raises(InputError, match=message):
        build_index(retriever, FeatureStore(large_store), tmp_path / "index", **flags)
    assert not (tmp_path / "index").exists()


def test_index_refuses_codes_of_too_few_images_and_retrieve_refuses_nprobe(retriever, large_store, tmp_path):
    small = FeatureStore(make_store(tmp_path / "small"))
    with pytest.raises(InputError, match="learns codes from at least 256 images, but the collection has 20"):
        build_index(retriever, small, tmp_path / "pq", kind="pq")
    for kind, message in (
        ("exact", "is exact"),
        ("flat", "this one is flat"),
        ("ivf", "1 to 2, the lists .* but is 3"),
    ):
        build_index(retriever, small, tmp_path / kind, kind=kind, **({"lists": 2} if kind == "ivf" else {}))
        with pytest.raises(InputError, match=message):
            retrieve_dense(retriever, Index(tmp_path / kind), ["w1"], tmp_path / "ids", nprobe=3)


def test_files_that_were_damaged_before_the_index_was_finished_are_made_anew(retriever, large_store, tmp_path):
    store = FeatureStore(large_store)
    flags = {"kind": "ivf", "lists": 4, "images_per_file": -(-len(store) // 3)}
    build_index(retriever, store, tmp_path / "whole", **flags)
    expected = {path.name: path.read_bytes() for path in (tmp_path / "whole").glob("*.faiss")}
    assert len(expected) == 3
    with pytest.MonkeyPatch.context() as patch:  # ends just before publishing
        patch.setattr(index_module.ShardedArtefact, "publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_index(retriever, store, tmp_path / "index", **flags)
    files = [
        *sorted((tmp_path / "index.partial").rglob("index*.faiss")),
        *(tmp_path / "index.partial").rglob("trained*faiss"),
    ]
    assert len(files) == 4
    for path in files[1:]:
        path.write_bytes(b"x" * 200 + path.read_bytes()[200:])
    kept = files[0].stat().st_ino
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        publish = index_module.ShardedArtefact.publish
        patch.setattr(
            index_module.ShardedArtefact,
            "publish",
            lambda *given: seen.append(files[0].stat().st_ino) or publish(*given),
        )
        build_index(retriever, store, tmp_path / "index", **flags)
    assert seen == [kept]  # what is whole stays
    assert {path.name: path.read_bytes() for path in (tmp_path / "index").glob("*.faiss")} == expected


def test_broken_or_missing_faiss_files_are_refused(retriever, large_store, tmp_path):
    build_index(retriever, FeatureStore(large_store), tmp_path / "index", kind="ivf")
    path = tmp_path / "index/index.faiss"
    whole = path.read_bytes()
    for left, why in ((100, "at byte [0-9]+ it has nothing, not 0+"), (len(whole) - 100, "can't be searched by faiss")):
        path.write_bytes(whole[:left])
        with pytest.raises(InputError, match=rf"index.faiss .*{why}.* Build the index again"):
            Index(tmp_path / "index").search(torch.ones(1, 8), 2)
    path.unlink()
    for why in ("is missing", "is no file"):
        with pytest.raises(InputError, match=rf"index.faiss {why}. Build the index again"):
            Index(tmp_path / "index").search(torch.ones(1, 8), 2)
        path.mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("kind", "flags"), [("flat", {}), ("ivf", {"lists": 3}), ("pq", {"lists": 2, "code_bytes": 4})]
)
def test_a_file_that_claims_other_sizes_is_refused_before_faiss_claims_memory(tmp_path, kind, flags):
    vectors = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    chosen = choose_settings(kind, 300, 8, **flags)
    (tmp_path / "notes").mkdir()
    build_faiss(chosen, vectors, tmp_path, tmp_path / "notes")
    path, queries = tmp_path / "index.faiss", torch.from_numpy(vectors[:2])
    whole = path.read_bytes()
    header, centres, codes = 37, 37 + 16 + 37 + 8, 37 + 16 + 37 + 8 + 4 * 8 * chosen.lists + 9  # see `_told_of_sizes`
    places = [*range(16), *range(32, header)]
    if kind == "flat":
        places += range(header, header + 8)
    else:
        lists = codes + (1 + 4 * 8 + 8 + 256 * 4 * 8 if kind == "pq" else 0)
        assert whole[lists : lists + 4] == b"ilar"
        places += [*range(header, header + 8), *range(header + 16, header + 32), *range(header + 48, centres)]
        places += [*range(codes - 9, codes), *range(lists, lists + 32 + 8 * chosen.lists)]
    if kind == "pq":
        places += range(codes, codes + 41)
    searcher = FaissSearcher(tmp_path, chosen, 300, 8)
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 0x80
        path.write_bytes(changed)
        with pytest.raises(InputError, match=r"should be the file of faiss .*: (it begins|at byte|it has b|its lists)"):
            searcher.candidates(queries, 3)
    path.write_bytes(whole)
    assert (searcher.candidates(queries, 3)[1][:, 0].numpy() == [0, 1]).any()


def test_missing_faiss_and_two_of_them_are_named(retriever, large_store, tmp_path, monkeypatch):
    store = FeatureStore(large_store)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(
        InputError, match=r"an index of kind ivf needs faiss.*pip install 'visual_grounding\[cpu\]', or \[gpu\]"
    ):
        build_index(retriever, store, tmp_path / "index", kind="ivf")
    monkeypatch.setattr(faiss_index, "installed_faiss", lambda: ["faiss-cpu 1.15.1", "faiss-gpu-cu12 1.14.0"])
    with pytest.raises(
        InputError, match=r"there are 2: faiss-cpu 1.15.1, faiss-gpu-cu12 1.14.0.*uninstall faiss-cpu fa"
    ):
        build_index(retriever, store, tmp_path / "index", kind="ivf")


def test_installed_faiss_names_the_package_and_its_version() -> None:
    import faiss

    assert [package.split()[1] for package in faiss_index.installed_faiss()] == [faiss.__version__]


@pytest.mark.parametrize("kind", ["ivf", "pq"])
def test_lists_in_another_file_are_refused_before_faiss_opens_it(retriever, large_store, tmp_path, kind):
    build_index(retriever, FeatureStore(large_store), tmp_path / "index", kind=kind, lists=6, images_per_file=170)
    file = tmp_path / "index/index-1.faiss"
    content = file.read_bytes()
    assert content.count(b"ilar") == 1  # lists that are in the file itself
    file.write_bytes(content.replace(b"ilar", b"ilod"))
    with pytest.raises(InputError, match=r"index-1\.faiss should be .* its lists are on disk, in another file"):
        retrieve_dense(retriever, Index(tmp_path / "index"), make_sentences(), tmp_path / "ids", 8)


@pytest.mark.parametrize("rows", [[0, 50, 50], [50, 0], [-1, 0], [0, 400]])
def test_absent_rows_that_cannot_be_are_refused(retriever, large_store, tmp_path, rows):
    build_index(retriever, FeatureStore(large_store), tmp_path / "index", kind="flat")
    np.save(tmp_path / "index" / faiss_index.ABSENT, np.array(rows, dtype=np.int64))
    with pytest.raises(InputError, match=r"absent\.npy should have rows of the 400 images, ascending, but hasn't"):
        retrieve_dense(retriever, Index(tmp_path / "index"), make_sentences(), tmp_path / "ids", 8)
