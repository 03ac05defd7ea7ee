"""torchvision's detectors: Faster, Mask and Keypoint R-CNN, RetinaNet, FCOS, SSD.

Boxes, labels and scores are what the network itself returns; nothing of its detection is written anew here. Region
features are pooled from the maps that its first half made on the way.
"""

import math
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torchvision import models
from torchvision.ops import MultiScaleRoIAlign

from ...errors import InputError
from ...images.sources import UnreadableImage
from ...storage.artefact import sha256_of_file
from ...storage.weights import load_strictly, read_weights
from ..backbones.torchvision_networks import download, named_weights
from ..backbones.weights import is_file, photo_like_noise, scale_of
from ..columns import Columns
from ..computation import Computation
from .projection import Projection
from .region_pooling import CELLS, SAMPLES
from .selection import Selection, as_rows, cut_to_picture

# Their COCO_V1 were trained with an epsilon of 0 in batch norm, which torchvision sets beside loading them.
_WITHOUT_EPSILON = (
    "fasterrcnn_resnet50_fpn",
    "keypointrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn",
    "retinanet_resnet50_fpn",
)
_ALL = 10**9  # boxes of a picture


def detector_names() -> list[str]:
    """Names that `load_torchvision_detector` knows."""
    return models.list_models(module=models.detection)


def load_torchvision_detector(
    name: str,
    weights: str | None,
    image_size: int | None,
    seed: int,
    label_names: Sequence[str] | None,
    selection: Selection,
    projection: Projection | None,
    computation: Computation,
) -> "TorchvisionDetector":
    """Build one, in evaluation mode.

    Args:
        name: one of `detector_names()`.
        weights, image_size, seed, label_names, selection, projection: as `load_detector`.

    Raises:
        InputError: unknown weights, a file that doesn't fit the network, a download that failed, names of another
            number than the network has classes, an image size that the network doesn't take, or as
            `TorchvisionDetector`.
    """
    known = models.get_model_weights(name)
    names = tuple(label_names or known.DEFAULT.meta["categories"])
    scale = 1.0
    if weights == "none":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = _build(name, len(names))
            with torch.no_grad():
                maps = model.eval().backbone(photo_like_noise((320, 320)))  # type: ignore[operator, union-attr]
        scale, label = scale_of(next(iter(maps.values()))), f"random-{seed}"
    elif weights is not None and is_file(weights):
        path = Path(weights)
        model = _build(name, len(names))
        origin = next((entry for entry in known if entry.url.endswith("/" + path.name)), known.DEFAULT)
        try:
            load_strictly(model, read_weights(path), path, f"{name} for {len(names)} classes")
        except InputError as error:
            remedy = "Where it knows other classes, name them all, one a line, the background first."
            raise InputError(f"{error} {remedy}", "weights", "label_names") from error
        # Assumption: weights of one's own were trained on from torchvision's.
        if name in _WITHOUT_EPSILON and origin.name == "COCO_V1":
            _set_epsilon(model, 0.0)
        label = f"sha256-{sha256_of_file(path)}"
    else:
        origin = named_weights(name, known, weights)
        categories = origin.meta["categories"]
        names = tuple(label_names or categories)
        if len(names) != len(categories):
            raise InputError(
                f"the weights {origin.name} of {name} know {len(categories)} classes, from {categories[0]!r} to "
                f"{categories[-1]!r}, but {len(names)} names were given.",
                "label_names",
            )
        download(origin, name)  # into torchvision's own cache, or a message that says what to do
        model = models.get_model(name, weights=origin)
        label = origin.name
    if image_size is not None:
        _resize(model, name, image_size)
    return TorchvisionDetector(name, model, label, names, selection, projection, computation, scale)


def _build(name: str, classes: int) -> nn.Module:
    return models.get_model(name, weights=None, weights_backbone=None, num_classes=classes)


def _set_epsilon(model: nn.Module, epsilon: float) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = epsilon


def _resize(model: Any, name: str, image_size: int) -> None:
    """Let the network see pictures in another size."""
    transform = model.transform
    if transform.fixed_size is not None:
        width, height = transform.fixed_size
        if (width, height) != (image_size, image_size):
            raise InputError(
                f"{name} sees every picture in {width}x{height} pixels, not {image_size}. Leave the size out.",
                "image_size",
            )
        return
    transform.max_size = round(transform.max_size * image_size / transform.min_size[0])
    transform.min_size = (image_size,)


class DetectorWithMaps(nn.Module):
    """A torchvision detector that says, beside what it found, what its maps were and in which size it saw pictures.

    Shapes:
        images: B of (3, H, W) in 0..1, of any size each
        returns: B of boxes (K, 4) in pixels, labels and scores (K,); maps by name, (B, C, h, w) each; B of (H, W)
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self._maps: dict[str, torch.Tensor] = {}
        self._sizes: list[tuple[int, int]] = []
        model.backbone.register_forward_hook(self._see_maps)
        model.transform.register_forward_hook(self._see_sizes)

    def _see_maps(self, module: nn.Module, inputs: Any, maps: dict[str, torch.Tensor]) -> None:
        self._maps = maps

    def _see_sizes(self, module: nn.Module, inputs: Any, transformed: Any) -> None:
        self._sizes = transformed[0].image_sizes

    def forward(
        self, images: list[torch.Tensor]
    ) -> tuple[list[dict[str, torch.Tensor]], dict[str, torch.Tensor], list[tuple[int, int]]]:
        """Detect.

        Shapes:
            images: B of (3, H, W) in 0..1
            returns: B of boxes (K, 4), labels and scores (K,); maps (B, C, h, w); B of (H, W)
        """
        found = self.model(images)
        maps, self._maps = self._maps, {}  # not kept for longer than they are needed
        return found, maps, self._sizes


class TorchvisionDetector:
    """An `Extractor` of the most confident regions of a picture.

    Region features are the mean of RoIAlign over the box, of the pyramid's level that suits the box's size
    (`MultiScaleRoIAlign`). R-CNNs pool with what they classify with. RetinaNet and FCOS have no such part: the same
    rule over their pyramid's three finest levels. SSD's maps differ in kind and size: its finest.

    Args:
        label_names: of all the network's classes, the background included.
        scale: of the features, so that float16 holds those of random weights.

    Raises:
        InputError: the projection doesn't fit the features.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        weights: str,
        label_names: Sequence[str],
        selection: Selection,
        projection: Projection | None,
        computation: Computation,
        scale: float = 1.0,
    ) -> None:
        self.selection = selection
        self.computation = computation
        self.columns = Columns(("boxes", "labels", "scores"), label_names)
        _prepare(model, selection)
        self.network = DetectorWithMaps(model.eval()).to(computation.device)
        self._transform = model.transform
        sizes = self._map_sizes()
        self._pool = _pooler(model, sizes)
        self._maps = [level for level in self._pool.featmap_names if level in sizes]  # MobileNet has two of the four
        size = sizes[self._maps[0]]
        self._scale = scale
        self._projection = projection
        if projection is not None:
            projection.check([size], [" and ".join(self._maps)])
            projection.to(computation.device)
        self.shape = (selection.regions, projection.size if projection else size)
        preprocessing = f"{self._transform.min_size[0]}/{self._transform.max_size}"
        choices = {"detector": name, "weights": weights, "preprocessing": preprocessing, **selection.described()}
        if projection is not None:
            choices |= {"feature_pca": projection.digest, "feature_size": projection.size}
        self.plan: dict[str, Any] = choices
        self.signed: dict[str, Any] = choices

    def load(self, image: Image.Image) -> np.ndarray:
        """The pixels; the network itself resizes them.

        Shapes:
            returns: (H, W, 3) uint8

        Raises:
            UnreadableImage: the picture is so long and thin that nothing is left of it once it is resized.
        """
        if self._transform.fixed_size is None:
            short, long = min(image.size), max(image.size)
            scale = min(self._transform.min_size[0] / short, self._transform.max_size / long)
            if math.floor(short * scale) < 1:
                shown = f"{image.width}x{image.height}"
                raise UnreadableImage(f"{shown} pixels, too thin to be resized to {self._transform.max_size}")
        return np.array(image)

    def rows(self, pictures: Sequence[np.ndarray | None]) -> dict[str, torch.Tensor]:
        """Regions of a batch.

        Shapes:
            pictures: B of (H, W, 3) uint8
            returns: features (B, R, F), boxes (B, R, 4), labels and scores (B, R), on the device; dropped (B,)
        """
        device = self.computation.device
        found: list[dict[str, torch.Tensor] | None] = [None] * len(pictures)
        dropped = [0] * len(pictures)
        places = [place for place, picture in enumerate(pictures) if picture is not None]
        if places:
            with self.computation.of(len(places)):
                images = [torch.from_numpy(pictures[place]).to(device, non_blocking=True) for place in places]
                images = [image.permute(2, 0, 1).float() / 255 for image in images]
                detected, maps, sizes = self.network(images)
            with torch.inference_mode():  # without autocast: pooled in float32
                kept = [self._keep(each, image) for each, image in zip(detected, images)]
                features = self._features([regions["boxes"] for regions, _ in kept], maps, sizes)
                for place, (regions, count), own in zip(places, kept, features):
                    found[place], dropped[place] = {"features": own, **regions}, count
        return as_rows(found, dropped, self.shape, self.columns.present, device)

    def _keep(self, detected: dict[str, torch.Tensor], image: torch.Tensor) -> tuple[dict[str, torch.Tensor], int]:
        """What is kept of a picture, and how many boxes had no area.

        Shapes:
            detected: boxes (Q, 4) in pixels, labels and scores (Q,);  image: (3, H, W)
            returns: boxes (K, 4) in 0..1, labels and scores (K,)
        """
        height, width = image.shape[1:]
        boxes = detected["boxes"].float() / torch.tensor([width, height, width, height], device=image.device)
        boxes, real = cut_to_picture(boxes)
        boxes, labels, scores = boxes[real], detected["labels"][real], detected["scores"][real].float()
        if self.selection.nms_across_classes:  # otherwise the network itself suppresses, and cuts off
            kept = self.selection.of(boxes, labels, scores)
            boxes, labels, scores = boxes[kept], labels[kept], scores[kept]
        return {"boxes": boxes, "labels": labels, "scores": scores}, int((~real).sum())

    def _features(
        self, boxes: list[torch.Tensor], maps: dict[str, torch.Tensor], sizes: list[tuple[int, int]]
    ) -> Sequence[torch.Tensor]:
        """Features of the boxes of each picture.

        Shapes:
            boxes: B of (K, 4) in 0..1;  maps: (B, C, h, w) each;  sizes: B of (H, W)
            returns: B of (K, F)
        """
        sides = [torch.tensor([width, height, width, height], device=boxes[0].device) for height, width in sizes]
        resized = [each * side for each, side in zip(boxes, sides)]
        pooled = self._pool({name: maps[name].float() for name in self._maps}, resized, sizes)  # (sum of K, C, 7, 7)
        features = pooled.mean(dim=(2, 3)) * self._scale
        if self._projection is not None:
            features = self._projection([features])
        return features.split([len(each) for each in boxes])

    def _map_sizes(self) -> dict[str, int]:
        """C of each map, by a small blank image."""
        with self.computation.of(1):
            maps = self._backbone(torch.zeros(1, 3, 320, 320, device=self.computation.device))
        return {name: each.shape[1] for name, each in maps.items()}

    def _backbone(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Maps (B, C, h, w) of preprocessed images (B, 3, H, W)."""
        return self.network.model.backbone(images)


def _prepare(model: Any, selection: Selection) -> None:
    """Set thresholds as the network's own, and leave out what it would compute for nothing: masks and keypoints."""
    head = getattr(model, "roi_heads", model)
    head.score_thresh = selection.min_score
    head.detections_per_img = _ALL if selection.nms_across_classes else selection.regions
    if selection.nms_iou is not None:
        head.nms_thresh = selection.nms_iou
    if head is not model:
        head.mask_roi_pool = head.keypoint_roi_pool = None


def _pooler(model: Any, sizes: dict[str, int]) -> Any:
    """What pools region features from the maps, given their numbers of channels."""
    head = getattr(model, "roi_heads", None)
    if head is not None:
        return head.box_roi_pool
    first = next(iter(sizes.values()))
    levels = list(takewhile(lambda name: name.isdigit() and sizes[name] == first, sizes))
    return MultiScaleRoIAlign(levels, CELLS, SAMPLES)
