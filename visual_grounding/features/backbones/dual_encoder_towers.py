"""Image towers of CLIP, SigLIP and SigLIP 2 through transformers: `clip:openai/clip-vit-base-patch32` or `clip:FOLDER`.

One prefix for all of them: the model's own config.json says which it is. Preprocessing is the image processor's that
lies beside the weights, run by transformers' own code.
"""

import contextlib
import json
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import nn

from ...errors import InputError, first_line
from ...storage.outside import reading
from ...storage.settings import SWITCH, Wanted, check_settings, number, whole_number
from ...storage.weights import sha256_of_state
from ...text.pretrained_tokenizer import check_pretrained_folder
from .backbone import Backbone
from .preprocessing import MEAN, SIDE, SPREAD, LibraryPreprocessing

PREFIX = "clip:"
_EXAMPLES = (
    "openai/clip-vit-base-patch32",
    "openai/clip-vit-base-patch16",
    "openai/clip-vit-large-patch14",
    "openai/clip-vit-large-patch14-336",
    "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
    "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
    "google/siglip-base-patch16-224",
    "google/siglip-so400m-patch14-384",
    "google/siglip2-base-patch16-224",
    "google/siglip2-so400m-patch14-384",
)
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_PROCESSOR = "preprocessor_config.json"
_ALL_FILES = "processor_config.json"  # holds the image processor's settings where it was saved with the tokenizer
_SIZES = Wanted("height and width, or shortest_edge,", lambda value: value is not None)


class Family(NamedTuple):
    """Classes of transformers that hold the two towers, and where their joint vectors are."""

    image_tower: str
    image_output: str
    text_tower: str
    text_output: str


FAMILIES = {
    "clip": Family("CLIPVisionModelWithProjection", "image_embeds", "CLIPTextModelWithProjection", "text_embeds"),
    "siglip": Family("SiglipVisionModel", "pooler_output", "SiglipTextModel", "pooler_output"),
}


def load_image_tower(full_name: str, weights: str | None, image_size: int | None, seed: int) -> Backbone:
    """Build one, in evaluation mode.

    Args:
        full_name: `clip:NAME` on the hub or `clip:FOLDER`.
        weights: a folder to load instead of the name, or "none".
        image_size: side of the square that the network sees; None for its own. Position embeddings are interpolated.
        seed: of random weights.

    Raises:
        InputError: nothing loads from there, it is another kind of network, or the size is no multiple of its patches.
    """
    source = full_name.removeprefix(PREFIX)
    if weights not in (None, "none"):
        if not Path(str(weights)).is_dir():
            raise InputError(
                f"the weights of {full_name} should be a folder with config.json, model.safetensors and "
                f"preprocessor_config.json, or none, but {weights} is no folder.",
                "weights",
            )
        source = str(weights)
    family, config = read_config(source)
    vision = getattr(config, "vision_config", config)
    if weights == "none":
        import transformers

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = getattr(transformers, FAMILIES[family].image_tower)(vision)
        label = f"random-{seed}"
    else:
        model = load_tower(FAMILIES[family].image_tower, source)
        label = f"sha256-{sha256_of_state(model, prefix='vision_model.')}"
    model.eval()
    side = vision.image_size if image_size is None else image_size
    if side % vision.patch_size:
        raise InputError(
            f"the image size should be a multiple of {vision.patch_size}, the patches of {full_name}, but is {side}.",
            "image_size",
        )
    preprocessing = _preprocessing(source, side, vision.image_size)
    network = _PatchMap(model, family, vision)
    own = _Embedding(model, FAMILIES[family].image_output, vision) if _has_own(vision) else None
    return Backbone(full_name, network.eval(), preprocessing, label, own)


class _PatchMap(nn.Module):
    """The last hidden states of the patches, where they lie in the picture; the class token is dropped.

    CLIP's are those before its last norm and its projection: as the library gives them.

    Shapes:
        images: (B, 3, H, W)
        returns: (B, C, H / patch, W / patch)
    """

    def __init__(self, model: nn.Module, family: str, vision: Any) -> None:
        super().__init__()
        self.model = model
        self.prefix = 1 if family == "clip" else 0
        self.patch, self.side = vision.patch_size, vision.image_size

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Hidden states of the patches, as a map.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, C, H / patch, W / patch)
        """
        other = images.shape[-1] != self.side
        states = self.model(pixel_values=images, interpolate_pos_encoding=other).last_hidden_state
        places = tuple(size // self.patch for size in images.shape[2:])
        return states[:, self.prefix :].transpose(1, 2).unflatten(2, places)  # (B, C, h, w)


class _Embedding(nn.Module):
    """What the model compares with text: CLIP's projected class token, SigLIP's attention pooling. Not yet unit length.

    Shapes:
        images: (B, 3, H, W)
        returns: (B, E)
    """

    def __init__(self, model: nn.Module, output: str, vision: Any) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.side = vision.image_size

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The model's own embedding.

        Shapes:
            images: (B, 3, H, W)
            returns: (B, E)
        """
        other = images.shape[-1] != self.side
        return getattr(self.model(pixel_values=images, interpolate_pos_encoding=other), self.output)


def _has_own(vision: Any) -> bool:
    return bool(getattr(vision, "vision_use_head", True))  # SigLIP's tower may come without its pooling


def read_config(source: str) -> tuple[str, Any]:
    """The family and configuration of a dual encoder.

    Raises:
        InputError: nothing is there, or it is another kind of model.
    """
    from transformers import AutoConfig

    config = load_pretrained_part(AutoConfig, source, "config.json")
    family = config.model_type.removesuffix("_vision_model").removesuffix("_text_model")
    if family not in FAMILIES:
        flexible = (
            " Its pictures have no fixed size; take one of a fixed size, such as google/siglip2-base-patch16-224."
        )
        raise InputError(
            f"{source} should be a dual encoder of kind {', '.join(FAMILIES)} (SigLIP 2 of fixed size is a siglip), "
            f"but its config.json says {config.model_type}.{flexible if family == 'siglip2' else ''}"
        )
    return family, config


def load_tower(class_name: str, source: str) -> Any:
    """One tower in float32 with all its weights.

    Raises:
        InputError: it can't be read, or lacks weights.
    """
    import transformers

    loaded = load_pretrained_part(getattr(transformers, class_name), source, "its weights", output_loading_info=True)
    model, info = loaded
    missing = sorted(info["missing_keys"])
    if missing:
        raise InputError(
            f"{source} should hold all weights of a {class_name}, but lacks {len(missing)}, the first {missing[0]}. "
            "Copy the whole folder again."
        )
    return model.float()  # a checkpoint may be kept in half precision


def load_pretrained_part(auto_class: Any, source: str, what: str, **options: Any) -> Any:
    """Call `from_pretrained`, with an error that says what to copy where.

    Raises:
        InputError: nothing loads from there.
    """
    if auto_class.__name__.startswith("Auto"):
        options["trust_remote_code"] = (
            False  # else transformers would ask on the terminal whether to run code from there
        )
    try:
        check_pretrained_folder(source)
        with _quiet():
            return auto_class.from_pretrained(source, **options)
    except Exception as error:  # each file format and the hub have errors of their own
        if Path(source).exists() or source.startswith((".", "/", "~")):
            files = "config.json, model.safetensors, preprocessor_config.json and the tokenizer's files"
            way = f"It should be a folder with {files}, as `hf download NAME --local-dir FOLDER` makes it."
        else:
            close = [match for match in get_close_matches(source, _EXAMPLES, n=2, cutoff=0.6) if match != source]
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            way = (
                f"There is no such folder here.{meant} Offline, run "
                f"`hf download {source} --local-dir FOLDER` where there is a network, copy FOLDER here, and give FOLDER"
                " instead of the name."
            )
        raise InputError(f"{source}: {what} can't be loaded: {first_line(error).rstrip('.')}. {way}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the table of weights that belong to the other tower."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _preprocessing(source: str, side: int, trained: int) -> LibraryPreprocessing:
    """The image processor's resizing and cropping, its scale folded into mean and deviation."""
    from transformers import AutoImageProcessor

    processor = load_pretrained_part(AutoImageProcessor, source, _PROCESSOR)
    place = Path(source) / _PROCESSOR
    if not place.exists() and (Path(source) / _ALL_FILES).exists():
        place = Path(source) / _ALL_FILES
    with reading(place, "an image processor's settings"):
        settings = processor.to_dict()
        rescales, normalises = settings.get("do_rescale", True), settings.get("do_normalize", True)
        _check_settings(place, settings)
        size, crop = dict(settings["size"]), settings.get("crop_size") if settings.get("do_center_crop") else None
        if side != trained:
            size = {name: round(value * side / trained) for name, value in size.items() if value}
            crop = None if crop is None else {"height": side, "width": side}
        sizes = {"size": size} if crop is None else {"size": size, "crop_size": crop}

        def frame(image: Image.Image) -> torch.Tensor:
            pixels = processor(images=image, do_rescale=False, do_normalize=False, return_tensors="pt", **sizes)
            return pixels["pixel_values"][0]  # (3, H, W)

        sample = frame(Image.new("RGB", (64, 48)))
        sample.numpy()  # fails where the settings name a device
    if tuple(sample.shape) != (3, side, side) or sample.dtype != torch.uint8:
        raise InputError(
            f"{source}: its image processor should give pictures of 3x{side}x{side} bytes, as its network wants, "
            f"but gives {'x'.join(map(str, sample.shape))} {sample.dtype}. Is preprocessor_config.json another model's?"
        )
    factor = 255 * settings.get("rescale_factor", 1 / 255) if rescales else 255.0
    mean = settings["image_mean"] if normalises else [0.0] * 3
    std = settings["image_std"] if normalises else [1.0] * 3
    short = size.get("shortest_edge")
    resampling = settings.get("resample", 3)
    how = json.dumps(sizes, sort_keys=True).replace('"', "")
    return LibraryPreprocessing(
        frame=frame,
        shape=(side, side),
        mean=tuple(value / factor for value in mean),
        std=tuple(value / factor for value in std),
        short_side=short,
        summary=f"{short or side}/{side}",
        description=f"{type(processor).__name__} {getattr(processor, 'backend', 'pil')} {how} "
        f"{_RESAMPLING.get(resampling, resampling)}",
    )


def _check_settings(place: Path, settings: dict[str, Any]) -> None:
    """Refuse settings that transformers takes, but no picture is prepared by.

    Raises:
        InputError: the first one; null is refused where it would be used.
    """
    check_settings(
        place, settings, {name: SWITCH for name in settings if name[:3] == "do_" and settings[name] is not None}
    )
    wanted = {"size": _SIZES}
    if settings.get("resample") is not None:
        wanted["resample"] = whole_number(0, max(_RESAMPLING))
    if settings.get("do_rescale", True):
        wanted["rescale_factor"] = number(0.0001, 1000)
    if settings.get("do_normalize", True):
        wanted |= {"image_mean": MEAN, "image_std": SPREAD}
    check_settings(place, settings, wanted)
    for name in ("size", "crop_size", "pad_size"):
        sides = {
            f"{name}.{side}": length for side, length in dict(settings.get(name) or {}).items() if length is not None
        }
        check_settings(place, sides, dict.fromkeys(sides, SIDE))
