"""Networks that find regions: boxes with labels and scores, and the features that lie below each box.

`torchvision_detectors.py` has torchvision's by their names; `onnx_detectors.py` any detector in an ONNX file, as
`onnx:FILE`. Which of what they find is kept is the same for both: `selection.py`.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from ...errors import InputError
from ..backbones import check_image_size, is_outside
from ..computation import Computation
from ..extractor import Extractor
from .projection import Projection, read_projection
from .selection import Selection
from .torchvision_detectors import detector_names, load_torchvision_detector

__all__ = ["ONNX", "Projection", "Selection", "detector_names", "load_detector", "read_projection"]

ONNX = "onnx:"


def load_detector(
    name: str,
    computation: Computation,
    selection: Selection,
    weights: str | None = None,
    image_size: int | None = None,
    seed: int = 1,
    label_names: Sequence[str] | None = None,
    attribute_names: Sequence[str] | None = None,
    feature_maps: Sequence[str] = (),
    projection: Projection | None = None,
) -> Extractor:
    """Build what extracts regions.

    Args:
        name: one of `detector_names()`, or `onnx:FILE`.
        weights: a name that torchvision has for this network's weights, a local state_dict, "none" for seeded random
            numbers; None for torchvision's default. An ONNX file has its own.
        image_size: short side that the network sees a picture in (SSD and ONNX: both sides); None for its own.
        seed: of random weights.
        label_names: the n-th is label n; None for those of torchvision's weights. An ONNX file needs them.
        attribute_names: likewise, where an ONNX file gives attributes.
        feature_maps: of an ONNX file: the outputs that region features are pooled from.
        projection: of these features; None for as they are.

    Raises:
        InputError: an unknown detector, or as the loader of its kind.
    """
    check_image_size(image_size)
    selection.check()
    if name.startswith(ONNX):
        from .onnx_detectors import load_onnx_detector

        if weights is not None:
            raise InputError(f"{name} has its weights inside, but {weights} was given as weights.", "weights")
        path = Path(name.removeprefix(ONNX))
        return load_onnx_detector(
            path, label_names, attribute_names, feature_maps, image_size, selection, projection, computation
        )
    if name not in detector_names():
        if is_outside(name):
            raise InputError(
                f"{name} is from outside this package: what makes an extractor is given as the backbone, whatever it "
                "finds.",
                "detector",
                "backbone",
            )
        close = ", ".join(get_close_matches(name.lower().replace("-", "_"), detector_names(), n=3, cutoff=0.5))
        if name.endswith(".onnx"):
            close = f"{ONNX}{name}"
        raise InputError(
            f"detector {name} is unknown.{f' Did you mean {close}?' if close else ''} Known: "
            f"{', '.join(detector_names())}, {ONNX}FILE.",
            "detector",
        )
    for choice, given in (("feature_maps", feature_maps), ("attribute_names", attribute_names)):
        if given:
            raise InputError(f"{choice.replace('_', ' ')} are for {ONNX}FILE, but the detector is {name}.", choice)
    return load_torchvision_detector(name, weights, image_size, seed, label_names, selection, projection, computation)
