"""A backbone from outside the package: Keras' MobileNet, 0.25 wide, with the weights of the data folder.

    PYTHONPATH=examples visual-grounding extract --backbone multi30k.mobilenet:mobilenet \
        --weights ../shared/data/flickr8k/weights/mobilenet_v1_0.25_224.safetensors --region-source grid …

timm's `mobilenetv1_100` is another one: as wide as in the paper, and padded alike on both sides.
"""

from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import pad

from visual_grounding.errors import InputError
from visual_grounding.features.backbones import Backbone, Preprocessing
from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.weights import load_strictly, read_weights

WIDTHS = (8, 16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256)  # the first is that of conv1
HALVING = (2, 4, 6, 12)  # the blocks that halve height and width, as conv1 does
CLASSES = 1000
EPSILON = 1e-3  # of Keras' batch normalisation there


class MobileNet(nn.Module):
    """Depthwise separable convolutions (Howard et al. 2017); layers have the names that they have in Keras.

    Shapes:
        images: (B, 3, H, W), in −1..1
        returns: (B, 256, H / 32, W / 32)
    """

    def __init__(self) -> None:
        super().__init__()
        self.add("conv1", 3, WIDTHS[0], 3)
        for block, (narrow, wide) in enumerate(pairwise(WIDTHS), 1):
            self.add(f"conv_dw_{block}", narrow, narrow, 3, groups=narrow)
            self.add(f"conv_pw_{block}", narrow, wide, 1)

    def add(self, name: str, narrow: int, wide: int, kernel: int, groups: int = 1) -> None:
        """A convolution and its normalisation."""
        self.add_module(name, nn.Conv2d(narrow, wide, kernel, bias=False, groups=groups))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(wide, eps=EPSILON))

    def step(self, name: str, images: Tensor, halve: bool = False) -> Tensor:
        """One convolution; what halves pads right and bottom alone, as Keras does there."""
        layer, normalise = self.get_submodule(name), self.get_submodule(f"{name}_bn")
        assert isinstance(layer, nn.Conv2d)
        if layer.kernel_size == (3, 3):
            images = pad(images, (0, 1, 0, 1) if halve else (1, 1, 1, 1))
        stride = 2 if halve else 1
        return normalise(nn.functional.conv2d(images, layer.weight, stride=stride, groups=layer.groups)).clamp(0, 6)

    def forward(self, images: Tensor) -> Tensor:
        """Images to their map."""
        images = self.step("conv1", images, halve=True)
        for block in range(1, len(WIDTHS)):
            images = self.step(f"conv_dw_{block}", images, halve=block in HALVING)
            images = self.step(f"conv_pw_{block}", images)
        return images


class Classifier(nn.Module):
    """The mean over the map, and the classes; shapes: (B, 3, H, W) -> (B, 256), (B, 1000)."""

    def __init__(self, network: MobileNet) -> None:
        super().__init__()
        self.network = network
        self.conv_preds = nn.Conv2d(WIDTHS[-1], CLASSES, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images to what the classes are told from, and their logits."""
        pooled = self.network(images).mean(dim=(2, 3))
        return pooled, self.conv_preds(pooled[..., None, None]).flatten(1)


def mobilenet(weights: str | None = None, image_size: int | None = None, seed: int = 1) -> Backbone:
    """What `--backbone multi30k.mobilenet:mobilenet` asks for; the names of the classes lie beside the weights.

    Raises:
        InputError: no weights, or such as don't fit.
    """
    if weights is None:
        raise InputError("mobilenet has no weights of its own. Name mobilenet_v1_0.25_224.safetensors.", "weights")
    path, classifier = Path(weights), Classifier(MobileNet())
    read = read_weights(path).items()
    state = {name if name.startswith("conv_preds") else f"network.{name}": each for name, each in read}
    state |= {name: each for name, each in classifier.state_dict().items() if name.endswith("num_batches_tracked")}
    load_strictly(classifier, state, path, "mobilenet")
    classifier.eval()
    side = image_size or 224
    names = (path.parent / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines()
    return Backbone(
        "mobilenet",
        classifier.network,
        Preprocessing(side, side, mean=(0.5,) * 3, std=(0.5,) * 3),
        f"sha256-{sha256_of_file(path)}",
        classifier=classifier,
        class_names=tuple(names),
    )
