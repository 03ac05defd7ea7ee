"""Text models that look at pictures: a fairseq plugin, and the retrieval that feeds it.

Shapes are written with these letters everywhere:

    B  sentences in a batch      T  source tokens            U  target tokens
    N  images per sentence       R  regions per image        F  image feature size
    D  model size                H  attention heads
    I  images in a collection    S  sentences in a corpus    V  vocabulary, or vokens

fairseq's layers are time-first: they take and return (T, B, D). `*_padding_mask` is True at padding. Boxes are
`x0, y0, x1, y1` in 0..1. Fractions are 0..1 in code, percent only in what a person reads; BLEU is 0..100.
"""

from . import _interrupted  # noqa: F401, I001 -- before anything that takes time
from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__
from .errors import InputError
from .fairseq_plugin import register_with_fairseq

if TYPE_CHECKING:
    from .features.store import FeatureStore
    from .retrieval.index import Index
    from .retrieval.retriever import Retriever

__all__ = ["FeatureStore", "Index", "InputError", "Retriever", "__version__"]

# Imported when they are asked for: torch takes seconds.
_PLACES = {"FeatureStore": ".features.store", "Index": ".retrieval.index", "Retriever": ".retrieval.retriever"}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# `--user-dir` never imports criterions/, and imports nothing at all when this package was imported before.
register_with_fairseq()
