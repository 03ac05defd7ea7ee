"""The nearest image: `exact_search` bit by bit, in every precision of the scan; its bound; what it doesn't write."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hard_to_search import PRECISIONS, adversaries, collections, numbers, units
from hypothesis import given, settings
from hypothesis import strategies as st
from small_retriever import make_retriever, make_sentences, make_store
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval import nearest as module
from visual_grounding.retrieval.half_precision import ROUNDOFF, SMALLEST, comparable, largest_error
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.nearest import NearestImage, nearest
from visual_grounding.retrieval.search import NonFiniteRow, exact_search

SMALL = module._Sizes(images=256, queries=16, product=96, scores=96 * 7, kept=2**20)  # several of each


def naive_nearest(queries: Tensor, embeddings: Tensor) -> tuple[list[float], list[int]]:
    """Score every image, round once to float32, take the highest and of equal ones the first."""
    scores, ids = [], []
    for query in queries.double().numpy():
        best, row = 0.0, -1
        for number, image in enumerate(embeddings.double().numpy()):
            score = float(np.float32(query @ image))
            if image.any() and (row < 0 or score > best):
                best, row = score, number
        scores.append(best)
        ids.append(row)
    return scores, ids


def check(queries: Tensor, embeddings: Tensor, precision: torch.dtype, sizes: Any = None, device: str = "cpu") -> None:
    """Bit by bit what exact search finds, at the first call and at the next."""
    scores, ids = exact_search(queries, embeddings.numpy(), 1)
    finder = NearestImage(embeddings.numpy(), device, precision)
    if sizes is not None:
        finder._sizes = sizes
    for _ in range(2):
        found = finder.of(queries)
        assert found[0].dtype == torch.float32 and found[1].dtype == torch.int64
        assert torch.equal(found[1], ids[:, 0])
        assert torch.equal(found[0], scores[:, 0])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", adversaries())
def test_nearest_image_is_that_of_exact_search_bit_by_bit(name: str, precision: torch.dtype) -> None:
    queries, images = adversaries()[name]
    check(queries, images, precision)
    check(queries, images, precision, SMALL)


@settings(max_examples=100, deadline=None)
@given(collections(300), st.sampled_from(PRECISIONS), st.booleans())
def test_nearest_image_is_that_of_exact_search_for_any_collection(collection, precision, small: bool) -> None:
    check(*collection, precision, SMALL if small else None)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nearest_image_agrees_with_its_naive_twin(precision: torch.dtype) -> None:
    for name in ("few small integers", "absent and negative", "empty queries"):
        queries, images = adversaries()[name]
        queries = queries[:12]
        found = NearestImage(images, "cpu", precision).of(queries)
        assert (found[0].tolist(), found[1].tolist()) == naive_nearest(queries, images), name


def test_nearest_image_by_hand() -> None:
    # Scores of the first query: -1, absent, 2, 2; of the second: -1, absent, -4, 0; the third is empty.
    images = torch.tensor([[-1.0, 1.0], [0.0, 0.0], [2.0, 4.0], [2.0, 0.0]])
    scores, ids = nearest(torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.0, 0.0]]), images.numpy())
    assert (scores.tolist(), ids.tolist()) == ([2.0, 0.0, 0.0], [2, 3, 0])


@pytest.mark.parametrize(("queries", "images"), [(0, 5), (2, 0)])
def test_nearest_image_of_nothing_is_none(queries: int, images: int) -> None:
    scores, ids = nearest(torch.ones(queries, 2), np.ones((images, 2), dtype=np.float32))
    assert scores.tolist() == [0.0] * queries and ids.tolist() == [-1] * queries


def blocks_near(scores: dict[int, float], best: float, error: float, precision: torch.dtype) -> list[int] | None:
    """Blocks that could hold the nearest image of one query; None where it's undecided."""
    maxima = torch.full((64, 1), -8.0, dtype=precision)
    maxima[list(scores)] = torch.tensor(list(scores.values()), dtype=precision).unsqueeze(1)
    undecided = torch.zeros(1, dtype=torch.bool)
    _, blocks = module._could_hold_nearest(
        comparable(maxima), torch.tensor([best]), torch.tensor([error]), precision, undecided
    )
    return None if undecided else sorted(blocks.tolist())


def test_blocks_that_could_hold_the_nearest_image_by_hand() -> None:
    none = float("-inf")
    # float32: who has 8 in the scan has 7.5 at least, and so may who has 7 in the scan.
    scores = {0: 8.0, 31: 7.01, 40: 6.99, 63: 7.01}
    assert blocks_near(scores, none, 0.5, torch.float32) == [0, 31, 63]
    # An image that is known to have 7.6 leaves those that may have as much.
    assert blocks_near({**scores, 1: 7.11}, 7.6, 0.5, torch.float32) == [0, 1]
    # bfloat16 has 8 bits: 8 may be 8 - 2⁻⁵ before it is written. So the bound is 8 - 2⁻⁵ - 1/4 - 1/4 = 7.46875.
    assert blocks_near({0: 8.0, 1: 7.46875, 2: 7.4375, 40: 7.5}, none, 0.25, torch.bfloat16) == [0, 1, 40]
    # Below 2⁻¹⁴ float16 has steps of 2⁻²⁴.
    small = {0: 2.0**-20, 1: 2.0**-20 - 2.0**-24, 2: 2.0**-20 - 2.0**-23}
    assert blocks_near(small, none, 0.0, torch.float16) == [0, 1]
    # In half precision the bound has to be above 0, in float32 it has only to be a number.
    assert blocks_near({0: 1.0}, none, 0.75, torch.bfloat16) is None
    assert blocks_near({0: 1.0}, none, 0.75, torch.float32) == [0]
    for unknown in (float("inf"), float("nan")):
        assert blocks_near({0: 1.0}, 0.5, unknown, torch.float32) is None
        assert blocks_near({0: unknown}, none, 0.5, torch.float32) is None


@pytest.mark.parametrize("count", [32, 33])
def test_query_with_too_many_blocks_is_undecided(count: int) -> None:
    assert (blocks_near({block: 8.0 for block in range(count)}, 0.0, 0.1, torch.float32) is None) == (count > 32)


def test_undecided_queries_take_no_memory() -> None:
    maxima, undecided = torch.ones(64 * 32, 8), torch.zeros(8, dtype=torch.bool)
    with Watch() as watch:
        query, _ = module._could_hold_nearest(maxima, torch.zeros(8), torch.zeros(8), torch.float32, undecided)
    assert not len(query) and undecided.all() and watch.largest == maxima.numel()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("size", [3, 64, 700])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_scores_of_a_scan_are_as_near_as_the_bound_says(precision: torch.dtype, size: int, scale: float) -> None:
    queries, images = units(64, size) * scale, units(300, size, seed=1)
    images[:64] = queries  # as large as a product can be
    chunk = next(NearestImage(images, "cpu", precision)._chunks(precision))
    rounded = queries.to(precision)
    loss = torch.linalg.vector_norm(queries - rounded.float(), dim=1)
    norm = torch.linalg.vector_norm(queries, dim=1)
    error = largest_error(norm, loss, chunk.norm, chunk.loss, size, precision)
    written = (rounded @ chunk.rounded.T).double()
    true = queries.double() @ images.double().T
    rounding = ROUNDOFF[precision] * written.abs() + SMALLEST[precision]
    assert ((written - true).abs() <= error.unsqueeze(1) + rounding).all()
    if precision == torch.bfloat16:
        assert ((written - true).abs() > 0.02 * error.unsqueeze(1)).any()  # it isn't far too large either


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.dtype, int]]:
    """Precisions of scans and their queries, as they run; float64 where all scores are computed."""
    ran, scan, in_float64 = [], NearestImage._scan, module.search_in_float64

    def scanned(self, queries: Tensor, precision: torch.dtype) -> Any:
        ran.append((precision, len(queries)))
        return scan(self, queries, precision)

    def searched(queries: Tensor, *rest: Any) -> Any:
        ran.append((torch.float64, len(queries)))
        return in_float64(queries, *rest)

    monkeypatch.setattr(NearestImage, "_scan", scanned)
    monkeypatch.setattr(module, "search_in_float64", searched)
    return ran


def test_one_scan_tells_the_nearest_of_random_images(scans: list[tuple[torch.dtype, int]]) -> None:
    for precision in PRECISIONS:
        NearestImage(units(5000, 64, seed=1), "cpu", precision).of(units(100, 64))
    assert scans == [(precision, 100) for precision in PRECISIONS]


def test_what_a_precision_cannot_tell_goes_to_the_next(scans: list[tuple[torch.dtype, int]]) -> None:
    images = units(3000, 64, seed=1)
    images[1000:2000] = images[0] + 1e-4 * numbers(1000, 64, seed=2)  # alike in bfloat16
    images[2000:] = images[1]  # equal
    queries = torch.cat([images[2:7], images[:1], images[1:2], torch.zeros(1, 64)])  # the last needs none
    NearestImage(images, "cpu", torch.bfloat16).of(queries)
    assert scans == [(torch.bfloat16, 7), (torch.float32, 2), (torch.float64, 1)]


def test_half_precision_is_given_up_where_it_tells_nothing(scans: list[tuple[torch.dtype, int]]) -> None:
    images = normalize(torch.ones(64) + 0.01 * numbers(3000, 64), dim=1)
    finder = NearestImage(images, "cpu", torch.bfloat16)
    for _ in range(2):
        finder.of(images[:1200])
    assert [each for each in scans if each[0] != torch.float64] == [
        (torch.bfloat16, 1200), (torch.float32, 1200), (torch.float32, 1200)
    ]  # fmt: skip


class Watch(TorchDispatchMode):
    """Keeps the size of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.largest = max([self.largest, *(leaf.numel() for leaf in tree_leaves(found) if isinstance(leaf, Tensor))])
        return found


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_scores_are_never_all_in_memory(precision: torch.dtype) -> None:
    queries, images = units(2048, 8), units(4096, 8, seed=1)
    finder = NearestImage(images.numpy(), "cpu", precision)
    finder._sizes = module._Sizes(4096, 2048, 1024, 2**16, 2**20)
    with Watch() as watch:
        finder.of(queries)
    assert watch.largest == 2048 * 4096 // 16


def test_copies_beyond_the_limit_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    images, queries = units(300, 8, seed=1), units(5, 8)
    read, chunks_of = [], module.chunks_of
    monkeypatch.setattr(module, "chunks_of", lambda *args: read.append(args[1]) or chunks_of(*args))
    for kept, times in ((2**20, 1), (300 * 8 * 6 - 1, 2)):
        monkeypatch.setitem(module._SIZES, "cpu", module._Sizes(100, 100, 32, 64, kept))
        finder = NearestImage(images, "cpu", torch.bfloat16)
        found = [finder.of(queries) for _ in range(2)]
        assert torch.equal(found[0][1], found[1][1]) and finder.keeps == (times == 1)
        assert len(read) == times
        read.clear()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 150, 299])
def test_row_that_is_no_number_is_refused(precision: torch.dtype, value: float, row: int) -> None:
    images = units(300, 8).numpy()
    images[row, 3] = value
    for queries in (units(4, 8), torch.zeros(1, 8)):
        with pytest.raises(NonFiniteRow, match=f"row {row} of the embeddings"):
            NearestImage(images, "cpu", precision).of(queries)


def test_large_numbers_whose_sum_is_infinite_are_numbers() -> None:
    images = np.full((40, 4), 1e38, dtype=np.float32)
    for precision in PRECISIONS:
        scores, ids = NearestImage(images, "cpu", precision).of(torch.full((1, 4), 0.5))
        assert ids.tolist() == [0] and scores.isfinite().all()


def test_precision_that_was_chosen_for_training_stays() -> None:
    cuda = torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("medium")
    try:
        nearest(units(2, 8), units(30, 8).numpy())
        assert torch.get_float32_matmul_precision() == "medium"
        assert cuda.allow_fp16_reduced_precision_reduction and cuda.allow_bf16_reduced_precision_reduction
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("kind", ["exact", "flat", "ivf"])
def test_index_of_any_kind_finds_the_nearest_image(tmp_path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind != "exact":
        pytest.importorskip("faiss")
    retriever, store = make_retriever(tmp_path / "retriever"), FeatureStore(make_store(tmp_path / "store"))
    build_index(retriever, store, tmp_path / "index", kind=kind, **({"lists": 2} if kind == "ivf" else {}))
    index = Index(tmp_path / "index")
    queries = retriever.encode_text(make_sentences())
    expected = index.search_exactly(queries, 1)
    for _ in range(2):
        scores, ids = index.nearest(queries)
        assert torch.equal(scores, expected[0][:, 0]) and torch.equal(ids, expected[1][:, 0])
    if kind == "exact":
        monkeypatch.setattr(Index, "search_exactly", lambda *_: pytest.fail("is slower"))
        scores, ids = index.search(queries, 1)
        assert torch.equal(scores, expected[0]) and torch.equal(ids, expected[1])


def test_index_that_is_cut_short_or_holds_no_numbers_is_refused(tmp_path) -> None:
    retriever, store = make_retriever(tmp_path / "retriever"), FeatureStore(make_store(tmp_path / "store"))
    build_index(retriever, store, tmp_path / "index")
    path, queries = tmp_path / "index/embeddings.npy", retriever.encode_text(["w1"])
    embeddings = np.load(path, mmap_mode="r+")
    embeddings[13, 3] = np.nan
    embeddings.flush()
    index = Index(tmp_path / "index")
    message = f"{path} should hold unit vectors, but row 13 (image13.jpg) holds NaN or infinity"
    with pytest.raises(InputError, match=re.escape(message)):
        index.nearest(queries)
    with pytest.raises(InputError, match=re.escape(message)):
        index.search(queries, 1)
    with open(path, "r+b") as file:
        file.truncate(130)
    with pytest.raises(
        InputError, match=re.escape(f"{path} was changed while it was being read: its array ends at byte 768")
    ):
        index.nearest(queries)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", adversaries())
def test_nearest_image_is_that_of_exact_search_on_a_gpu(name: str, precision: torch.dtype) -> None:
    queries, images = adversaries()[name]
    check(queries, images, precision, device="cuda")
    check(queries, images, precision, SMALL, device="cuda")
