"""What every family of networks gives to the extraction; a network from outside this package gives the same.

`--backbone package.module:Name`, or an entry point of the group `visual_grounding.backbones`, is called as

    Name(weights=…, image_size=…, seed=…)

with what the flags say, None for what was left out, and returns a `Backbone`; `Name` may be a function or a class. It
becomes the backbone's name. What is more than a map to be pooled, such as a detector, returns a function instead, which
is called with a `Computation` (a device and a precision) and returns an `Extractor`.
"""

from dataclasses import dataclass

from torch import nn

from .preprocessing import PicturePreprocessing


@dataclass(frozen=True)
class Backbone:
    """A network without its head.

    Attributes:
        name: as on the command line, which a backbone from outside needn't know.
        network: (B, 3, H, W), preprocessed -> its map (B, C, h, w); a vision transformer's patches are the map.
        preprocessing: what it expects.
        weights: which, for the signature and to compare networks: "none" or a digest, so that others have another.
        own: (B, 3, H, W) -> (B, E), the network's own pooling and projection; None where it has none but the mean.
        classifier: (B, 3, H, W) -> (B, E) before its last layer, and (B, classes) after it, before any softmax; None
            for a network without classes.
        class_names: of its classes, where the library knows them.
    """

    name: str
    network: nn.Module
    preprocessing: PicturePreprocessing
    weights: str
    own: nn.Module | None = None
    classifier: nn.Module | None = None
    class_names: tuple[str, ...] = ()
