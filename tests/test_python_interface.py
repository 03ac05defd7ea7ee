"""The names that are kept for Python, as the README has them."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import REPOSITORY
from small_retriever import make_retriever, make_store

import visual_grounding
from visual_grounding import FeatureStore, Index, InputError, Retriever
from visual_grounding.retrieval.index import build_index
from visual_grounding.storage.artefact import Keys


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A folder with the README's outputs, in which we are: 20 photos, the fifth absent."""
    store = FeatureStore(make_store(tmp_path / "features/photos"))
    build_index(make_retriever(tmp_path / "retriever"), store, tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    return store


def test_the_readmes_lines_run_and_find_what_the_table_holds(made, capsys):
    (block,) = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    names: dict = {}
    exec(block, names)
    retriever, index = Retriever.load("retriever"), Index("index")
    expected = retriever.encode_text(["a dog runs", "two children play"]) @ torch.from_numpy(index.embeddings[:]).T
    assert names["rows"].tolist() == expected.topk(3).indices.tolist()
    printed = [[f"image{row}.jpg" for row in found] for found in names["rows"].tolist()]
    assert capsys.readouterr().out == f"{printed}\n"
    assert names["features"].shape == (2, 3, 1, 6) and names["own"] == {}


def test_rows_may_be_lists_arrays_or_tensors(made):
    for rows in ([[3, -1]], np.array([[3, -1]]), torch.tensor([[3, -1]])):
        features, absent = made.gather(rows)
        np.testing.assert_array_equal(features[0, 0], made.features[3])
        assert absent.tolist() == [[[False], [True]]]
    assert made.gather([])[0].shape == (0, 1, 6)
    with pytest.raises(InputError, match=r"image ids should be rows, integers, but are float64: .*1\.5"):
        made.gather([1.5])


def test_keys_are_found_by_row_and_no_image_has_none(made):
    keys = made.keys()
    assert keys[3] == "image3.jpg" == Index("index").keys()[3] and keys[-1] is None
    assert keys[[0, -1]] == ["image0.jpg", None] == keys[torch.tensor([0, -1])]
    assert keys[np.array([[1], [2]])] == [["image1.jpg"], ["image2.jpg"]] and keys[[]] == []
    assert (
        keys[18:] == ["image18.jpg", "image19.jpg"] and keys[:0] == [] and keys[::-10] == ["image19.jpg", "image9.jpg"]
    )
    claims = Keys(made.folder / "keys.txt", 2**45, made.keys_sha256)
    with pytest.raises(InputError, match="keys"):  # not for want of memory
        claims[:3]
    assert len(keys) == 20 and list(keys) == [f"image{row}.jpg" for row in range(20)]
    for row in (20, -2):
        with pytest.raises(IndexError, match=r"has rows 0\.\.19"):
            keys[row]
    with pytest.raises(InputError, match="rows should be whole numbers, but are bool: True"):
        keys[True]
    index = Index("index")
    assert repr(index) == "<index of 20 images in 8 numbers each, exact: index>"
    assert repr(made) == f"<feature store of 20 images, 1 regions of 6 numbers each: {made.folder}>"
    with pytest.raises(InputError, match="k should be at least 1, but is 0"):
        index.search(torch.ones(1, 8), 0)
    assert index.keys()[index.search(torch.ones(1, 8), 25)[1]][0].count(None) == 6  # 19 images, and none for the rest


def test_keys_that_were_changed_are_refused(made):
    (made.folder / "keys.txt").write_text("other\n" * 20)
    with pytest.raises(InputError, match="was changed after its artefact was made"):
        made.keys()[3]


def test_one_sentence_is_not_taken_for_its_letters(made):
    with pytest.raises(InputError, match=r"takes a list of sentences, but was given one: \['a dog'\]\?"):
        Retriever.load("retriever").encode_text("a dog")


@pytest.mark.parametrize("wrong", [["a dog", None], ["a dog", 3], [["a"], "dog"], np.array([b"a dog"])])
def test_what_is_no_sentence_is_named(made, wrong):
    with pytest.raises(InputError, match=r"encode_text takes sentences, but number [01] is .* of type \w+"):
        Retriever.load("retriever").encode_text(wrong)


def test_sentences_come_in_any_form(made):
    retriever, lines = Retriever.load("retriever"), ["w1 w2", "", "w3"]
    expected = retriever.encode_text(lines)
    for given in (tuple(lines), iter(lines), np.array(lines), np.array(lines, dtype=object), (line for line in lines)):
        assert torch.equal(retriever.encode_text(given), expected)
    assert retriever.encode_text([]).shape == (0, expected.shape[1])
    for size in (0, -1):
        with pytest.raises(InputError, match=f"batch size should be at least 1, but is {size}"):
            retriever.encode_text(lines, batch_size=size)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta"])
def test_a_device_that_is_not_there_is_named(made, device):
    with pytest.raises(InputError, match=rf"device.* {device}"):
        Retriever.load("retriever", device=device)


def test_arrays_of_other_shapes_are_refused(made):
    retriever, index = Retriever.load("retriever"), Index("index")
    features, absent = made.gather(range(4))
    for wrong in ((features[:, 0], absent), (features, absent[:3]), (features, absent[:, 0]), (features[0], absent[0])):
        with pytest.raises(InputError, match=r"encode_images takes features \(I, R, F\) and a padding mask \(I, R\)"):
            retriever.encode_images(*wrong)
    queries = retriever.encode_images(features, absent).numpy()
    for kind in (np.int32, np.uint16, np.int64):
        found = index.search(queries, 1, exclude=np.arange(4, dtype=kind))[1].flatten()
        assert (found >= 0).all() and not (found == torch.arange(4)).any()
    for rows in ([0, 1, 2, 20], [-2, 0, 1, 2]):
        with pytest.raises(InputError, match=r"exclude should have rows 0\.\.19, or −1 for none, but has"):
            index.search(queries, 1, exclude=np.array(rows))
    with pytest.raises(InputError, match=r"exclude should have a row for each of 4 queries, .* of shape \(3,\)"):
        index.search(queries, 1, exclude=np.arange(3))
    queries[1:3, 0] = np.nan
    with pytest.raises(InputError, match=r"2 of 4 hold NaN or infinity, the first number 1\."):
        index.search(queries, 1)


def test_numpy_serves_as_well_as_torch(made):
    retriever, index = Retriever.load("retriever"), Index("index")
    vectors = retriever.encode_images(*made.gather(range(20)))
    np.testing.assert_allclose(vectors.numpy(), index.embeddings, atol=1e-6)
    assert index.search(vectors.numpy()[:2], 1)[1].tolist() == [[0], [1]]


def test_names_are_listed_and_importing_the_package_imports_no_torch():
    assert {"FeatureStore", "Index", "Retriever", "InputError"} <= set(dir(visual_grounding))
    with pytest.raises(AttributeError, match="has no attribute 'Indices'"):
        visual_grounding.Indices  # noqa: B018
    check = "import sys, visual_grounding; assert not {'torch', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
