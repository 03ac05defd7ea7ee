"""Which matrix product a scan takes."""

import multiprocessing
import time

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from visual_grounding.retrieval import products
from visual_grounding.retrieval.products import FastestProduct, Product, fastest_product, product_for
from visual_grounding.retrieval.search import exact_search

KINDS = ["product_of_blas", "product_of_numpy", "product_of_onednn"]


@pytest.mark.parametrize("name", KINDS)
def test_products_agree_with_one_worked_by_hand(name: str) -> None:
    queries, images = torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0], [0.5, 0.0]])
    found = getattr(products, name)(queries, images, torch.empty(2, 3))
    assert found.tolist() == [[11.0, 17.0, 0.5], [-4.0, -6.0, 0.0]]


@pytest.mark.parametrize(("queries", "rows"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_onednn_sees_few_numbers_of_queries(queries: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, linear = [], torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda rows, images: seen.append(len(rows)) or linear(rows, images)
    )
    found = products.product_of_onednn(torch.ones(queries, 3), torch.ones(5, 3), torch.empty(queries, 5))
    assert found.tolist() == [[3.0] * 5] * queries and seen == [rows]


@pytest.mark.parametrize("fast", range(3))
def test_a_scan_times_each_product_and_goes_on_with_the_fastest(fast: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def kind(number: int) -> Product:
        def product(queries: torch.Tensor, images: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
            asked.append(number)
            time.sleep(0.001 if number == fast else 0.02)
            return torch.mm(queries, images.T, out=memory)

        return product

    queries, embeddings = torch.randn(3, 64), np.random.default_rng(0).standard_normal((1300, 64)).astype(np.float32)
    expected = exact_search(queries, embeddings, 2)
    monkeypatch.setattr(products, "_WORTH_TIMING", 3 * 100 * 64)
    chooser = FastestProduct(kind(0), lambda: [kind(1), kind(2)])
    monkeypatch.setattr(products, "fastest_product", lambda *_: chooser)
    exact_search(queries, embeddings, 2, chunk=99)  # too little at a time to be worth timing
    assert asked == [0] * 14 and chooser.chosen is None
    asked.clear()
    found = exact_search(queries, embeddings, 2, chunk=100)
    assert asked == [0, 1, 2, 1, 2, 0, 2, 0, 1] + [fast] * 4 and chooser.chosen is not None
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    asked.clear()
    exact_search(queries, embeddings, 2, chunk=99)
    assert asked == [0] * 14


def test_what_was_timed_is_for_one_size_about_as_many_queries_and_a_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = product_for(torch.zeros(5, 64))
    assert isinstance(chosen, FastestProduct) and product_for(torch.zeros(7, 64)) is chosen
    assert product_for(torch.zeros(5, 32)) is not chosen and product_for(torch.zeros(8, 64)) is not chosen
    assert product_for(torch.zeros(1100, 64)) is product_for(torch.zeros(5000, 64))  # 1,024 at a time
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert product_for(torch.zeros(5, 64)) is not chosen


@pytest.mark.parametrize("size", [3, 64, 5000])
def test_product_in_less_than_float32_is_never_taken(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(queries: torch.Tensor, images: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return (queries.bfloat16() @ images.bfloat16().T).float()

    def tf32(queries: torch.Tensor, images: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        cut = [(each.view(torch.int32) & ~0x1FFF).view(torch.float32) for each in (queries, images)]
        return cut[0] @ cut[1].T

    def kinds() -> list[Product]:
        return fastest_product.__wrapped__(size, 3, 1)._others()

    assert kinds() == [products.product_of_numpy, products.product_of_onednn]
    monkeypatch.setattr(products, "product_of_onednn", rounded)
    assert kinds() == [products.product_of_numpy]
    monkeypatch.setattr(products, "product_of_numpy", tf32)
    assert kinds() == []


def test_a_copy_by_fork_leaves_openblas_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "somebody")
    assert fastest_product.__wrapped__(64, 3, 1)._others() == [products.product_of_onednn]


@pytest.mark.parametrize("name", KINDS)
def test_products_of_numbers_that_are_not_finite_raise_and_warn_of_nothing(name: str) -> None:
    queries, images = torch.tensor([[0.0, 1e38], [1.0, 1e38]]), torch.tensor([[float("inf"), 0.0], [1.0, 1e38]])
    found = getattr(products, name)(queries, images, torch.empty(2, 2))
    assert found.isfinite().tolist() == [[False, False], [False, False]]


def test_numpy_multiplies_with_as_many_threads_as_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads() -> set[int]:
        return {each["num_threads"] for each in ThreadpoolController().select(user_api="blas").info()}

    seen: list[set[int]] = []

    def matmul(queries: np.ndarray, images: np.ndarray, out: np.ndarray) -> None:
        seen.append(threads())

    products._blas_threads.cache_clear()
    before = threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(np, "matmul", matmul)
    products.product_of_numpy(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(2, 4))
    assert seen == [{2}] and threads() == before
