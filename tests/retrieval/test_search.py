"""Exact search: a naive twin with many ties, chunks, absent and excluded images, rounding, faiss."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from visual_grounding.retrieval import search
from visual_grounding.retrieval.products import Product, product_of_blas, product_of_numpy, product_of_onednn
from visual_grounding.retrieval.search import exact_search, top_k


def naive_search(
    queries: np.ndarray, embeddings: np.ndarray, k: int, exclude: list[int] | None = None
) -> tuple[list[list[float]], list[list[int]]]:
    """Score every image, round once to float32, sort by score and row."""
    all_scores, all_ids = [], []
    for q, query in enumerate(queries):
        found = [
            (-float(np.float32(query.astype(np.float64) @ image.astype(np.float64))), row)
            for row, image in enumerate(embeddings)
            if image.any() and (exclude is None or exclude[q] != row)
        ]
        best = sorted(found)[:k]
        filler = k - len(best)
        all_scores.append([-score for score, _ in best] + [0.0] * filler)
        all_ids.append([row for _, row in best] + [-1] * filler)
    return all_scores, all_ids


def small_integers(shape: tuple[int, int], seed: int, values: int = 2) -> np.ndarray:
    """Inner products of small integers are exact in float32, so ties are ties."""
    return np.random.default_rng(seed).integers(-values, values + 1, shape).astype(np.float32)


@pytest.mark.parametrize("k", [1, 3, 8, 40])
@pytest.mark.parametrize("chunk", [7, 64, 700, 10_000])
def test_exact_search_agrees_with_its_naive_twin_when_most_scores_are_tied(k: int, chunk: int) -> None:
    queries, embeddings = small_integers((9, 3), 0), small_integers((1500, 3), 1)
    exclude = [-1, 0, 1, 699, 700, 1499, 5, 64, 63]
    assert len(np.unique(queries @ embeddings.T)) < 30  # many ties, many zero rows
    for excluded in (None, exclude):
        tensor = None if excluded is None else torch.tensor(excluded)
        scores, ids = exact_search(torch.from_numpy(queries), embeddings, k, chunk=chunk, exclude=tensor, query_chunk=4)
        expected_scores, expected_ids = naive_search(queries, embeddings, k, excluded)
        assert ids.tolist() == expected_ids
        assert scores.tolist() == expected_scores


@pytest.mark.parametrize("product", [product_of_blas, product_of_numpy, product_of_onednn])
def test_product_of_a_scan_changes_nothing_that_is_found(product: Product) -> None:
    queries, embeddings = small_integers((9, 3), 0), small_integers((1500, 3), 1)
    exclude = [-1, 0, 1, 699, 700, 1499, 5, 64, 63]
    found = exact_search(
        torch.from_numpy(queries), embeddings, 8, chunk=64, exclude=torch.tensor(exclude), product=product
    )
    assert [part.tolist() for part in found] == list(naive_search(queries, embeddings, 8, exclude))
    embeddings[1400, 1] = np.nan
    with pytest.raises(search.NonFiniteRow, match="row 1400 "):
        exact_search(torch.from_numpy(queries), embeddings, 8, chunk=64, product=product)


def test_exact_search_gives_the_lowest_rows_when_all_images_are_the_same() -> None:
    embeddings = np.ones((5000, 2), dtype=np.float32)
    _, ids = exact_search(torch.ones(3, 2), embeddings, 4, chunk=999)
    assert ids.tolist() == [[0, 1, 2, 3]] * 3


def test_exact_search_fills_up_with_no_image_when_the_collection_is_too_small() -> None:
    embeddings = np.array([[0, 0], [1, 0], [0, 2]], dtype=np.float32)  # row 0 is absent
    scores, ids = exact_search(torch.tensor([[1.0, 1.0], [-1.0, 0.0]]), embeddings, 4)
    assert ids.tolist() == [[2, 1, -1, -1], [2, 1, -1, -1]]
    assert scores.tolist() == [[2.0, 1.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]]


@pytest.mark.parametrize(("queries", "images"), [(0, 5), (2, 0)])
def test_exact_search_of_nothing_finds_nothing(queries: int, images: int) -> None:
    scores, ids = exact_search(torch.ones(queries, 2), np.ones((images, 2), dtype=np.float32), 3)
    assert scores.shape == ids.shape == (queries, 3)
    assert (ids == (-1 if not images else ids)).all()


def test_exact_search_reads_a_memory_mapped_index_and_any_chunk_gives_the_same(tmp_path) -> None:
    generator = np.random.default_rng(2)
    np.save(tmp_path / "e.npy", generator.normal(size=(1000, 16)).astype(np.float32))
    embeddings = np.load(tmp_path / "e.npy", mmap_mode="r")
    queries = torch.from_numpy(generator.normal(size=(20, 16)).astype(np.float32))
    whole = exact_search(queries, np.array(embeddings), 8)[1]
    assert all(torch.equal(exact_search(queries, embeddings, 8, chunk=chunk)[1], whole) for chunk in (8, 100, 640))


def test_top_k_agrees_with_a_stable_sort_when_ties_straddle_the_last_place() -> None:
    scores = torch.from_numpy(small_integers((200, 33), 3))
    for k in (1, 5, 32, 33):
        values, columns = top_k(scores, k)
        expected, order = scores.sort(dim=1, descending=True, stable=True)
        assert torch.equal(columns, order[:, :k]) and torch.equal(values, expected[:, :k])


def test_candidates_of_faiss_that_are_all_there_are_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fills up with −1 and −∞ where fewer images are there."""
    monkeypatch.setattr(search, "search_in_float64", lambda *_: pytest.fail("isn't needed"))
    embeddings = torch.zeros(40, 2)
    embeddings[5] = torch.tensor([0.6, 0.8])
    candidates = torch.tensor([[0.6, float("-inf")]]), torch.tensor([[5, -1]])
    scores, ids = search.rerank_exactly(torch.tensor([[1.0, 0.0]]), embeddings, *candidates, 1)
    assert (ids.tolist(), scores.tolist()) == ([[5]], [[pytest.approx(0.6)]])


def test_top_k_takes_what_is_no_number_for_the_highest() -> None:
    infinite, nan = float("inf"), float("nan")
    values, columns = top_k(torch.tensor([[nan, 1.0, infinite, infinite, infinite, -nan, 2.0]]), 4)
    assert sorted(columns.flatten().tolist()) == [0, 2, 3, 5] and values.isnan().sum() == 2


def test_exact_search_agrees_with_faiss() -> None:
    faiss = pytest.importorskip("faiss")
    generator = np.random.default_rng(4)
    embeddings = generator.normal(size=(3000, 24)).astype(np.float32)
    queries = generator.normal(size=(50, 24)).astype(np.float32)
    index = faiss.IndexFlatIP(24)
    index.add(embeddings)
    expected_scores, expected_ids = index.search(queries, 8)
    scores, ids = exact_search(torch.from_numpy(queries), embeddings, 8, chunk=1024)
    assert ids.tolist() == expected_ids.tolist()
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


@st.composite
def collections(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int, list[int]]:
    """Queries, images with copies and absent ones, k, chunk, excluded rows."""
    size, images, queries = draw(st.integers(1, 5)), draw(st.integers(1, 400)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    distinct = rng.normal(size=(draw(st.integers(1, images)), size))
    if draw(st.booleans()):
        distinct = distinct.round()  # ties between different images, zero rows
    embeddings = distinct[rng.integers(0, len(distinct), images)].astype(np.float32)
    embeddings[rng.random(images) < draw(st.sampled_from([0.0, 0.1, 0.9]))] = 0
    excluded = rng.integers(-1, images, queries).tolist()
    text = rng.normal(size=(queries, size)).round(draw(st.sampled_from([0, 9]))).astype(np.float32)
    return text, embeddings, draw(st.integers(1, 12)), draw(st.sampled_from([1, 33, 64, 4096])), excluded


@settings(max_examples=60, deadline=None)
@given(collections(), st.booleans())
def test_exact_search_agrees_with_its_naive_twin_for_any_collection(collection, exclude: bool) -> None:
    text, embeddings, k, chunk, excluded = collection
    rows = torch.tensor(excluded) if exclude else None
    scores, ids = exact_search(torch.from_numpy(text), embeddings, k, chunk=chunk, exclude=rows, query_chunk=2)
    expected_scores, expected_ids = naive_search(text, embeddings, k, excluded if exclude else None)
    assert ids.tolist() == expected_ids
    assert scores.tolist() == expected_scores


def vectorised_twin(
    queries: np.ndarray, embeddings: np.ndarray, k: int, exclude: list[int]
) -> tuple[list[list[float]], list[list[int]]]:
    """`naive_search` for collections of many rows."""
    scores = (queries.astype(np.float64) @ embeddings.astype(np.float64).T).astype(np.float32)
    scores[:, ~embeddings.any(axis=1)] = -np.inf
    for q, row in enumerate(exclude):
        if row >= 0:
            scores[q, row] = -np.inf
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(scores, ids, axis=1)
    nothing = found == -np.inf
    return np.where(nothing, 0, found).tolist(), np.where(nothing, -1, ids).tolist()


@st.composite
def tied_collections(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int | None, list[int]]:
    """Queries, images of few kinds in thousands of rows, k, chunk, excluded rows where they hurt."""
    images = 4096 * draw(st.integers(1, 2)) + draw(st.sampled_from([-1, 0, 1, 15, 16, 17, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = small_integers((draw(st.integers(1, 4)), 3), draw(st.integers(0, 99)))
    embeddings = kinds[rng.integers(0, len(kinds), images)]
    queries = small_integers((5, 3), draw(st.integers(0, 99)))
    for row in draw(st.lists(st.sampled_from([0, 1, 4095, 4096, images - 2, images - 1]), max_size=4)):
        embeddings[min(row, images - 1)] = (
            draw(st.sampled_from([0, 1, 5])) * queries[0]
        )  # absent, or better than others
    chunk = draw(st.sampled_from([None, 1000, images - 1, images - 16, images - 17]))
    _, best = vectorised_twin(queries, embeddings, 1, [-1] * 5)
    few = st.sampled_from([0, 4094, images - 1])
    exclude = [draw(st.one_of(st.just(row), st.just(-1), few)) for (row,) in best]
    return queries, embeddings, draw(st.sampled_from([1, 2, 8])), chunk, exclude


@settings(max_examples=80, deadline=None)
@given(tied_collections())
def test_exact_search_agrees_with_its_twin_on_tails_ties_of_thousands_and_exclusion_in_the_second_search(found) -> None:
    queries, embeddings, k, chunk, exclude = found
    rows = torch.tensor(exclude)
    scores, ids = exact_search(torch.from_numpy(queries), embeddings, k, chunk=chunk, exclude=rows, query_chunk=3)
    assert [scores.tolist(), ids.tolist()] == list(vectorised_twin(queries, embeddings, k, exclude))


def test_twins_agree() -> None:
    queries, embeddings = small_integers((4, 3), 0), small_integers((200, 3), 1)
    exclude = [-1, 0, 199, 7]
    assert vectorised_twin(queries, embeddings, 9, exclude) == naive_search(queries, embeddings, 9, exclude)


def test_exact_search_orders_what_float32_sums_would_confuse() -> None:
    # 4096 + 2⁻¹¹·x: a float32 sum of the two products may lose the second, float64 keeps it.
    embeddings = np.array([[64, 0, 0], [64, 1, 0], [64, 2, 0], [64, 3, 1]] * 30, dtype=np.float32)
    query = torch.tensor([[64.0, 2.0**-11, -(2.0**-10)]])
    expected = naive_search(query.numpy(), embeddings, 8)[1]
    assert exact_search(query, embeddings, 8)[1].tolist() == expected
    assert expected[0] == [2, 6, 10, 14, 18, 22, 26, 30]


def test_exact_search_looks_again_only_where_reranking_does_not_decide(monkeypatch) -> None:
    rng = np.random.default_rng(5)
    embeddings = rng.normal(size=(600, 8)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    embeddings[300:320] = embeddings[0]  # 21 equal images, more than k + 4
    again, search_in_float64 = [], search.search_in_float64
    monkeypatch.setattr(
        search,
        "search_in_float64",
        lambda queries, *rest: again.append(len(queries)) or search_in_float64(queries, *rest),
    )
    queries = np.stack([embeddings[0], embeddings[500]])
    ids = exact_search(torch.from_numpy(queries), embeddings, 8)[1]
    assert ids[0].tolist() == [0, *range(300, 307)] and ids[1, 0] == 500
    assert again == [1]


def test_exact_search_agrees_with_its_naive_twin_when_images_become_better_and_better() -> None:
    embeddings = np.linspace(0.01, 1, 3000, dtype=np.float32)[:, None] * np.ones((1, 2), dtype=np.float32)
    queries = np.array([[1, 1], [1, -0.5], [-1, -1]], dtype=np.float32)
    scores, ids = exact_search(torch.from_numpy(queries), embeddings, 5, chunk=128)
    assert (scores.tolist(), ids.tolist()) == naive_search(queries, embeddings, 5)


@pytest.mark.parametrize("lanes", [1, 2, 3, 64])
@pytest.mark.parametrize("chunk", [15, 16, 33, 100, 1024, 1100, 2999])
def test_blocks_of_any_layout_hold_each_image_once(lanes: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_LANES", lanes)
    rng = np.random.default_rng(chunk)
    queries, embeddings = rng.standard_normal((5, 4), np.float32), rng.standard_normal((3000, 4), np.float32)
    embeddings[:200] *= 0.5  # so that what comes later is set aside
    scores, ids = exact_search(torch.from_numpy(queries), embeddings, 6, chunk=chunk)
    assert (scores.tolist(), ids.tolist()) == naive_search(queries, embeddings, 6)


def test_products_of_a_search_sum_in_float32_whatever_was_chosen() -> None:
    cuda = torch.backends.cuda.matmul
    assert cuda.allow_fp16_reduced_precision_reduction and cuda.allow_bf16_reduced_precision_reduction
    torch.set_float32_matmul_precision("medium")
    try:
        with search.full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not cuda.allow_fp16_reduced_precision_reduction
            assert not cuda.allow_bf16_reduced_precision_reduction
    finally:
        torch.set_float32_matmul_precision("highest")
    assert cuda.allow_fp16_reduced_precision_reduction and cuda.allow_bf16_reduced_precision_reduction


def test_exact_search_keeps_the_precision_that_was_chosen_for_training() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        exact_search(torch.ones(1, 2), np.ones((3, 2), dtype=np.float32), 1)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@settings(max_examples=20, deadline=None)
@given(collections())
def test_exact_search_agrees_with_its_naive_twin_on_a_gpu(collection) -> None:
    text, embeddings, k, chunk, excluded = collection
    found = exact_search(torch.from_numpy(text), embeddings, k, "cuda", chunk, torch.tensor(excluded))
    assert (found[0].tolist(), found[1].tolist()) == naive_search(text, embeddings, k, excluded)


def test_the_error_that_is_reckoned_with_grows_with_the_query() -> None:
    """Worked by hand: |q| = 1000, the largest |x| = 0.5, 4 numbers: 6 · 2^-24 · 500 = 1.8e-4 more than 499.9999."""
    embeddings = torch.tensor([[0.5, 0, 0, 0], [0.4, 0, 0, 0], [np.nextafter(np.float32(0.5), 1), 0, 0, 0]])
    queries = torch.tensor([[1000.0, 0, 0, 0]])
    found = [
        search.rerank_exactly(queries, embeddings, torch.tensor([[500.0, last]]), torch.tensor([[0, 1]]), 1)[1].item()
        for last in (499.9999, 499.9)
    ]
    assert found == [2, 0]  # only the first leaves it open whether another is as near
