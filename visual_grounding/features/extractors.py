"""From a backbone's name to what extracts: a pooled map, or whatever an extension brings."""

from ..errors import InputError
from .backbones import Backbone, is_outside, load_backbone, load_extension_backbone
from .computation import Computation
from .extractor import Extractor
from .map_boxes import BoxedMapExtractor
from .map_extractor import MEAN, MapExtractor, Pooling


def load_extractor(
    name: str,
    weights: str | None,
    image_size: int | None,
    seed: int,
    pooling: Pooling,
    computation: Computation,
    boxes: bool = False,
) -> Extractor:
    """Build an extractor.

    Args:
        name: of a backbone, as `load_backbone`; from outside also of a whole extractor (`backbones/backbone.py`).
        weights, image_size, seed: as `load_backbone`.
        pooling: of the backbone's map; a whole extractor has none.
        boxes: say of each region where it is; a whole extractor decides on its own columns.

    Raises:
        InputError: as `load_backbone`, `MapExtractor` and `BoxedMapExtractor`; or what comes from outside isn't one of
            both, or a whole extractor is asked for what it decides by itself.
    """
    of_map = BoxedMapExtractor if boxes else MapExtractor
    if not is_outside(name):
        return of_map(load_backbone(name, weights, image_size, seed), pooling, computation)
    made = load_extension_backbone(name, weights, image_size, seed)
    if isinstance(made, Backbone):
        return of_map(made, pooling, computation)
    if not callable(made):
        raise InputError(
            f"{name} should make a Backbone, or a function that makes an Extractor from a Computation, but made a "
            f"{type(made).__name__}.",
            "backbone",
        )
    if pooling != MEAN:
        raise InputError(f"{name} has no map to be pooled, but the pooling is {pooling.kind}.", "pool", "grid")
    if boxes:
        raise InputError(f"{name} says by itself what its store has, boxes or none: leave them out.", "boxes")
    extractor = made(computation)
    lacking = [part for part in (*Extractor.__annotations__, "load", "rows") if not hasattr(extractor, part)]
    if lacking:
        raise InputError(
            f"{name} should make an Extractor, but what it made, a {type(extractor).__name__}, has no "
            f"{', '.join(lacking)}.",
            "backbone",
        )
    return extractor
