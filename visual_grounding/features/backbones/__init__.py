"""Networks that turn a picture into a map of features: a name, a module and the preprocessing it was trained with.

The classifier is cut off; what pools the map is a choice of the extraction. The prefix of a name is the library that
the network comes from: none for torchvision and the scattering network, `timm:`, and `clip:` for the image towers of
CLIP, SigLIP and SigLIP 2 through transformers.
"""

from difflib import get_close_matches

from ...errors import InputError
from . import dual_encoder_towers, timm_networks
from .backbone import Backbone
from .preprocessing import LibraryPreprocessing, PicturePreprocessing, Preprocessing
from .torchvision_networks import load_torchvision, torchvision_names

__all__ = [
    "SCATTERING",
    "Backbone",
    "LibraryPreprocessing",
    "PicturePreprocessing",
    "Preprocessing",
    "backbone_names",
    "load_backbone",
]

SCATTERING = "scattering"
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
        name: one of `backbone_names()`, or `timm:NAME`, `clip:NAME` or `clip:FOLDER`.
        weights: a name (tag) that the library has for this network (downloaded unless its cache has it), a local
            state_dict (.pth, .pt, .bin, .safetensors), a local folder, "none" for seeded random numbers; None for the
            library's default.
        image_size: side of the square that the network sees; None for the one it was trained with.
        seed: of random weights.

    Raises:
        InputError: unknown backbone or weights, a file that doesn't fit the network, or a download that failed.
    """
    prefix = next((prefix for prefix in _BY_PREFIX if name.startswith(prefix)), None)
    if prefix is None and name not in backbone_names():
        raise InputError(f"--backbone {name} is unknown.{_suggestion(name)} Known: {', '.join(backbone_names())}, "
                         f"{timm_networks.PREFIX}NAME, {dual_encoder_towers.PREFIX}NAME or FOLDER.")  # fmt: skip
    if image_size is not None and image_size < 1:
        raise InputError(f"--image-size should be 1 pixel or more, but is {image_size}.")
    if prefix is not None:
        return _BY_PREFIX[prefix](name, weights, image_size, seed)
    if name == SCATTERING:
        return _scattering(weights, image_size)
    return load_torchvision(name, weights, image_size, seed)


def _suggestion(name: str) -> str:
    """Did you mean …?, or nothing."""
    import timm

    bare = name.rpartition(":")[2]  # another prefix than ours
    if bare.partition(".")[0] in timm.list_models():
        return f" Did you mean {timm_networks.PREFIX}{bare}?"
    if "/" in bare:
        return f" Did you mean {dual_encoder_towers.PREFIX}{bare}?"
    close = get_close_matches(name.lower().replace("-", ""), backbone_names(), n=3, cutoff=0.5)
    return f" Did you mean {', '.join(close)}?" if close else ""


def _scattering(weights: str | None, image_size: int | None) -> Backbone:
    from ..scattering import ScatteringNetwork

    if weights not in (None, "none"):
        raise InputError(
            f"--backbone {SCATTERING} has no weights to learn, but --weights is {weights}. Leave --weights out."
        )
    try:
        network = ScatteringNetwork() if image_size is None else ScatteringNetwork(image_size=image_size)
    except ValueError as error:
        raise InputError(f"--image-size doesn't suit --backbone {SCATTERING}: {error}") from error
    return Backbone(SCATTERING, network.eval(), Preprocessing(network.image_size, network.image_size), "none")
