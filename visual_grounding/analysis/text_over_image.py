"""Texts over images: which store and framing a heat map can be made from, and the maps themselves."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from ..errors import InputError
from ..features.framing import Framing, framing_of_plan, parse_framing
from ..features.store import FEATURE_STORE, FeatureStore
from ..retrieval.retriever import Retriever
from ..storage.artefact import read_meta
from .heat_map import heat_map

_BATCH = 64  # images at a time


class Query(NamedTuple):
    """A text over an image."""

    key: str
    text: str


class HeatMap(NamedTuple):
    """A query's map, from the top left, row by row."""

    query: Query
    grid: torch.Tensor  # (n, n)


def grid_side(store: FeatureStore) -> int:
    """n of a store with n x n regions an image.

    Raises:
        InputError: it has one region, or another number that is no square.
    """
    side = round(store.num_regions**0.5)
    if side < 2 or side * side != store.num_regions:
        raise InputError(
            f"{store.folder} should hold a grid of n x n regions an image, but has {store.num_regions}. Make one with: "
            "visual-grounding extract … --pool grid --out DIR"
        )
    return side


def framing_of(store: FeatureStore, given: str | None) -> Framing:
    """What the network saw of a picture: as given, or as the store says.

    Raises:
        InputError: neither says it.
    """
    if given is not None:
        return parse_framing(given)
    plan = read_meta(store.folder, FEATURE_STORE).get("plan", {})
    framing = framing_of_plan(str(plan.get("preprocessing", "")))
    if framing is None:
        raise InputError(
            f"{store.folder} doesn't say how its pictures were resized and cropped. Say it: --framing whole where the "
            "network saw all of a picture, squeezed into a square, or --framing RESIZE/CROP, such as 256/224."
        )
    return framing


def heat_maps(
    retriever: Retriever, store: FeatureStore, queries: list[Query], rows: dict[str, int], channels: int
) -> Iterator[HeatMap]:
    """The map of each query whose image has features and whose text has words, image by image.

    An absent cell is as cold as the coldest one.
    """
    by_image: dict[str, list[Query]] = {}
    for query in queries:
        if query.key in rows:
            by_image.setdefault(query.key, []).append(query)
    keys = sorted(by_image, key=rows.__getitem__)
    side = grid_side(store)
    for start in range(0, len(keys), _BATCH):
        chosen = keys[start : start + _BATCH]
        features, absent = store.gather(np.array([rows[key] for key in chosen]))
        cells = retriever.encode_cells(torch.from_numpy(features))  # (I, R, D)
        asked = [(place, query) for place, key in enumerate(chosen) for query in by_image[key]]
        texts = retriever.encode_text([query.text for _, query in asked])  # (Q, D)
        for (place, query), text in zip(asked, texts):
            gone = torch.from_numpy(absent[place])  # (R,)
            if gone.all() or not text.any():
                continue
            heat = heat_map(cells[place], text, channels)  # (R,)
            yield HeatMap(query, torch.where(gone, heat[~gone].min(), heat).view(side, side))
