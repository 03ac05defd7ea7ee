"""What every family of networks gives to the extraction."""

from dataclasses import dataclass

from torch import nn

from .preprocessing import PicturePreprocessing


@dataclass(frozen=True)
class Backbone:
    """A network without its head.

    Attributes:
        name: as on the command line.
        network: (B, 3, H, W), preprocessed -> its map (B, C, h, w); a vision transformer's patches are the map.
        preprocessing: what it expects.
        weights: which, for the signature and to compare networks.
        own: (B, 3, H, W) -> (B, E), the network's own pooling and projection; None where it has none but the mean.
    """

    name: str
    network: nn.Module
    preprocessing: PicturePreprocessing
    weights: str
    own: nn.Module | None = None
