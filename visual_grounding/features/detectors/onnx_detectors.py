"""Any detector in an ONNX file, through onnxruntime: what finds regions without its library or its code.

A file is understood that has what DETR's descendants are exported with:

- one input (N, 3, H, W) float32: RGB in 0..1, the whole picture stretched to H x W; beside it maybe (N, 2) int64, the
  size that boxes are scaled to, which is given as 1 x 1;
- the outputs `labels` (N, Q), `boxes` (N, Q, 4), x0 y0 x1 y1 in 0..1, and `scores` (N, Q); maybe `attributes` (N, Q);
- maps (N, C, h, w), any of its outputs, which region features are pooled from. A file that lacks them gets them where a
  layer's result is named as an output.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ...devices import cores
from ...errors import InputError, in_short
from ...storage.artefact import sha256_of_file
from ..columns import Columns
from ..computation import Computation
from .projection import Projection
from .region_pooling import pool_boxes
from .selection import Selection, as_rows, cut_to_picture

FOUND = ("labels", "boxes", "scores")
ATTRIBUTES = "attributes"
# Boxes of objects at the border reach a little over it; beyond a whole picture away they are no numbers of 0..1.
FARTHEST = (-1.0, 2.0)
BEFORE = 0.001  # how far the second corner may lie before the first, with what half precision rounds
HIGHEST = 1.001  # score, with what half precision rounds


def load_onnx_detector(
    path: Path,
    label_names: Sequence[str] | None,
    attribute_names: Sequence[str] | None,
    feature_maps: Sequence[str],
    image_size: int | None,
    selection: Selection,
    projection: Projection | None,
    computation: Computation,
) -> "OnnxDetector":
    """Open a file and check that it is understood.

    Raises:
        InputError: there is no such file, onnxruntime isn't installed or has no such device, a precision other than the
            file's own, no names of labels, or as `OnnxDetector`.
    """
    if computation.precision != "float32":
        raise InputError(
            f"{path} computes in the precision that it was exported in, not in {computation.precision}. Leave the "
            "precision out.",
            "precision",
        )
    if not path.is_file():
        raise InputError(f"{path} should be an ONNX file, but {'is none' if path.exists() else 'does not exist'}.")
    if not label_names:
        raise InputError(
            f"{path} gives numbers of labels, but not what they are called. Give a file with one name a line; the "
            "first is number 0.",
            "label_names",
        )
    session = _open(path, computation.device)
    return OnnxDetector(
        path, session, label_names, attribute_names, feature_maps, image_size, selection, projection, computation
    )


def _open(path: Path, device: torch.device) -> Any:
    """A session of onnxruntime."""
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError(
            "a detector in an ONNX file needs onnxruntime, which isn't installed. Install it: pip install "
            "'visual_grounding[onnx]'",
            "detector",
        ) from error
    provider: Any = "CPUExecutionProvider"
    if device.type == "cuda":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise InputError(
                f"this onnxruntime has {', '.join(onnxruntime.get_available_providers())}, so it can't compute on "
                f"{device}. Install onnxruntime-gpu in its place, or choose cpu as the device.",
                "device",
            )
        provider = ("CUDAExecutionProvider", {"device_id": device.index or 0, "cudnn_conv_algo_search": "HEURISTIC"})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    options.log_severity_level = 3  # errors alone: exported graphs are full of harmless warnings
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[provider])
    except Exception as error:  # broken files, unknown operators, missing external data: onnxruntime has an error each
        raise InputError(f"{path} can't be opened by onnxruntime: {in_short(error)}.", "detector") from error


class OnnxDetector:
    """An `Extractor` of the most confident regions of a picture.

    Args:
        path: of the file, for messages and its digest.
        session: an open onnxruntime session.
        image_size: the side of the square that the network sees, where the file leaves it open.

    Raises:
        InputError: inputs or outputs that aren't understood, maps or attributes that the file doesn't have, an image
            size other than the file's own, or a projection that doesn't fit the maps.
    """

    def __init__(
        self,
        path: Path,
        session: Any,
        label_names: Sequence[str],
        attribute_names: Sequence[str] | None,
        feature_maps: Sequence[str],
        image_size: int | None,
        selection: Selection,
        projection: Projection | None,
        computation: Computation,
    ) -> None:
        self.path = path
        self.selection = selection
        self.computation = computation
        self._session = session
        inputs = {each.name: (each.type, list(each.shape)) for each in session.get_inputs()}
        outputs = {each.name: (each.type, list(each.shape)) for each in session.get_outputs()}
        self._images, self._sizes = _inputs_of(path, inputs)
        self.one_by_one = _only_one(inputs[self._images][1][0], path)
        self.picture = _picture_size(path, inputs[self._images][1][2:], image_size)
        with_attributes = bool(attribute_names)
        _check_outputs(path, outputs, with_attributes)
        names = ("boxes", "labels", *([ATTRIBUTES] if with_attributes else []), "scores")
        self.columns = Columns(names, label_names, attribute_names or ())
        sizes = _map_sizes(path, outputs, feature_maps)
        self._maps = list(feature_maps)
        self._projection = projection
        if projection is not None:
            projection.check(sizes, feature_maps)
            projection.to(computation.device)
        self.shape = (selection.regions, projection.size if projection else sum(sizes))
        choices: dict[str, Any] = {
            "detector": f"onnx:{path.name}",
            "weights": f"sha256-{sha256_of_file(path)}",
            "preprocessing": f"stretched to {'x'.join(map(str, self.picture))}",
            "feature_maps": ",".join(feature_maps),
            **selection.described(),
        }
        if projection is not None:
            choices |= {"feature_pca": projection.digest, "feature_size": projection.size}
        self.plan = choices
        self.signed = choices

    def load(self, image: Image.Image) -> np.ndarray:
        """The whole picture, stretched.

        Shapes:
            returns: (H, W, 3) uint8
        """
        height, width = self.picture
        return np.array(image.resize((width, height), Image.Resampling.BILINEAR))

    def rows(self, pictures: Sequence[np.ndarray | None]) -> dict[str, torch.Tensor]:
        """Regions of a batch.

        Shapes:
            pictures: B of (H, W, 3) uint8
            returns: features (B, R, F), boxes (B, R, 4), labels, maybe attributes, and scores (B, R), on the device;
                dropped (B,)

        Raises:
            InputError: the network fails, or gives boxes or scores that don't lie in 0..1 or labels without a name.
        """
        found: list[dict[str, torch.Tensor] | None] = [None] * len(pictures)
        dropped = [0] * len(pictures)
        places = [place for place, picture in enumerate(pictures) if picture is not None]
        step = 1 if self.one_by_one else max(1, len(places))
        for start in range(0, len(places), step):
            own = places[start : start + step]
            images = np.stack([pictures[place] for place in own]).astype(np.float32) / 255  # type: ignore[misc]
            for place, (regions, count) in zip(own, self.regions(images.transpose(0, 3, 1, 2))):
                found[place], dropped[place] = regions, count
        return as_rows(found, dropped, self.shape, self.columns.present, self.computation.device)

    def regions(self, images: np.ndarray) -> list[tuple[dict[str, torch.Tensor], int]]:
        """What is kept of each picture, and how many of its boxes had no area.

        Shapes:
            images: (B, 3, H, W) float32 in 0..1
            returns: features (K, F), boxes (K, 4), labels, maybe attributes, and scores (K,)

        Raises:
            InputError: as `rows`.
        """
        outputs = self._run(images)
        columns = self.columns.present
        kept = [self._keep({name: outputs[name][place] for name in columns}) for place in range(len(images))]
        device = self.computation.device
        boxes = [regions["boxes"].to(device) for regions, _ in kept]
        with torch.inference_mode():
            blocks = [pool_boxes(torch.from_numpy(outputs[name]).to(device), boxes) for name in self._maps]
            features = torch.cat(blocks, dim=1) if self._projection is None else self._projection(blocks)
        of_each = features.split([len(each) for each in boxes])
        return [({"features": own, **regions}, count) for own, (regions, count) in zip(of_each, kept)]

    def _run(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs that are needed, by name."""
        feed = {self._images: np.ascontiguousarray(images)}
        if self._sizes:
            feed[self._sizes] = np.ones((len(images), 2), dtype=np.int64)
        names = [*self.columns.present, *self._maps]
        try:
            outputs = dict(zip(names, self._session.run(names, feed)))
        except Exception as error:  # onnxruntime's own, one for each thing that can go wrong
            raise InputError(
                f"{self.path} failed on {len(images)} pictures of {'x'.join(map(str, self.picture))} pixels: "
                f"{in_short(error)}. Where memory doesn't suffice, choose a smaller batch size.",
                "detector",
                "batch_size",
            ) from error
        _check_shapes(self.path, {name: outputs[name].shape for name in self.columns.present}, len(images))
        return outputs

    def _keep(self, found: dict[str, np.ndarray]) -> tuple[dict[str, torch.Tensor], int]:
        """What is kept of a picture, and how many boxes had no area.

        Shapes:
            found: boxes (Q, 4), labels, scores and maybe attributes (Q,)
            returns: the same, K of each, cut to the picture
        """
        confident = ~(found["scores"] < self.selection.min_score)  # NaN stays, to be refused
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values[confident])) for name, values in found.items()}
        tensors["boxes"] = tensors["boxes"].float()
        self._check_found(tensors)
        tensors["boxes"], real = cut_to_picture(tensors["boxes"])
        tensors = {name: values[real] for name, values in tensors.items()}
        kept = self.selection.of(tensors["boxes"], tensors["labels"], tensors["scores"].float())
        return {name: values[kept] for name, values in tensors.items()}, int((~real).sum())

    def _check_found(self, found: dict[str, torch.Tensor]) -> None:
        """Refuse what would be taken for something else."""
        boxes, (low, high) = found["boxes"], FARTHEST
        near = ((boxes >= low) & (boxes <= high)).all(dim=1)  # NaN is neither
        if not near.all():
            shown = " ".join(f"{value:g}" for value in boxes[~near][0].tolist())
            raise InputError(
                f"{self.path} should give boxes in 0..1 of the picture, x0 y0 x1 y1, but one is {shown}. Export it "
                "with boxes divided by the picture's width and height.",
                "detector",
            )
        turned = (boxes[:, 2:] < boxes[:, :2] - BEFORE).any(dim=1)
        if turned.any():
            shown = " ".join(f"{value:g}" for value in boxes[turned][0].tolist())
            raise InputError(
                f"{self.path} should give boxes as two corners, x0 y0 x1 y1 with x0 <= x1 and y0 <= y1, but one is "
                f"{shown}. If these are centre, width and height, or y first, export it with corners.",
                "detector",
            )
        if not (found["scores"] <= HIGHEST).all():
            raise InputError(
                f"{self.path} should give scores in 0..1, but one is {found['scores'].max():g}. Export it with what "
                "turns its numbers into probabilities, such as a sigmoid.",
                "detector",
            )
        for column in ("labels", ATTRIBUTES):
            names = self.columns.names_of(column)
            beyond = [number for number in found[column].tolist() if not 0 <= number < len(names)] if names else []
            if beyond:
                raise InputError(
                    f"{self.path} gives {column} beyond the {len(names)} names: {beyond[0]}, where names have the "
                    f"numbers 0 to {len(names) - 1}. Give the names that this detector was trained with.",
                    f"{column[:-1]}_names",
                )


def _listed(found: dict[str, tuple[str, list[Any]]]) -> str:
    """Inputs or outputs as a message says them: images float (N, 3, 416, 416)."""
    kinds = {name: kind.removeprefix("tensor(").rstrip(")") for name, (kind, _) in found.items()}
    said = [f"{name} {kinds[name]} ({', '.join(map(str, shape))})" for name, (_, shape) in found.items()]
    return "; ".join(said) or "none"


def _inputs_of(path: Path, inputs: dict[str, tuple[str, list[Any]]]) -> tuple[str, str | None]:
    """Names of the input of pictures, and of that of sizes where there is one."""
    images = [name for name, (kind, shape) in inputs.items() if kind == "tensor(float)" and len(shape) == 4]
    sizes = [name for name, (kind, shape) in inputs.items() if kind == "tensor(int64)" and shape[1:] == [2]]
    colours = [inputs[name][1][1] for name in images]
    understood = len(images) == 1 and len(sizes) <= 1 and len(inputs) == 1 + len(sizes)
    if not understood or (isinstance(colours[0], int) and colours[0] != 3):
        raise InputError(
            f"{path} should have one input of pictures, float (N, 3, H, W), and maybe one of sizes, int64 (N, 2), but "
            f"has {_listed(inputs)}.",
            "detector",
        )
    return images[0], sizes[0] if sizes else None


def _only_one(batch: Any, path: Path) -> bool:
    """Whether the network takes only one picture at once."""
    if isinstance(batch, int) and batch != 1:
        raise InputError(
            f"{path} takes exactly {batch} pictures at once. Export it with a free batch size, or with 1.", "detector"
        )
    return batch == 1


def _picture_size(path: Path, sides: list[Any], image_size: int | None) -> tuple[int, int]:
    """(H, W) of what the network sees."""
    fixed = [side for side in sides if isinstance(side, int)]
    if image_size is None and len(fixed) != 2:
        raise InputError(
            f"{path} takes pictures of any size ({', '.join(map(str, sides))}). Say which it was trained with.",
            "image_size",
        )
    if image_size is not None and any(side != image_size for side in fixed):
        raise InputError(
            f"{path} sees pictures in {'x'.join(map(str, sides))} pixels, not {image_size}. Leave the size out.",
            "image_size",
        )
    height, width = (side if isinstance(side, int) else image_size for side in sides)
    return int(height or 0), int(width or 0)


def _check_outputs(path: Path, outputs: dict[str, tuple[str, list[Any]]], with_attributes: bool) -> None:
    """Refuse a file that doesn't say what it finds, or says it otherwise."""
    dimensions = {"labels": 2, "boxes": 3, "scores": 2} | ({ATTRIBUTES: 2} if with_attributes else {})
    numbers = {"labels": "int", ATTRIBUTES: "int", "boxes": "float", "scores": "float"}
    for name, count in dimensions.items():
        kind, shape = outputs.get(name, ("", []))
        if len(shape) != count or numbers[name] not in kind:
            wanted = "labels int (N, Q), boxes float (N, Q, 4) and scores float (N, Q)"
            wanted += ", and attributes int (N, Q), since they have names" if with_attributes else ""
            raise InputError(
                f"{path} should have the outputs {wanted}, but has {_listed(outputs)}.",
                *(("attribute_names",) if name == ATTRIBUTES else ("detector",)),
            )


def _check_shapes(path: Path, shapes: dict[str, tuple[int, ...]], pictures: int) -> None:
    """Refuse outputs that don't belong together: a file may leave its sizes open until it is run."""
    each = shapes["scores"][1:2]
    if any(shape != (pictures, *each, *((4,) if name == "boxes" else ())) for name, shape in shapes.items()):
        raise InputError(
            f"{path} should give as many of each for {pictures} pictures, boxes (N, Q, 4) and all others (N, Q), but "
            f"gave {', '.join(f'{name} {shape}' for name, shape in shapes.items())}.",
            "detector",
        )


def _map_sizes(path: Path, outputs: dict[str, tuple[str, list[Any]]], names: Sequence[str]) -> list[int]:
    """C of each map."""
    maps = {name: each for name, each in outputs.items() if len(each[1]) == 4 and isinstance(each[1][1], int)}
    if not maps:
        raise InputError(
            f"{path} has no map (N, C, h, w) among its outputs, so regions would have no features: it has "
            f"{_listed(outputs)}. Export it with a layer's map as an output.",
            "detector",
        )
    unknown = [name for name in names if name not in maps]
    if unknown or not names or len({*names}) != len(names):
        said = f"{', '.join(names)} were given" if names else "none was given"
        raise InputError(
            f"region features of {path} are pooled from maps that you name, each once, but {said}. It has "
            f"{_listed(maps)}.",
            "feature_maps",
        )
    return [maps[name][1][1] for name in names]
