"""Scans in half precision: exact search finds the same bit by bit; bounds; what isn't told; what isn't worth it."""

from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from hard_to_search import PRECISIONS, adversaries, collections, numbers, units
from hypothesis import given, settings
from hypothesis import strategies as st
from small_retriever import make_retriever, make_store
from torch import Tensor
from torch.nn.functional import normalize

from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval import search
from visual_grounding.retrieval.half_precision import (
    ROUNDOFF,
    Precisions,
    error_of_scan,
    fast_precision,
    largest_error,
)
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.products import product_of_blas
from visual_grounding.retrieval.search import exact_search, is_worth_rounding, scan, scan_precisions

HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def whatever_is_searched_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "is_worth_rounding", lambda *_: True)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.dtype, int]]:
    """Precisions of scans and their queries, as they run; float64 where all scores are computed."""
    ran: list[tuple[torch.dtype, int]] = []
    in_float64 = search.search_in_float64

    def scanned(*args: Any) -> Any:
        bound = signature(scan).bind(*args).arguments
        ran.append((bound["precision"], len(bound["queries"])))
        return scan(*args)

    def searched(queries: Tensor, *rest: Any) -> Any:
        ran.append((torch.float64, len(queries)))
        return in_float64(queries, *rest)

    monkeypatch.setattr(search, "scan", scanned)
    monkeypatch.setattr(search, "search_in_float64", searched)
    return ran


def check(queries: Tensor, images: Tensor, k: int, precision: torch.dtype, **options: Any) -> None:
    expected = exact_search(queries, images.numpy(), k, precisions=Precisions(torch.float32), **options)
    found = exact_search(queries, images.numpy(), k, precisions=Precisions(precision), **options)
    assert torch.equal(found[1], expected[1])
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("name", adversaries())
def test_exact_search_finds_the_same_in_any_precision(name: str, precision: torch.dtype) -> None:
    queries, images = adversaries()[name]
    exclude = torch.arange(len(queries)) % (len(images) + 1) - 1
    for k, chunk in ((1, None), (3, 100), (8, 260), (40, 33)):
        check(queries, images, k, precision, chunk=chunk, exclude=exclude if k == 3 else None, query_chunk=17)


@settings(max_examples=100, deadline=None)
@given(collections(600), st.integers(1, 12), st.sampled_from([None, 1, 33, 64]), st.booleans(), st.sampled_from(HALVES))
def test_exact_search_finds_the_same_in_any_collection(
    collection, k: int, chunk: int | None, excluding: bool, precision: torch.dtype
) -> None:
    queries, images = collection
    exclude = torch.randint(-1, len(images), (len(queries),), generator=torch.Generator().manual_seed(k))
    check(queries, images, k, precision, chunk=chunk, exclude=exclude if excluding else None, query_chunk=3)


@pytest.mark.parametrize("precision", HALVES)
def test_one_scan_tells_the_best_of_random_images(precision: torch.dtype, scans: list[tuple[torch.dtype, int]]) -> None:
    images, queries = units(9000, 64, seed=1), units(100, 64)
    for k in (1, 8, 24):
        exact_search(queries, images, k, precisions=Precisions(precision))
    assert scans == [(precision, 100)] * 3


def test_what_a_precision_cannot_tell_goes_to_the_next(scans: list[tuple[torch.dtype, int]]) -> None:
    images = units(3000, 64, seed=1)
    images[1000:2000] = images[0] + 1e-4 * numbers(1000, 64, seed=2)  # alike in bfloat16
    images[2000:] = images[1]  # equal
    queries = torch.cat([images[2:7], images[:1], images[1:2], torch.zeros(1, 64)])
    found = exact_search(queries, images, 3, precisions=Precisions(torch.bfloat16))
    # All scores of the empty query are 0, of which no scan could tell that they are the highest ones: it needs none.
    assert scans == [(torch.bfloat16, 7), (torch.float32, 2), (torch.float64, 2)]
    assert found[1][6:].tolist() == [[1, 2000, 2001], [0, 1, 2]]


def test_half_precision_is_given_up_where_it_tells_nothing(scans: list[tuple[torch.dtype, int]]) -> None:
    images = normalize(torch.ones(64) + 0.01 * numbers(3000, 64), dim=1)
    precisions = Precisions(torch.bfloat16)
    for _ in range(2):
        exact_search(images[:1200], images, 8, precisions=precisions)
    assert [each for each in scans if each[0] != torch.float64] == [
        (torch.bfloat16, 1200), (torch.float32, 1200), (torch.float32, 1200)
    ]  # fmt: skip


def test_half_precision_is_kept_where_it_tells_of_half_the_queries() -> None:
    precisions = Precisions(torch.float16)
    precisions.note(torch.float16, 1000, 1000)  # too few to judge by
    precisions.note(torch.float32, 9000, 9000)  # of which nothing is learned
    assert precisions.worth_it == [torch.float16, torch.float32]
    precisions.note(torch.float16, 1000, 0)
    assert precisions.worth_it == [torch.float16, torch.float32]
    precisions.note(torch.float16, 0, 1)
    assert precisions.worth_it == [torch.float32] == Precisions(torch.float32).worth_it


def test_a_product_of_float32_is_scanned_in_float32(scans: list[tuple[torch.dtype, int]]) -> None:
    exact_search(units(5, 16), units(500, 16), 2, precisions=Precisions(torch.bfloat16), product=product_of_blas)
    assert scans == [(torch.float32, 5)]


def test_what_is_worth_rounding_by_hand() -> None:
    """1,024 images for a candidate, 2^17 numbers, and 64 queries."""

    def is_worth(queries: int, images: int, size: int, count: int) -> bool:
        return is_worth_rounding(torch.empty(queries, size), torch.empty(images, size), count)

    assert is_worth(64, 32 * 1024, 128, 32)
    assert not is_worth(63, 32 * 1024, 128, 32) and not is_worth(64, 32 * 1024, 127, 32)
    assert not is_worth(64, 32 * 1024, 128, 33) and not is_worth(64, 32 * 1024 - 1, 999, 32)


def test_many_queries_of_many_images_are_scanned_in_what_is_fast(
    scans: list[tuple[torch.dtype, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "is_worth_rounding", is_worth_rounding)
    monkeypatch.setattr(search, "fast_precision", lambda device: torch.bfloat16)
    images = units(24 * 1024, 160, seed=1)
    for queries, count in ((63, 4), (64, 4), (64, 5)):  # 24 and 26 candidates
        exact_search(images[:queries], images, count, largest_norm=1.0)
    assert scans == [(torch.float32, 63), (torch.bfloat16, 64), (torch.float32, 64)]


def test_products_in_half_precision_have_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN keeps something for each number of queries that it has seen."""
    shapes, offered, offer = set(), set(), search._Best.offer

    def product(queries: Tensor, images: Tensor, memory: Tensor) -> Tensor:
        shapes.add((len(queries), len(images), *memory.shape))
        return product_of_blas(queries, images, memory)

    monkeypatch.setattr(search, "product_for", lambda queries: product)
    monkeypatch.setattr(
        search._Best, "offer", lambda self, found, at: offered.add(len(found)) or offer(self, found, at)
    )
    for queries in (1, 63, 64, 65, 130):
        found = scan(units(130, 8)[:queries], units(300, 8, seed=1), 20, 200, 100, precision=torch.bfloat16)
        assert [len(each) for each in found] == [queries] * 2
    assert shapes == {(count, images, count, images) for count in (64, 128) for images in (200, 100)}
    assert offered == {1, 63, 64, 65, 100, 30}


def test_an_index_remembers_what_was_worth_it(tmp_path, scans: list[tuple[torch.dtype, int]], monkeypatch) -> None:
    monkeypatch.setattr(search, "fast_precision", lambda device: torch.bfloat16)
    monkeypatch.setattr(search, "_ROUNDED_MARGIN", 0)  # 12 candidates of 20 images
    retriever, store = make_retriever(tmp_path / "retriever"), FeatureStore(make_store(tmp_path / "store"))
    build_index(retriever, store, tmp_path / "index")
    embeddings = np.load(tmp_path / "index/embeddings.npy", mmap_mode="r+")
    embeddings[5:] = embeddings[5]
    embeddings.flush()
    index = Index(tmp_path / "index")
    queries = torch.from_numpy(embeddings[5:6].copy()).repeat(1100, 1)
    for _ in range(2):
        assert (index.search(queries, 2)[1] == torch.tensor([5, 6])).all()
    kinds = [precision for precision, _ in scans if precision != torch.float64]
    assert kinds == [torch.bfloat16, torch.float32, torch.float32]


def test_precisions_are_the_processors_and_of_a_gpu_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "fast_precision", lambda device: torch.float16)
    assert scan_precisions("cpu").worth_it == [torch.float16, torch.float32]
    assert scan_precisions("cuda").worth_it == [torch.float32]


def test_largest_error_by_hand() -> None:
    """bfloat16 has 8 bits: 1 + 2⁻⁹ becomes 1, 3 stays. So the scan has 3 for 3 + 3·2⁻⁹."""
    norm, none, loss = torch.tensor([3.0]), torch.zeros(1), torch.tensor(2.0**-9)
    error = float(largest_error(norm, none, 1 + loss, loss, 1, torch.bfloat16))
    assert 3 * 2.0**-9 < error < 1.01 * 3 * 2.0**-9
    # In float32 nothing is lost before the product: 1 + 8 roundings of it, and what may be lost as 0.
    error = float(largest_error(norm, none, 1 + loss, none, 1, torch.float32))
    assert error == pytest.approx(1.001 * 9 * 2.0**-24 * 3 * (1 + 2.0**-9), rel=1e-5)
    assert float(largest_error(none, none, 1 + loss, none, 1, torch.float32)) == 2.0**-100


def test_error_of_a_scan_by_hand() -> None:
    """Of images no more than their norm is known: in bfloat16 each may be off by 2⁻⁸ of it, in float16 by 2⁻¹¹."""
    query = torch.tensor([[3.0, 4.0]])  # 5 long, and the same in half precision
    assert float(error_of_scan(query, 2.0, torch.bfloat16)) == pytest.approx(5 * 2 * 2.0**-8, rel=1e-2)
    assert float(error_of_scan(query, 2.0, torch.float16)) == pytest.approx(5 * 2 * 2.0**-11, rel=2e-2)
    # 1 + 2⁻⁹ becomes 1: the query's own loss is measured.
    query = torch.tensor([[1 + 2.0**-9]])
    assert float(error_of_scan(query, 2.0, torch.bfloat16)) == pytest.approx(2 * 2.0**-9 + 2 * 2.0**-8, rel=1e-2)
    assert float(error_of_scan(query, 2.0, torch.float32)) == pytest.approx(3 * 2.0**-24 * 2, rel=1e-2)
    # Below 2⁻¹⁴ float16 has steps of 2⁻²⁴: 0.75 of one becomes one, and 100 times 0.25 of one is lost.
    assert float(error_of_scan(torch.tensor([[100.0]]), 0.75 * 2.0**-24, torch.float16)) > 25 * 2.0**-24
    for precision, long in ((torch.bfloat16, 2.0**21), (torch.float16, 2.0**8)):
        assert error_of_scan(query * long, 1.0, precision).isinf().all()
        assert error_of_scan(query, long, precision).isinf().all()


def test_what_a_scan_tells_by_hand() -> None:
    """In bfloat16 a score of L may have been L · (1 + 2⁻⁸) before it was written, and be off by 2⁻⁸ of |q||x| = 1."""
    query, images = torch.ones(1, 1), torch.tensor([[1.0], [0.99], [0.5]])

    def told(last: float, precision: torch.dtype) -> bool:
        found = torch.tensor([[1.0, last]]), torch.tensor([[0, 1]])
        return not search._rerank_what_is_told(query, images, *found, 1, None, 1.0, precision)[2]

    assert told(1 - 2.05 * 2.0**-8, torch.bfloat16) and not told(1 - 1.9 * 2.0**-8, torch.bfloat16)
    assert told(1 - 2.05 * 2.0**-11, torch.float16) and not told(1 - 1.9 * 2.0**-11, torch.float16)
    assert told(1 - 1e-6, torch.float32) and not told(1 - 1e-7, torch.float32)
    # The order of scores below 0 isn't theirs in half precision.
    assert [told(0.0, precision) for precision in PRECISIONS] == [False, False, True]
    assert [told(0.01, precision) for precision in PRECISIONS] == [True, True, True]


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("size", [3, 64, 700])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 30])
def test_scores_of_a_scan_are_as_near_as_the_bound_says(precision: torch.dtype, size: int, scale: float) -> None:
    queries, images = units(64, size) * scale, units(300, size, seed=1)
    images[:64] = queries / scale  # as large as a product can be
    scores, rows = scan(queries, images, 300, precision=precision)
    true = (queries.double() @ images.double().T).gather(1, rows)
    above = scores > 0
    error = error_of_scan(queries, 1.0001, precision).unsqueeze(1) + ROUNDOFF[precision] * scores.abs()
    assert above.any() and ((scores - true).abs() <= error)[above].all()
    if scale >= 1 or precision == torch.bfloat16:  # float16 may lose small numbers
        assert ((scores - true).abs() > 0.05 * error)[above].any()  # it isn't far too large either


def test_candidates_of_a_scan_in_half_precision_are_the_best_where_the_last_is_positive() -> None:
    queries, images = units(30, 24), units(3000, 24, seed=1)
    for precision in HALVES:
        similarity = queries.to(precision) @ images.to(precision).T
        for chunk in (100, 1040, 3000):
            scores, rows = scan(queries, images.numpy(), 20, chunk, 7, precision=precision)
            assert (scores[:, -1] > 0).all()
            assert torch.equal(scores, similarity.float().topk(20, dim=1).values)
            assert torch.equal(similarity.gather(1, rows).float(), scores)


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 150, 299])
def test_row_that_is_no_number_is_refused(value: float, row: int) -> None:
    images = units(300, 8).numpy()
    images[row, 3] = value
    for precision in PRECISIONS:
        with pytest.raises(search.NonFiniteRow, match=f"row {row} of the embeddings"):
            exact_search(units(4, 8), images, 2, chunk=100, largest_norm=1.0, precisions=Precisions(precision))


def test_row_that_is_no_number_is_refused_though_it_is_nobodys_candidate() -> None:
    images, queries = units(300, 8).numpy(), units(4, 8)
    images[150, 3] = -np.inf
    queries[:, 3] = queries[:, 3].abs()
    for precision in PRECISIONS:
        with pytest.raises(search.NonFiniteRow, match="row 150 of the embeddings"):
            exact_search(queries, images, 2, chunk=100, largest_norm=1.0, precisions=Precisions(precision))


@pytest.mark.parametrize("chunk", [3, 7, 20])
def test_scores_that_are_infinite_in_half_precision_alone_are_found(chunk: int) -> None:
    images, queries = units(20, 4), units(5, 4, seed=1)
    images[::2, 0] = -3.4e38
    for precision in HALVES:
        check(queries, images, 12, precision, chunk=chunk)


def test_fast_precision_is_what_the_processor_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fast_precision(torch.device("cuda")) == torch.float16
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False, raising=False)
    assert fast_precision(torch.device("cpu")) == torch.float32
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert fast_precision(torch.device("cpu")) == torch.bfloat16
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")  # as in another torch
    assert fast_precision(torch.device("cpu")) == torch.float32
