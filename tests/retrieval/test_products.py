"""Which matrix product a scan takes."""

import time

import pytest
import torch

from visual_grounding.retrieval import products
from visual_grounding.retrieval.search import exact_search


@pytest.mark.parametrize("slow", ["product_of_blas", "product_of_onednn"])
def test_scan_takes_the_product_that_is_faster_here(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {name: getattr(products, name) for name in ("product_of_blas", "product_of_onednn")}
    asked = []

    def slowly(*tensors: torch.Tensor) -> torch.Tensor:
        asked.append(tensors[1].shape[0])
        time.sleep(0.2)
        return named[slow](*tensors)

    monkeypatch.setattr(products, slow, slowly)
    monkeypatch.setattr(products, "_timed", products._timed.__wrapped__)
    (fast,) = named.keys() - {slow}
    assert products.fastest_product(64) is named[fast]
    asked.clear()
    queries, embeddings = torch.randn(3, 64), torch.randn(500, 64)
    monkeypatch.setattr(products, "_WORTH_TIMING", 3 * 500 * 64)
    exact_search(queries, embeddings, 2)
    assert set(asked) == {1024}  # timed, not taken
    monkeypatch.setattr(products, "_WORTH_TIMING", 3 * 500 * 64 + 1)
    asked.clear()
    exact_search(queries, embeddings, 2)
    assert asked == ([500] if slow == "product_of_blas" else [])  # too little to be worth timing: BLAS


def test_product_in_less_than_float32_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(queries: torch.Tensor, images: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return (queries.bfloat16() @ images.bfloat16().T).float()

    def slowly(*tensors: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        return torch.mm(tensors[0], tensors[1].T)

    monkeypatch.setattr(products, "product_of_onednn", rounded)
    monkeypatch.setattr(products, "product_of_blas", slowly)
    assert products._timed.__wrapped__(64, 1) is slowly
