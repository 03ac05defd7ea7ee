"""torchvision's classifiers, cut off after the last map: ResNet, ResNeXt, wide ResNet, EfficientNet."""

import logging
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision import models

from ...errors import InputError
from ...progress import progress_is_shown
from ...storage.artefact import sha256_of_file
from ...storage.weights import load_strictly, read_weights
from .backbone import Backbone
from .preprocessing import Preprocessing
from .weights import Scaled, is_file

logger = logging.getLogger(__name__)

_FAMILIES = ("resnet", "resnext", "wide_resnet", "efficientnet")


def torchvision_names() -> list[str]:
    """Names that `load_torchvision` knows."""
    return [name for name in models.list_models(module=models) if name.startswith(_FAMILIES)]


def load_torchvision(name: str, weights: str | None, image_size: int | None, seed: int) -> Backbone:
    """Build one, in evaluation mode.

    Raises:
        InputError: unknown weights, a file that doesn't fit the network, or a download that failed.
    """
    known = models.get_model_weights(name)
    origin = known.DEFAULT
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = models.get_model(name, weights=None)
        trunk = without_head(model)
        if weights == "none":
            trunk = Scaled(trunk)
    if weights == "none":
        label = f"random-{seed}"
    elif weights is not None and is_file(weights):
        path = Path(weights)
        load_strictly(model, read_weights(path), path, name)
        digest = sha256_of_file(path)
        # By its content, or its name: those of torchvision's files end in -DIGITS.pth, the first of their sha256.
        endings = f"-{digest[:8]}.pth", f"/{path.name}"
        released = next((entry for end in endings for entry in known if entry.url.endswith(end)), None)
        if released is None:
            logger.warning(
                "%s is none of torchvision's files for %s, so pictures are framed as for %s: if it was trained on "
                "others, say so by --image-size.",
                path,
                name,
                origin,
            )
        origin = released or origin
        label = f"sha256-{digest}"
    else:
        origin = named_weights(name, known, weights)
        load_strictly(model, download(origin, name), origin.url, name)
        label = origin.name
    preprocessing = preprocessing_of(origin)
    if image_size is not None:
        preprocessing = preprocessing.with_crop(image_size)
    classifier = _Classifier(trunk, model).eval()
    return Backbone(name, trunk.eval(), preprocessing, label, None, classifier, tuple(origin.meta["categories"]))


class _Classifier(nn.Module):
    """The whole network, and what it pools before its last layer.

    Shapes:
        images: (B, 3, H, W)
        returns: (B, E), (B, classes)
    """

    def __init__(self, trunk: nn.Module, model: Any) -> None:
        super().__init__()
        self.trunk, self.pool = trunk, model.avgpool
        self.head = model.fc if hasattr(model, "fc") else model.classifier

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pool and classify.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, E), (B, classes)
        """
        pooled = self.pool(self.trunk(images)).flatten(1)
        return pooled, self.head(pooled)


def without_head(model: nn.Module) -> nn.Module:
    """Everything up to the last convolutional map."""
    features = getattr(model, "features", None)
    return features if isinstance(features, nn.Module) else nn.Sequential(*list(model.children())[:-2])


def preprocessing_of(weights: Any) -> Preprocessing:
    """What torchvision prescribes for some weights."""
    transforms = weights.transforms()
    return Preprocessing(
        resize=transforms.resize_size[0],
        crop=transforms.crop_size[0],
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
        interpolation=transforms.interpolation.value,
    )


def named_weights(name: str, known: Any, weights: str | None) -> Any:
    """Weights of a network by their name, None for the default.

    Args:
        known: the enumeration of the network's weights.

    Raises:
        InputError: there are none of this name.
    """
    if weights is None:
        return known.DEFAULT
    try:
        return known[weights]
    except KeyError:
        names = ", ".join(entry.name for entry in known)
        raise InputError(
            f"{weights} is neither a file nor weights of {name}, which has: {names}, none (random numbers).", "weights"
        ) from None


def download(origin: Any, name: str) -> dict[str, torch.Tensor]:
    """The state_dict of weights that torchvision knows, through its cache.

    Raises:
        InputError: they can't be had.
    """
    try:
        return origin.get_state_dict(progress=progress_is_shown(), check_hash=True)
    except Exception as error:  # no network, no such host, a hash that differs, a full disk: always the same way out
        file = origin.url.rsplit("/", 1)[-1]
        raise InputError(
            f"The weights {origin.name} of {name} can't be downloaded from {origin.url}: {error}. Offline, "
            f"copy it to {Path(torch.hub.get_dir()) / 'checkpoints' / file}, or elsewhere and "
            f"give {file} as its weights.",
            "weights",
        ) from error
