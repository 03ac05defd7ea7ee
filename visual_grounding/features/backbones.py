"""Networks that turn a picture into a map of features: a name, a module and the preprocessing it was trained with.

The classifier and the pooling before it are cut off; what pools the map is a choice of the extraction.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import interpolate
from torchvision import models
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from ..errors import InputError
from ..storage.artefact import sha256_of_file
from .images import MAX_PIXELS, UnreadableImage

SCATTERING = "scattering"
_FAMILIES = ("resnet", "resnext", "wide_resnet", "efficientnet")


@dataclass(frozen=True)
class Preprocessing:
    """What happens to an RGB picture before the network: short side to `resize`, centre crop, scale, normalise.

    The first half runs in the threads that decode, and keeps bytes; the second on the network's device, for a batch.
    """

    resize: int
    crop: int
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    interpolation: str = "bilinear"

    def pixels(self, image: Image.Image) -> np.ndarray:
        """Resize and crop.

        Shapes:
            returns: (crop, crop, 3) uint8

        Raises:
            UnreadableImage: the picture is so long and thin that its resized form would fill the memory.
        """
        long, short = max(image.size), min(image.size)
        if long * self.resize**2 > MAX_PIXELS * short:
            raise UnreadableImage(
                f"{image.width}x{image.height} pixels, too thin to resize its short side to {self.resize}"
            )
        image = F.resize(image, [self.resize], InterpolationMode(self.interpolation))
        return np.array(F.center_crop(image, [self.crop]))

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scale to 0..1 and normalise.

        Shapes:
            pixels: (B, crop, crop, 3) uint8
            returns: (B, 3, crop, crop) float32
        """
        images = pixels.permute(0, 3, 1, 2).to(torch.float32) / 255
        mean, std = (images.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (images - mean) / std

    def with_crop(self, crop: int) -> "Preprocessing":
        """The same framing at another size: the cropped share of the picture stays."""
        return Preprocessing(round(self.resize * crop / self.crop), crop, self.mean, self.std, self.interpolation)

    def as_plan(self) -> str:
        """One line that says everything."""
        numbers = " ".join(f"{value:g}" for value in (*self.mean, *self.std))
        return f"resize {self.resize} {self.interpolation}, crop {self.crop}, normalise {numbers}"


@dataclass(frozen=True)
class Backbone:
    """A network without its head.

    Attributes:
        name: as on the command line.
        network: (B, 3, H, W), preprocessed -> (B, C, h, w).
        preprocessing: what it expects.
        weights: which, for the signature.
    """

    name: str
    network: nn.Module
    preprocessing: Preprocessing
    weights: str


def backbone_names() -> list[str]:
    """All names that `load_backbone` knows."""
    return [*(name for name in models.list_models(module=models) if name.startswith(_FAMILIES)), SCATTERING]


def load_backbone(name: str, weights: str | None = None, image_size: int | None = None, seed: int = 1) -> Backbone:
    """Build a backbone in evaluation mode, on the CPU.

    Args:
        name: one of `backbone_names()`.
        weights: a name that torchvision has for this network (downloaded unless torch's cache has it), a local
            state_dict (.pth, .pt, .safetensors), "none" for seeded random numbers; None for torchvision's default.
        image_size: side of the square that the network sees; None for the one it was trained with.
        seed: of random weights.

    Raises:
        InputError: unknown backbone or weights, a file that doesn't fit the network, or a download that failed.
    """
    if name not in backbone_names():
        close = get_close_matches(name.lower().replace("-", ""), backbone_names(), n=3, cutoff=0.5)
        raise InputError(
            f"--backbone {name} is unknown.{' Did you mean ' + ', '.join(close) + '?' if close else ''} "
            f"Known: {', '.join(backbone_names())}."
        )
    if image_size is not None and image_size < 1:
        raise InputError(f"--image-size should be 1 pixel or more, but is {image_size}.")
    if name == SCATTERING:
        return _scattering(weights, image_size)
    known = models.get_model_weights(name)
    origin = known.DEFAULT
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = models.get_model(name, weights=None)
        trunk = _without_head(model)
        if weights == "none":
            trunk = _Scaled(trunk)
    if weights == "none":
        label = f"random-{seed}"
    elif weights is not None and (Path(weights).is_file() or Path(weights).suffix in (".pth", ".pt", ".safetensors")):
        path = Path(weights)
        origin = next((entry for entry in known if entry.url.endswith("/" + path.name)), origin)
        _load_strictly(model, _read_state(path), path, name)
        label = f"sha256-{sha256_of_file(path)}"
    else:
        origin = _named_weights(name, known, weights)
        _load_strictly(model, _download(origin, name), origin.url, name)
        label = origin.name
    preprocessing = _preprocessing_of(origin)
    if image_size is not None:
        preprocessing = preprocessing.with_crop(image_size)
    return Backbone(name, trunk.eval(), preprocessing, label)


def _without_head(model: nn.Module) -> nn.Module:
    """Everything up to the last convolutional map."""
    features = getattr(model, "features", None)
    return features if isinstance(features, nn.Module) else nn.Sequential(*list(model.children())[:-2])


def _preprocessing_of(weights: Any) -> Preprocessing:
    transforms = weights.transforms()
    return Preprocessing(
        resize=transforms.resize_size[0],
        crop=transforms.crop_size[0],
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
        interpolation=transforms.interpolation.value,
    )


def _scattering(weights: str | None, image_size: int | None) -> Backbone:
    from .scattering import ScatteringNetwork

    if weights not in (None, "none"):
        raise InputError(
            f"--backbone {SCATTERING} has no weights to learn, but --weights is {weights}. Leave --weights out."
        )
    try:
        network = ScatteringNetwork() if image_size is None else ScatteringNetwork(image_size=image_size)
    except ValueError as error:
        raise InputError(f"--image-size doesn't suit --backbone {SCATTERING}: {error}") from error
    return Backbone(SCATTERING, network.eval(), Preprocessing(network.image_size, network.image_size), "none")


def _named_weights(name: str, known: Any, weights: str | None) -> Any:
    if weights is None:
        return known.DEFAULT
    try:
        return known[weights]
    except KeyError:
        names = ", ".join(entry.name for entry in known)
        raise InputError(
            f"--weights {weights} is neither a file nor weights of {name}, which has: {names}, none (random numbers)."
        ) from None


def _download(origin: Any, name: str) -> dict[str, torch.Tensor]:
    try:
        return origin.get_state_dict(progress=True, check_hash=True)
    except Exception as error:  # no network, no such host, a hash that differs, a full disk: always the same way out
        file = origin.url.rsplit("/", 1)[-1]
        raise InputError(
            f"The weights {origin.name} of {name} can't be downloaded from {origin.url}: {error}. Offline, "
            f"copy it to {Path(torch.hub.get_dir()) / 'checkpoints' / file}, or elsewhere and add: --weights {file}"
        ) from error


def _read_state(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise InputError(f"--weights {path} should be a state_dict (.pth, .pt, .safetensors), but doesn't exist.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each reader has errors of its own, and torch's tell to switch the safety off
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(
            f"--weights {path} should be a state_dict of plain tensors, but can't be read: {reason}"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        inner = f" with {', '.join(map(repr, list(state)[:5]))}" if isinstance(state, dict) else ""
        raise InputError(
            f"--weights {path} should be a state_dict (name -> tensor), but is a {type(state).__name__}{inner}."
        )
    return state


def _load_strictly(model: nn.Module, state: dict[str, torch.Tensor], origin: Path | str, name: str) -> None:
    expected = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    found = {key: tuple(value.shape) for key, value in state.items()}
    # Checkpoints from before torch 0.4.1 don't count batches; torch fills that in, and evaluation doesn't use it.
    missing = [key for key in expected if key not in found and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in found if key not in expected]
    resized = [key for key in found if key in expected and found[key] != expected[key]]
    problems = []
    if missing:
        problems.append(f"{len(missing)} missing ({', '.join(missing[:3])})")
    if unexpected:
        problems.append(f"{len(unexpected)} unexpected ({', '.join(unexpected[:3])})")
    if resized:
        problems.append(
            f"{len(resized)} of another shape ({resized[0]} is {found[resized[0]]}, not {expected[resized[0]]})"
        )
    if problems:
        raise InputError(
            f"{origin} should hold the {len(expected)} tensors of {name}, but has " + ", ".join(problems) + "."
        )
    model.load_state_dict(state, strict=not any(key not in found for key in expected))


class _Scaled(nn.Module):
    """A random network with its map brought to a mean square of 1.

    What random weights make of a picture is 10^-13 (EfficientNet-B7) to 10^8 (ResNet-152); float16 holds neither. The
    scale comes from noise of every coarseness, as photos have it.

    Shapes:
        network: (B, 3, H, W) -> (B, C, h, w)
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.eval()
        noise = [interpolate(torch.randn(2, 3, side, side), 128, mode="bilinear") for side in (1, 2, 4, 8, 16, 32, 64)]
        with torch.no_grad():
            exponent = network(torch.stack(noise).mean(dim=0)).double().square().mean().log2().div(-2).round()
        self.scale = 2.0 ** float(
            exponent
        )  # a power of two: the order of a sum, different with more threads, can't show

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Run the network and scale its map.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, C, h, w)
        """
        return self.network(images) * self.scale
