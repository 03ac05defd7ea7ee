"""The pictures themselves as a task's images, for a network that is trained along: `--image-folder`.

In training random parts of them are shown, mirrored half of the time; in validation what the network prescribes. A
picture that can't be read is absent. Assumption: VA doesn't say how its pictures are framed; of the works here VOK
frames them so.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from ..errors import InputError
from ..features.pixels import PixelSource
from ..flags import see
from ..images.sources import open_images
from .visual_context import VisualContextConfig

if TYPE_CHECKING:  # it imports torchvision, which features don't need
    from ..features.image_network import ImageNetwork

# Of this task, for what errors of pictures and their network are about.
_FLAGS = {
    "backbone": "--image-backbone",
    "weights": "--image-backbone-weights",
    "image_size": "--image-size",
    "image_column": "--image-column",
    "key_column": "--key-column",
}


@dataclass
class PicturesConfig(VisualContextConfig):
    """The flags of a task that may train the network which sees the pictures."""

    image_folder: Optional[str] = field(
        default=None,
        metadata={
            "help": "instead of --image-features: the pictures of all splits (a folder, zip, tar, list or "
            "parquet, as for `visual-grounding extract`), whose network is trained along"
        },
    )
    image_column: Optional[str] = field(
        default=None, metadata={"help": "of parquet: the column of images (default: the only one that fits)"}
    )
    key_column: Optional[str] = field(
        default=None,
        metadata={"help": "of parquet: the column of keys (default: the paths in the image column if unique)"},
    )
    image_backbone: str = field(default="resnet152", metadata={"help": "network for --image-folder"})
    image_backbone_weights: Optional[str] = field(
        default=None,
        metadata={"help": "its weights to begin with: a name, a file, or none for random numbers (default: its best)"},
    )
    image_size: Optional[int] = field(
        default=None, metadata={"help": "side of the square that this network sees, in pixels (default: its own)"}
    )


class Pictures:
    """Opens `--image-folder`, and builds the network that sees it.

    Args:
        cfg: the task's configuration.

    Attributes:
        source: the pictures, framed as the network prescribes.

    Raises:
        InputError: there are no such pictures, or no such network.
    """

    def __init__(self, cfg: PicturesConfig) -> None:
        self.cfg: Any = cfg
        self._network: Optional[ImageNetwork] = self._build()  # the next model's
        folder = str(cfg.image_folder)
        with _flags_said():
            images = open_images(folder, cfg.image_column, cfg.key_column)
        self.source = PixelSource(images, self._network.preprocessing, folder)

    def take_network(self) -> "ImageNetwork":
        """A network of its own for every model that is built."""
        network, self._network = self._network or self._build(), None
        return network

    def _build(self) -> "ImageNetwork":
        from ..features.image_network import build_image_network

        with _flags_said():
            return build_image_network(self.cfg.image_backbone, self.cfg.image_backbone_weights, self.cfg.image_size)


@contextmanager
def _flags_said() -> Iterator[None]:
    """Add the flags of this task to a message that speaks of things."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{error}{see([_FLAGS[choice] for choice in error.choices if choice in _FLAGS])}") from error
