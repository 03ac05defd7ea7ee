"""MobileNetV1 of a quarter's width (Howard et al. 2017), as somebody else's package would bring it, with its classes.

For `--backbone tests.features.mobilenet:mobilenet`; its weights and the names of its classes are in the shared data.
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import pad

from visual_grounding.features.backbones import Backbone, Preprocessing
from visual_grounding.storage.weights import read_weights

WIDTHS = (16, 32, 32, 64, 64, *[128] * 6, 256, 256)  # of the 13 blocks
STRIDED = (2, 4, 6, 12)


class Convolution(nn.Module):
    """Convolution, batch norm, ReLU6, padded as TensorFlow does it."""

    def __init__(self, weights: dict[str, torch.Tensor], name: str, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        kernel = weights[f"{name}.weight"]
        self.stride, self.side = stride, kernel.shape[2]
        self.conv = nn.Conv2d(kernel.shape[1] * groups, len(kernel), self.side, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(len(kernel), eps=1e-3)
        with torch.no_grad():
            self.conv.weight.copy_(kernel)
            for part in ("weight", "bias", "running_mean", "running_var"):
                getattr(self.norm, part).copy_(weights[f"{name}_bn.{part}"])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.side == 3:
            images = pad(images, (0, 1, 0, 1) if self.stride == 2 else (1, 1, 1, 1))
        return self.norm(self.conv(images)).clamp(0, 6)


class Classifier(nn.Module):
    """(B, 3, 224, 224) -> (B, 256), (B, 1000)."""

    def __init__(self, network: nn.Module, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.network = network
        self.head = nn.Linear(256, 1000)
        with torch.no_grad():
            self.head.weight.copy_(weights["conv_preds.weight"].flatten(1))
            self.head.bias.copy_(weights["conv_preds.bias"])

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pooled = self.network(images).mean(dim=(2, 3))
        return pooled, self.head(pooled)


def mobilenet(weights: str | None = None, image_size: int | None = None, seed: int = 1) -> Backbone:
    """`weights` is the file."""
    path = Path(str(weights))
    state = {name: each.float() for name, each in read_weights(path).items()}
    blocks = [Convolution(state, "conv1", stride=2)]
    before = 8
    for number, width in enumerate(WIDTHS, 1):
        blocks.append(Convolution(state, f"conv_dw_{number}", 2 if number in STRIDED else 1, groups=before))
        blocks.append(Convolution(state, f"conv_pw_{number}"))
        before = width
    network = nn.Sequential(*blocks)
    names = tuple((path.parent / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines())
    centred = Preprocessing(224, 224, mean=(0.5,) * 3, std=(0.5,) * 3)
    return Backbone("mobilenet", network, centred, path.name, None, Classifier(network, state), names)
