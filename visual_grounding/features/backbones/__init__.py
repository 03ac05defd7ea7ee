"""Networks that turn a picture into a map of features: a name, a module and the preprocessing it was trained with.

The classifier is cut off; what pools the map is a choice of the extraction. The prefix of a name is the library that
the network comes from: none for torchvision and the scattering network, `timm:`, and `clip:` for the image towers of
CLIP, SigLIP and SigLIP 2 through transformers. `backbone.py` says how to bring one from outside this package.
"""

from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from typing import Any

from ...errors import InputError
from ...extensions import is_extension, load_extension
from . import dual_encoder_towers, timm_networks
from .backbone import Backbone
from .preprocessing import LARGEST_SIDE, LibraryPreprocessing, PicturePreprocessing, Preprocessing
from .torchvision_networks import load_torchvision, torchvision_names

__all__ = [
    "SCATTERING",
    "Backbone",
    "LibraryPreprocessing",
    "PicturePreprocessing",
    "Preprocessing",
    "backbone_names",
    "load_backbone",
    "load_extension_backbone",
]

SCATTERING = "scattering"
GROUP = "backbones"  # of extensions
_BY_PREFIX = {
    timm_networks.PREFIX: timm_networks.load_timm,
    dual_encoder_towers.PREFIX: dual_encoder_towers.load_image_tower,
}


def backbone_names() -> list[str]:
    """All names without a prefix that `load_backbone` knows."""
    return [*torchvision_names(), SCATTERING]


def load_backbone(name: str, weights: str | None = None, image_size: int | None = None, seed: int = 1) -> Backbone:
    """Build a backbone in evaluation mode, on the CPU.

    Args:
        name: one of `backbone_names()`, or `timm:NAME`, `clip:NAME`, `clip:FOLDER` or `package.module:Name`.
        weights: a name (tag) that the library has for this network (downloaded unless its cache has it), a local
            state_dict (.pth, .pt, .bin, .safetensors), a local folder, "none" for seeded random numbers; None for the
            library's default.
        image_size: side of the square that the network sees; None for the one it was trained with.
        seed: of random weights.

    Raises:
        InputError: unknown backbone or weights, a file that doesn't fit the network, or a download that failed; a name
            from outside that stands for something else.
    """
    if is_outside(name):
        made = load_extension_backbone(name, weights, image_size, seed)
        if not isinstance(made, Backbone):
            raise InputError(
                f"{name} should make a Backbone, since its map is needed here, but made a {type(made).__name__}.",
                "backbone",
            )
        return made
    prefix = _prefix(name)
    if name.startswith("onnx:"):
        raise InputError(f"{name} finds regions: it is given as the detector, not as the backbone.", "detector")
    if prefix is None and name not in backbone_names():
        known = [*backbone_names(), f"{timm_networks.PREFIX}NAME", f"{dual_encoder_towers.PREFIX}NAME or FOLDER"]
        raise InputError(
            f"backbone {name} is unknown.{_suggestion(name)} Known: {', '.join(known)}, package.module:Name.",
            "backbone",
        )
    check_image_size(image_size)
    if prefix is not None:
        return _BY_PREFIX[prefix](name, weights, image_size, seed)
    if name == SCATTERING:
        return _scattering(weights, image_size)
    return load_torchvision(name, weights, image_size, seed)


def is_outside(name: str) -> bool:
    """Whether a name is of a backbone, or a whole extractor, from outside this package."""
    return name not in backbone_names() and _prefix(name) is None and is_extension(name, GROUP)


def load_extension_backbone(name: str, weights: str | None, image_size: int | None, seed: int) -> Any:
    """What a name from outside this package makes, as `backbone.py` says; a `Backbone` is put in evaluation mode.

    Raises:
        InputError: it can't be loaded or called, or an image size below 1.
    """
    check_image_size(image_size)
    make = load_extension(name, GROUP, "backbone")
    if not callable(make):
        raise InputError(f"{name} should be a function or a class, but is a {type(make).__name__}.", "backbone")
    given = {"weights": weights, "image_size": image_size, "seed": seed}
    try:
        signature(make, follow_wrapped=False).bind(**given)
    except ValueError:
        pass  # what is compiled may not say what it takes
    except TypeError as error:
        raise InputError(f"{name} should take {', '.join(given)} by name, but doesn't: {error}.", "backbone") from error
    made = make(**given)
    if not isinstance(made, Backbone):
        return made
    for network in (made.network, made.own, made.classifier):
        if network is not None:
            network.eval()
    return replace(made, name=name)


def _prefix(name: str) -> str | None:
    return next((prefix for prefix in _BY_PREFIX if name.startswith(prefix)), None)


def check_image_size(image_size: int | None) -> None:
    """Refuse a size that no network sees pictures in.

    Raises:
        InputError: it is below 1, or beyond any.
    """
    if image_size is not None and not 1 <= image_size <= LARGEST_SIDE:
        raise InputError(f"the image size should be 1 to {LARGEST_SIDE} pixels, but is {image_size}.", "image_size")


def _suggestion(name: str) -> str:
    """Did you mean …?, or nothing."""
    import timm

    bare = name.rpartition(":")[2]  # another prefix than ours
    if bare.partition(".")[0] in timm.list_models():
        return f" Did you mean {timm_networks.PREFIX}{bare}?"
    if "/" in bare:
        return f" Did you mean {dual_encoder_towers.PREFIX}{bare}?"
    known = {_squeezed(other): f"{timm_networks.PREFIX}{other}" for other in timm.list_models()}
    known |= {_squeezed(other): other for other in backbone_names()}
    close = get_close_matches(_squeezed(name), known, n=3, cutoff=0.7)
    return f" Did you mean {', '.join(known[other] for other in close)}?" if close else ""


def _squeezed(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _scattering(weights: str | None, image_size: int | None) -> Backbone:
    from ..scattering import ScatteringNetwork

    if weights not in (None, "none"):
        raise InputError(
            f"{SCATTERING} has no weights to learn, but {weights} was given as weights. Leave it out.", "weights"
        )
    try:
        network = ScatteringNetwork() if image_size is None else ScatteringNetwork(image_size=image_size)
    except ValueError as error:
        raise InputError(f"the image size doesn't suit {SCATTERING}: {error}", "image_size") from error
    return Backbone(SCATTERING, network.eval(), Preprocessing(network.image_size, network.image_size), "none")
