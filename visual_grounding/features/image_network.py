"""An image network that is trained with the retriever: pixels to the places of its map (VA §2.1, its CNN)."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode

from ..errors import InputError
from ..storage.outside import parse_json
from ..storage.settings import TABLE, TEXT, check_settings, one_of, whole_number
from ..storage.weights import load_strictly
from .backbones import load_backbone
from .backbones.preprocessing import LARGEST_SIDE, MEAN, SIDE, SPREAD

RANDOM = "none"
DESCRIPTION = "description"
_PREPROCESSING = {
    "resize": whole_number(1, 2 * LARGEST_SIDE),  # before the crop
    "crop": SIDE,
    "mean": MEAN,
    "std": SPREAD,
    "interpolation": one_of(*(mode.value for mode in InterpolationMode)),
}


class ImageNetwork(nn.Module):
    """A network without its head, with the preprocessing that it was trained with.

    Its state says which network it is: `description` holds the name and the preprocessing as JSON in bytes, so that a
    checkpoint needs neither flags nor pretrained weights to be read.

    Args:
        name: of the backbone.
        network: (B, 3, H, W) -> (B, F, h, w).
        preprocessing: of the backbone.
        pretrained: batch normalisation keeps the statistics that it was trained with.

    Shapes:
        pixels: (B, H, W, 3) uint8
        returns: (B, R, F), R = h·w, row by row from the top left
    """

    description: Tensor

    def __init__(self, name: str, network: nn.Module, preprocessing: Any, pretrained: bool) -> None:
        super().__init__()
        self.name = name
        self.network = network
        self.preprocessing = preprocessing
        self.pretrained = pretrained
        self.frozen = False
        text = json.dumps({"backbone": name, "preprocessing": asdict(preprocessing)}, sort_keys=True)
        self.register_buffer(DESCRIPTION, torch.tensor(list(text.encode()), dtype=torch.uint8))

    def freeze(self, frozen: bool) -> None:
        """Stop or start learning."""
        self.frozen = frozen
        self.network.requires_grad_(not frozen)
        self.train(self.training)

    def train(self, mode: bool = True) -> "ImageNetwork":
        """Switch to training; what is frozen, and pretrained statistics of batch normalisation, stay as they are."""
        super().train(mode)
        if self.frozen:
            self.network.eval()
        elif self.pretrained:
            # Assumption: the paper doesn't say; of the works here VOK trains its network so.
            self._learn_statistics(False)
        return self

    def _learn_statistics(self, learn: bool) -> None:
        for module in self.network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train(learn)

    def forward(self, pixels: Tensor) -> Tensor:
        """Run the network.

        Shapes:
            pixels: (B, H, W, 3) uint8
            returns: (B, R, F)
        """
        images = self.preprocessing.normalise(pixels).to(next(self.network.parameters()).dtype)
        alone = len(pixels) == 1 and self.network.training and not self.pretrained
        if alone:  # the last batch of an epoch may have one caption: no statistics of one place
            self._learn_statistics(False)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            regions = self.network(images).flatten(2).transpose(1, 2)  # (B, F, h, w) -> (B, R, F)
        if alone:
            self._learn_statistics(True)
        return regions

    @torch.inference_mode()
    def map_shape(self) -> tuple[int, int]:
        """R and F, by one blank image."""
        training, side = self.training, self.preprocessing.crop
        self.eval()
        shape = self(torch.zeros(1, side, side, 3, dtype=torch.uint8, device=self.description.device)).shape
        self.train(training)
        return shape[1], shape[2]


def build_image_network(name: str, weights: str | None, image_size: int | None) -> ImageNetwork:
    """A network to be trained, from `load_backbone`.

    Args:
        name: of the backbone.
        weights: as for `extract`; "none" for random numbers, whose batch normalisation then learns its statistics.
        image_size: side of the square that it sees; None for its own.

    Raises:
        InputError: as `load_backbone`, or the network has nothing to learn.
    """
    if ":" in name:
        raise InputError(
            f"a network that is trained along should be one of torchvision's, such as resnet50, but is {name}.",
            "backbone",
        )
    backbone = load_backbone(name, weights, image_size)
    # Random weights come with a fixed scale, for features in float16; training finds its own.
    network = getattr(backbone.network, "network", backbone.network) if weights == RANDOM else backbone.network
    if not any(True for _ in network.parameters()):
        raise InputError(
            f"{name} has no weights to learn. Use its features instead, made with: visual-grounding extract "
            f"--backbone {name} … --out DIR",
            "backbone",
        )
    return ImageNetwork(name, network, backbone.preprocessing, pretrained=weights != RANDOM)


def restore_image_network(state: dict[str, Tensor], origin: Path | str = "") -> ImageNetwork:
    """The network whose `state_dict` this is, in evaluation mode.

    Args:
        state: name -> weight, or the description.
        origin: where it was read from, for messages.

    Raises:
        InputError: it doesn't say which network it is, or the network doesn't fit it.
    """
    try:
        said = parse_json(bytes(state[DESCRIPTION].tolist()).decode("utf-8"))
        check_settings(f"its {DESCRIPTION}", said, {"backbone": TEXT, "preprocessing": TABLE})
        check_settings(f"the preprocessing of its {DESCRIPTION}", said["preprocessing"], _PREPROCESSING)
        network = build_image_network(said["backbone"], RANDOM, None)
        network = ImageNetwork(
            said["backbone"], network.network, replace(network.preprocessing, **said["preprocessing"]), True
        )
        load_strictly(network, {**state, DESCRIPTION: network.description}, "the file", network.name)
    except Exception as error:  # what it says may fail anywhere
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        place = f" in {origin}" if str(origin) else ""
        raise InputError(f"the image network's weights{place} can't be used: {reason}") from error
    return network.eval()
