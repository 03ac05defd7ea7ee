"""Input that vanishes or shrinks while it is being read: a reason in the list, or a message; never a silent death."""

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from conftest import write_image_ids, write_store
from PIL import Image
from small_retriever import make_retriever, make_sentences, make_store, retrieve_dense
from small_tokenizers import make_tokenizer
from small_vokens import write_vokens

from tests.features.maps import extract_map
from visual_grounding.errors import InputError
from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.backbones import load_backbone
from visual_grounding.features.importers import import_features
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import UnreadableImage, open_images, read_image
from visual_grounding.retrieval.index import Index, build_index

# Each would be killed by SIGBUS, were the file's size not asked for again before it is read.
READS_ON = """
import os, sys
import numpy as np
from pathlib import Path
from visual_grounding.errors import InputError
from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.store import FeatureStore
folder = Path(sys.argv[1])
store = FeatureStore(folder / "store")
arrays = open_arrays(folder / "f.npy", folder / "store/keys.txt")
os.truncate(folder / "store/features.npy", 200)
os.truncate(folder / "f.npy", 300)
for read in (lambda: store.gather(np.array([4000])), lambda: arrays.block(4000, 5000)):
    try:
        read()
    except InputError as error:
        print(error)
"""


def test_a_store_and_an_index_that_lack_less_than_their_header_are_noticed(tmp_path: Path) -> None:
    folder = make_store(tmp_path / "store")
    store = FeatureStore(folder)
    arrays = open_arrays(folder / "features.npy", folder / "keys.txt")
    build_index(make_retriever(tmp_path / "retriever"), store, tmp_path / "index")
    index = Index(tmp_path / "index")
    for path in (folder / "features.npy", tmp_path / "index/embeddings.npy"):
        os.truncate(path, path.stat().st_size - 64)
    for read in (
        lambda: store.gather(np.array([0])),
        lambda: store.absent(np.array([0])),
        lambda: arrays.block(0, 1),
        lambda: index.search(np.zeros((1, index.embeddings.shape[1]), np.float32), 1),
    ):
        with pytest.raises(InputError, match="was changed while it was being read: its array ends"):
            read()


# The same of what is read while training: tables of image ids, their masks, vokens.
LEARNS_ON = """
import os, sys
import numpy as np
from pathlib import Path
from visual_grounding.data.caption_mixture import ImagesOfMixture
from visual_grounding.data.image_tables import load_image_ids
from visual_grounding.data.paired_images import OwnOrOtherImages
from visual_grounding.data.visual_batches import TabledImages
from visual_grounding.data.voken_text import VokenText
from visual_grounding.errors import InputError
from visual_grounding.retrieval.image_ids import TableMask
from visual_grounding.storage.artefact import open_array
from visual_grounding.vokenization.vokens import Vokens

folder = Path(sys.argv[1])
ids, _ = load_image_ids([str(folder / "ids")], 1, [1])
table = TabledImages(ids)
mask = TableMask(*(open_array(folder / f"{n}.npy", s, d) for n, s, d in (
    ("pieces", (5000,), "int32"), ("mask", (5000, 2), "uint8"))), "", 0.1)
text = VokenText.__new__(VokenText)
text.place, text.vokens = "text", Vokens(folder / "vokens")
text.offsets = text.vokens.offsets
class Mixture:
    lines, drawn = [], np.arange(5000)


mixture = ImagesOfMixture(Mixture(), ids)
table.rows(np.array([4000]), [], 1), mask.hidden(4000), text.vokens_at(9000, 9001)
mixture.rows(np.array([4000]), [], 1)
pairs = OwnOrOtherImages(ids, 1, False, "text")
pairs.rows(np.array([4000]), [], 1)
for name in ("ids/ids", "pieces", "mask", "vokens/vokens", "vokens/offsets"):
    os.truncate(folder / f"{name}.npy", 200)
reads = [lambda: table.rows(np.array([4000]), [], 1), lambda: mask.hidden(4000)]
reads += [lambda: mixture.rows(np.array([4000]), [], 1)]
reads += [lambda: pairs.rows(np.array([4000]), [], 1), lambda: pairs.paired(np.array([4000]), 1)]
reads += [lambda: text.vokens_at(9000, 9001), lambda: text.numbers(9000, 9001)]
for read in reads:
    try:
        read()
    except InputError as error:
        print(error)
"""


def save_image(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def test_image_deleted_during_the_run_is_listed_as_missing(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(3):
        save_image(tmp_path / f"images/{number}.png")
    images = open_images(tmp_path / "images")
    (tmp_path / "images/1.png").unlink()
    summary = extract_map(images, load_backbone("scattering"), tmp_path / "store", device="cpu")
    assert (summary.images, summary.unreadable) == (3, 1)
    assert (tmp_path / "store/unreadable.tsv").read_text() == "1.png\tmissing\n"
    assert FeatureStore(tmp_path / "store").features[[0, 2]].any(axis=(1, 2)).all()


def test_tar_cut_short_during_the_run_makes_its_images_unreadable(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("a.png", "b.png"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    images = open_images(tmp_path / "a.tar")
    os.truncate(tmp_path / "a.tar", 512 + len(content))
    assert read_image(images, 0).size == (20, 20)
    with pytest.raises(UnreadableImage, match="empty file"):
        read_image(images, 1)


def test_file_of_one_image_deleted_during_the_run_is_listed_as_missing(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    for name in "ab":
        np.save(tmp_path / f"f/{name}.npy", np.ones(3, np.float32))
    source = open_arrays(tmp_path / "f")
    (tmp_path / "f/b.npy").unlink()
    assert import_features(source, tmp_path / "store").unreadable == 1
    assert (tmp_path / "store/unreadable.tsv").read_text() == "b\tmissing\n"


def test_array_cut_short_under_its_reader_is_told_and_does_not_kill(tmp_path: Path) -> None:
    write_store(tmp_path / "store", np.ones((5000, 1, 6)))
    np.save(tmp_path / "f.npy", np.ones((5000, 6), np.float32))
    done = subprocess.run([sys.executable, "-c", READS_ON, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    first, second = done.stdout.splitlines()
    said = "was changed while it was being read: its array ends"
    assert f"store/features.npy {said} at byte 60128, but the file now at 200. Put it back and run the same" in first
    assert f"f.npy {said} at byte 120128, but the file now at 300." in second
    with pytest.raises(InputError, match=r"features\.npy should be a plain \.npy array, but can't be read"):
        FeatureStore(tmp_path / "store")  # and what the rerun says


def test_tables_masks_and_vokens_cut_short_while_training_are_told(tmp_path: Path) -> None:
    write_image_ids(tmp_path / "ids", np.arange(10_000).reshape(5000, 2) % 9, "0" * 64)
    np.save(tmp_path / "pieces.npy", np.full(5000, 9, np.int32))
    np.save(tmp_path / "mask.npy", np.zeros((5000, 2), np.uint8))
    write_vokens(tmp_path / "vokens", ["a dog runs"] * 5000, make_tokenizer(tmp_path / "tokenizer", "wordpiece"))
    done = subprocess.run([sys.executable, "-c", LEARNS_ON, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    said = done.stdout.splitlines()
    names = ("ids/ids", "pieces", "ids/ids", "ids/ids", "ids/ids", "vokens/vokens", "vokens/offsets")
    for line, name in zip(said, names, strict=True):
        assert f"{name}.npy was changed while it was being read: its array ends" in line


def test_index_that_vanishes_during_retrieval_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = make_retriever(tmp_path / "retriever")
    store = FeatureStore(make_store(tmp_path / "store"))
    build_index(retriever, store, tmp_path / "index")
    index = Index(tmp_path / "index")
    path = tmp_path / "index/embeddings.npy"
    monkeypatch.setattr(
        f"{Index.__module__}.exact_search", lambda *_, **__: pytest.fail("read a file that is cut short")
    )
    os.truncate(path, 130)
    with pytest.raises(
        InputError, match=re.escape(f"{path} was changed while it was being read: its array ends at byte 768")
    ):
        retrieve_dense(retriever, index, make_sentences(), tmp_path / "ids")
    path.unlink()
    with pytest.raises(InputError, match=re.escape(f"{path} vanished while it was being read: No such file")):
        retrieve_dense(retriever, index, make_sentences(), tmp_path / "ids")


# faiss maps its files into memory: each search would be killed.
SEARCHES_ON = """
import os, sys, time
import numpy as np
import torch
from pathlib import Path
from visual_grounding.errors import InputError
from visual_grounding.retrieval.index import Index
index = Index(Path(sys.argv[1]))
queries = torch.ones(3, index.embeddings.shape[1])
index.search(queries, 4)
time.sleep(2)  # faiss reads lists ahead in threads of its own, which nothing guards
os.truncate(Path(sys.argv[1]) / "index.faiss", 5000)
try:
    index.search(queries, 4)
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize(("kind", "choices"), [("flat", {}), ("ivf", {"lists": 3})])
def test_index_of_faiss_cut_short_while_it_is_open_is_told(tmp_path: Path, kind: str, choices: dict[str, int]) -> None:
    pytest.importorskip("faiss")
    features = np.random.default_rng(0).normal(size=(6000, 1, 6))
    store = FeatureStore(write_store(tmp_path / "store", features))
    build_index(make_retriever(tmp_path / "retriever"), store, tmp_path / "index", kind=kind, **choices)
    size = (tmp_path / "index/index.faiss").stat().st_size
    done = subprocess.run([sys.executable, "-c", SEARCHES_ON, tmp_path / "index"], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    said = f"index.faiss was changed while it was being read: its array ends at byte {size}, but the file now at 5000."
    assert said in done.stdout
