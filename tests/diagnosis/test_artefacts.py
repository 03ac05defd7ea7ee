"""The scan for NaN: all of a small store, a spread of a large one, bounded memory; room on the disk."""

import tracemalloc
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write_store
from PIL import Image

from visual_grounding.diagnosis.artefacts import Parts, check_index, scan_norms, scan_numbers
from visual_grounding.diagnosis.disk import bytes_needed, check_disk
from visual_grounding.diagnosis.findings import Level, findings_of, ok
from visual_grounding.features.backbones import Preprocessing
from visual_grounding.features.pixels import PixelSource
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images
from visual_grounding.retrieval.index import build_index


def test_scan_finds_every_kind_of_broken_number():
    features = np.ones((10, 2, 3), np.float16)
    features[2, 1, 0], features[5, 0, 2], features[6, 0, 0], features[9, 1, 1] = np.nan, np.inf, -np.inf, np.nan
    features[4] = 0
    features[7] = -0.0
    features[8] = np.finfo(np.float16).max
    assert scan_numbers(features) == (10, [2, 5, 6], 4, 2)


def test_scan_agrees_with_a_naive_loop():
    rng = np.random.default_rng(0)
    features = rng.integers(0, 2**16, (200, 1, 5)).astype(np.uint16).view(np.float16)  # any bits at all
    naive = [row for row in range(200) if not all(np.isfinite(float(number)) for number in features[row, 0])]
    scan = scan_numbers(features)
    assert (scan.bad, scan.bad_count, scan.rows) == (naive[:3], len(naive), 200)


def test_scan_of_a_large_store_looks_at_its_beginning_and_its_end_in_bounded_memory(tmp_path):
    path = tmp_path / "features.npy"
    large = np.lib.format.open_memmap(path, "w+", "float16", (40_000, 1, 1024))  # 80 MB, sparse: all zero
    large[0] = large[-1] = np.nan
    large.flush()
    tracemalloc.start()
    scan = scan_numbers(np.load(path, mmap_mode="r"), limit=20 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert scan.bad == [0, 39_999] and scan.bad_count == 2
    assert 4_000 < scan.rows <= 10_240 + 4_096 and scan.absent == scan.rows - 2
    assert peak < 40 << 20


@pytest.mark.parametrize("number", [np.float16, np.float32])
def test_scan_of_an_index_is_that_of_a_store(number):
    embeddings = np.ones((6, 4), number)
    embeddings[1, 3], embeddings[4, 0], embeddings[2], embeddings[5] = np.nan, -np.inf, -0.0, np.finfo(number).max
    assert scan_numbers(embeddings) == (6, [1, 4], 2, 1)


def test_index_of_pixels_is_compared_with_a_store_by_its_images_alone(tmp_path):
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8), "red").save(tmp_path / name)
    source = PixelSource(open_images(tmp_path), Preprocessing(8, 8), str(tmp_path))
    retriever = SimpleNamespace(  # as much of one as an index asks for
        sha256="0" * 64,
        device="cpu",
        joint_size=2,
        check_store=lambda *_: None,
        encode_images=lambda pixels, mask: torch.tensor([[1.0, 0.0]]).expand(len(pixels), 2),
    )
    build_index(retriever, source, tmp_path / "index")
    parts = Parts(store=FeatureStore(write_store(tmp_path / "store", np.ones((2, 1, 3)), ["a.png", "b.png"])))
    (found,) = check_index(tmp_path / "index", parts, False)
    assert found.text.endswith("index: index of 2 images, 0 of them absent.") and parts.index.made_from is None
    parts = Parts(store=FeatureStore(write_store(tmp_path / "others", np.ones((2, 1, 3)), ["a.png", "c.png"])))
    (found,) = check_index(tmp_path / "index", parts, False)
    assert "index is of other images than" in found.text and parts.index is None


def test_scan_of_an_empty_store():
    assert scan_numbers(np.zeros((0, 1, 4), np.float16)) == (0, [], 0, 0)
    assert scan_norms(np.zeros((0, 4), np.float32)) == {}


def test_scan_of_norms_counts_through_all_blocks_and_leaves_out_what_is_no_number():
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(9000, 512)).astype(np.float32)  # 18 MB, three blocks
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    assert scan_norms(embeddings) == {}
    embeddings[7] *= 1e4
    embeddings[8999] = 3e38  # its norm is infinite in float32
    embeddings[4100] *= 0.99
    embeddings[3, 1], embeddings[5, 0], embeddings[6] = np.nan, np.inf, 0
    found = scan_norms(embeddings)
    np.testing.assert_allclose(list(found.values()), [1e4, 0.99, 3e38 * 512**0.5], rtol=1e-5)
    assert list(found) == [7, 4100, 8999]


def test_check_that_breaks_is_a_finding():
    def check():
        yield ok("first")
        raise KeyError("surprise")

    first, second = findings_of(check, "the thing")
    assert first.level is Level.OK
    assert second.level is Level.WRONG and second.text == "the thing can't be checked: KeyError: 'surprise'"


def test_disk_counts_what_an_interrupted_run_claimed(tmp_path):
    claimed = tmp_path / "out.partial/files"
    claimed.mkdir(parents=True)
    (claimed / "features.npy").write_bytes(b"x" * (1 << 20))
    (finding,) = check_disk("extract", tmp_path / "out", (1 << 20) + (1 << 19))
    assert finding.level is Level.OK
    assert "`extract` needs about 512.0 KiB" in finding.text


@pytest.mark.parametrize("needed", [None, 10**18])
def test_disk_says_what_it_cannot_know_and_what_is_too_much(tmp_path, needed):
    (finding,) = check_disk("index", tmp_path / "deep" / "out", needed)
    if needed is None:
        assert finding.level is Level.NOTE and "How much disk `index` needs isn't known" in finding.text
    else:
        assert finding.level is Level.WRONG and "needs about 888.2 PiB" in finding.text and "too little" in finding.text


def test_disk_refuses_an_output_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    (finding,) = findings_of(partial(check_disk, "index", tmp_path / "file" / "out", 1), "disk")
    assert finding.level is Level.WRONG
    assert f"out can't be written: {tmp_path / 'file'} is no folder. Choose another folder." in finding.text


def test_disk_needs_what_the_next_step_writes():
    parts = Parts(text=["a line"] * 1000)
    assert bytes_needed("retrieve", parts, 0, 8) == round(1.02 * (1000 * 8 * (4 + 2) + 2 * 128))
    assert bytes_needed("index", parts, 0, 8) is None
