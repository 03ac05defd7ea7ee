"""timm's networks: all that end in a map or in a square of patch tokens.

`timm:tf_efficientnet_b1.ns_jft_in1k` is GS's EfficientNet-B1 Noisy Student.
Preprocessing is timm's own for the weights, in all its modes (crop, squash, border), run by timm's own code.
"""

import math
import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import InputError, first_line, in_short
from ...storage.artefact import sha256_of_file
from ...storage.outside import read_json
from ...storage.settings import SWITCH, check_settings, listed, number, one_of, whole_number
from ...storage.weights import load_strictly, read_weights
from .backbone import Backbone
from .preprocessing import LARGEST_SIDE, MEAN, SIDE, SPREAD, LibraryPreprocessing
from .weights import Scaled, is_file

PREFIX = "timm:"
_FILES = ("model.safetensors", "pytorch_model.bin")  # what a folder from the hub has
_DATA = {
    "input_size": listed(f"3, a height and a width of at most {LARGEST_SIDE}", whole_number(3, 3), SIDE, SIDE),
    "fixed_input_size": SWITCH,
    "mean": MEAN,
    "std": SPREAD,
    # Training may draw one ("random"); evaluation doesn't.
    "interpolation": one_of("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"),
    "crop_pct": number(0.25, 4),  # timm's own weights have 0.875 to 1.15
    "crop_mode": one_of("center", "squash", "border"),
    "num_classes": whole_number(0, 2**20),
}


def load_timm(full_name: str, weights: str | None, image_size: int | None, seed: int) -> Backbone:
    """Build one, in evaluation mode.

    Args:
        full_name: `timm:ARCHITECTURE` or `timm:ARCHITECTURE.TAG`, as in timm's lists.
        weights: another tag, a state_dict file, a folder from the hub, or "none"; None for the name's own tag, else
            timm's default.
        image_size: side of the square that the network sees; None for the weights' own size.
        seed: of random weights.

    Raises:
        InputError: unknown name or tag, weights that don't fit or can't be had, a size that the network doesn't take.
    """
    import timm

    name = _checked_name(full_name, weights)
    overlay: dict[str, Any] = {}
    file = None
    if weights is not None and Path(weights).is_dir():
        file, overlay = _read_folder(Path(weights), name.split(".")[0])
    elif weights is not None and weights != "none" and is_file(weights):
        file = Path(weights)
    sizes = _size_flag(name, image_size, overlay)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _create(name, weights, file, overlay, sizes)
        data = timm.data.resolve_model_data_config(
            model, args={"input_size": (3, image_size, image_size)} if image_size else None
        )
        preprocessing = preprocessing_of(data)
        network, own = _Map(model.eval(), full_name), _Own(model)
        if image_size is not None:
            _check_size(model, full_name, image_size)
        if weights == "none":
            return Backbone(
                full_name,
                Scaled(network, preprocessing.shape).eval(),
                preprocessing,
                f"random-{seed}",
                Scaled(own, preprocessing.shape).eval(),
                _classifier(model),
                class_names(model),
            )
    label = f"sha256-{sha256_of_file(file)}" if file else str(model.pretrained_cfg.get("tag") or "default")
    return Backbone(full_name, network.eval(), preprocessing, label, own.eval(), _classifier(model), class_names(model))


def preprocessing_of(data: dict[str, Any]) -> LibraryPreprocessing:
    """timm's evaluation transform for a data configuration, without its last step, scaling and normalising."""
    import timm

    transform = timm.data.create_transform(**data, is_training=False, use_prefetcher=True)
    height, width = data["input_size"][1:]
    mode, share = data["crop_mode"], data["crop_pct"]
    scaled = math.floor(max(height, width) / share)
    return LibraryPreprocessing(
        frame=lambda image: torch.as_tensor(transform(image)),
        shape=(height, width),
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        short_side=scaled if mode == "center" else None,
        summary=f"{scaled}/{height if height == width else f'{height}x{width}'}",
        description=f"timm {mode}, share {share:g} {data['interpolation']}, crop {height}x{width}",
    )


class _Map(nn.Module):
    """A timm network up to its last map.

    Shapes:
        images: (B, 3, H, W)
        returns: (B, C, h, w); class, distillation and register tokens are dropped.

    Raises:
        InputError: what comes out is neither a map nor a square of tokens.
    """

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model: Any = model
        self.name = name

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The network's map, channels first.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, C, h, w)

        Raises:
            InputError: it gives neither a map nor a square of tokens.
        """
        found: Any = self.model.forward_features(images)
        if isinstance(found, torch.Tensor) and found.dim() == 4:
            last = str(getattr(self.model, "output_fmt", "NCHW")) == "NHWC"
            return found.permute(0, 3, 1, 2) if last else found
        if isinstance(found, torch.Tensor) and found.dim() == 3:  # (B, prefix + h w, C)
            tokens = found[:, int(getattr(self.model, "num_prefix_tokens", 0) or 0) :]
            height, width = self._grid(tokens.shape[1])
            if height * width == tokens.shape[1]:
                return tokens.transpose(1, 2).unflatten(2, (height, width))
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise InputError(
            f"{self.name} should give a map (B, C, h, w) or a square of tokens, but gives {shape}. Take its own "
            "pooling, or choose another network.",
            "pool",
            "backbone",
        )

    def _grid(self, tokens: int) -> tuple[int, int]:
        for part in ("patch_embed", "stem"):
            grid = getattr(getattr(self.model, part, None), "grid_size", None)
            if grid is not None and grid[0] * grid[1] == tokens:
                return grid[0], grid[1]
        side = math.isqrt(tokens) if tokens > 1 else 0  # a single token is PiT's class token, not a map
        return side, side


class _Own(nn.Module):
    """A timm network up to its classifier: its own pooling, and what else its head does before the last layer.

    Shapes:
        images: (B, 3, H, W)
        returns: (B, E)
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The network's own pooled features.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, E)
        """
        features = self.model.forward_features(images)
        return self.model.forward_head(features, pre_logits=True).flatten(1)


class _Classifier(nn.Module):
    """The whole network, and what it pools before its last layer.

    Shapes:
        images: (B, 3, H, W)
        returns: (B, E), (B, classes)
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pool and classify.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, E), (B, classes)
        """
        features = self.model.forward_features(images)
        return self.model.forward_head(features, pre_logits=True).flatten(1), self.model.forward_head(features)


def _classifier(model: Any) -> nn.Module | None:
    return _Classifier(model).eval() if getattr(model, "num_classes", 0) else None


def class_names(model: Any) -> tuple[str, ...]:
    """What timm calls a network's classes; nothing where it doesn't know them."""
    import timm

    subset = timm.data.infer_imagenet_subset(model)
    return tuple(timm.data.ImageNetInfo(subset).label_descriptions()) if subset else ()


def _checked_name(full_name: str, weights: str | None) -> str:
    """ARCHITECTURE[.TAG] that timm knows, with the tag that the weights may give."""
    import timm

    name = full_name.removeprefix(PREFIX)
    architecture, _, tag = name.partition(".")
    known = timm.list_models()
    if architecture not in known:
        close = get_close_matches(architecture.lower().replace("-", "_"), known, n=3, cutoff=0.5)
        raise InputError(
            f"{full_name} is unknown to timm {timm.__version__}."
            f"{' Did you mean ' + ', '.join(PREFIX + match for match in close) + '?' if close else ''} "
            "All names: python -c 'import timm; print(timm.list_models())'",
            "backbone",
        )
    given = weights if weights not in (None, "none") and not is_file(weights) and not Path(weights).is_dir() else None
    for choice, wanted in (("backbone", tag), ("weights", given)):
        tags = [entry.partition(".")[2] for entry in timm.list_pretrained(f"{architecture}.*")]
        if wanted and wanted not in tags:
            close = get_close_matches(wanted, tags, n=1, cutoff=0.5)
            raise InputError(
                f"{architecture} has no weights {wanted!r}"
                f"{', and there is no such file or folder' if choice == 'weights' else ''}."
                f"{' Did you mean ' + close[0] + '?' if close else ''} Known: {', '.join(tags) or 'none at all'}; "
                "or a file, a folder, or none (random numbers).",
                "weights",
                *((choice,) if choice != "weights" else ()),
            )
    return f"{architecture}.{given}" if given else name


def _read_folder(folder: Path, architecture: str) -> tuple[Path, dict[str, Any]]:
    """The weights in a folder from the hub, and what its config.json says about preprocessing."""
    file = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if file is None:
        raise InputError(f"{folder} should hold {' or '.join(_FILES)}, but has neither.", "weights")
    path = folder / "config.json"
    if not os.path.lexists(path):
        return file, {}
    try:
        config = read_json(path)
        written = config.get("architecture", architecture)
        overlay = {"num_classes": config.get("num_classes"), **config.get("pretrained_cfg", {})}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{path} should be timm's JSON, but can't be used: {first_line(error)}") from error
    if written != architecture:
        message = (
            f"{folder} should hold a {architecture}, because {PREFIX}{architecture} is asked for, but is a {written}."
        )
        raise InputError(message, "weights", "backbone")
    overlay = {key: value for key, value in overlay.items() if key in _DATA and value is not None}
    check_settings(path, overlay, _DATA)
    return file, overlay


def _size_flag(name: str, image_size: int | None, overlay: dict[str, Any]) -> dict[str, Any]:
    """What to tell a network that is built for one size; others take any."""
    import timm

    config = timm.get_pretrained_cfg(name)
    fixed = overlay.get("fixed_input_size", getattr(config, "fixed_input_size", False))
    return {"img_size": image_size} if image_size is not None and fixed else {}


def _check_size(model: Any, full_name: str, image_size: int) -> None:
    """Some networks find out only at work that a size isn't a multiple of their patches or windows."""
    try:
        with torch.no_grad():
            model.forward_features(torch.zeros(1, 3, image_size, image_size))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise InputError(
            f"pictures of {image_size} pixels don't suit {full_name}: {first_line(error)}", "image_size"
        ) from error


def _create(name: str, weights: str | None, file: Path | None, overlay: dict[str, Any], sizes: dict[str, Any]) -> Any:
    """Build the network with its weights."""
    if weights == "none" or (file and not sizes):
        model = _build(name, False, overlay, sizes)
        if file:
            load_strictly(model, read_weights(file), file, PREFIX + name)
        return model
    if file:  # timm itself brings the position embeddings to another size
        state = read_weights(file)
        return _build(name, True, {**overlay, "state_dict": state, "custom_load": False}, sizes, str(file))
    return _build(name, True, overlay, sizes)


def _build(
    name: str, pretrained: bool, overlay: dict[str, Any], sizes: dict[str, Any], origin: str | None = None
) -> Any:
    import timm

    try:
        return timm.create_model(name, pretrained=pretrained, pretrained_cfg_overlay=overlay or None, **sizes)
    except Exception as error:  # no network, no such host, shapes that differ, a size that isn't a multiple of patches
        reason = in_short(error)
        if not pretrained:
            raise InputError(f"{PREFIX}{name} can't be built {_at(sizes)}: {reason}.", "backbone") from error
        if origin is not None:
            raise InputError(f"{origin} doesn't fit {PREFIX}{name} {_at(sizes)}: {reason}.") from error
        config = timm.get_pretrained_cfg(name)
        hub, url = getattr(config, "hf_hub_id", None), getattr(config, "url", None)
        hub = f"timm/{name}" if hub == "timm/" else hub
        place = f"https://huggingface.co/{hub} (model.safetensors)" if hub else url
        if not place:
            raise InputError(
                f"timm has no weights for {PREFIX}{name}. Give a file, or none (random numbers).", "weights"
            ) from error
        raise InputError(
            f"The weights of {PREFIX}{name} can't be loaded {_at(sizes)}: {reason}. Offline, copy {place} here "
            "and give model.safetensors as its weights.",
            "weights",
        ) from error


def _at(sizes: dict[str, Any]) -> str:
    return f"for pictures of {sizes['img_size']} pixels" if sizes else "as asked"
