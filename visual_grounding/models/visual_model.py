"""What all models with images share, whether they fuse them in after an encoder or read text and regions as one stream.

A visual model's `forward` has an argument `visual`, the batch's `net_input["visual"]`, and so has its encoder's. It is
None where there are no images, and a mask that is True everywhere means the same: text alone must do. What an encoder
returns is what fairseq's decoders read, the positions of the text first.

Modules that exist for images alone are called `fusion`, or something that begins with `image_` or `visual_`: so
`visual-grounding evaluate` can count a model's parameters without them.
"""

import logging
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from torch import Tensor, nn

from ..errors import InputError
from ..storage.weights import check_weights_fit
from ..text.pretrained_tokenizer import MOST_LAYERS

logger = logging.getLogger(__name__)

_LANGUAGE = re.compile(r"(?:^|\.)language_([^.]+)$")  # names of weights end so
TEXT_ALONE = (
    "the model was trained on text alone, but it is given images: leave --image-features and --image-ids out, or train "
    "one with them."
)
_DROPOUTS = ("bert_dropout", "grounded_dropout", "image_dropout", "matcher_dropout", "text_dropout", "visual_dropout")
_MOST = 2**20  # of any size: more would be asked of the memory before anything says so
# Flag -> the least that it may be, and the most; None stands for what the model decides.
_SIZES = {
    **dict.fromkeys(("bert_layers", "cross_modal_layers", "matcher_layers", "sru_layers"), (1, MOST_LAYERS)),
    **dict.fromkeys(("bert_size", "bert_heads", "bert_ffn_size", "bert_positions"), (1, _MOST)),
    **dict.fromkeys(("image_ranks", "joint_size", "matcher_hidden_size", "text_embed_size"), (1, _MOST)),
    **dict.fromkeys(("visual_attention_heads", "visual_feature_size", "visual_ffn_dim", "visual_labels"), (0, _MOST)),
    "image_backbone_freeze_epochs": (0, _MOST),
}
_SAME_STORE = "Use the feature store that it was trained with, or one made the same way."


@dataclass
class VisualModelConfig(FairseqDataclass):
    """The flag that every model with images has. Names with `encoder_` would leak into fairseq's transformer."""

    visual_feature_size: int = field(
        default=0, metadata={"help": "size of an image's feature vector; 0: that of --image-features"}
    )


@dataclass
class StandardisedFeaturesConfig(VisualModelConfig):
    """The flag of what is done to image features before anything else."""

    visual_standardise: bool = field(
        default=False,
        metadata={
            "help": "bring every image feature to mean 0 and variance 1 (several processes: with --broadcast-buffers)"
        },
    )


@dataclass
class ImageProjectionConfig(StandardisedFeaturesConfig):
    """The flags of what brings image features to the size of a model."""

    visual_ffn_dim: int = field(
        default=0, metadata={"help": "hidden size of the feed-forward layer on image features; 0: one linear layer"}
    )
    visual_dropout: float = field(
        default=0.0, metadata={"help": "dropout on image features, before and after projection"}
    )


@dataclass
class VisualAttentionConfig(FairseqDataclass):
    """The flag of the attention to images (VA eq. 2)."""

    visual_attention_heads: int = field(
        default=0, metadata={"help": "heads of the attention from text to images; 0: as many as the encoder's"}
    )


class StrictLoading(BaseFairseqModel):
    """A model that says which weights of a checkpoint don't fit it. First among the bases, before fairseq's."""

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True, **options: Any) -> Any:
        """As fairseq's, which brings old checkpoints up to date and takes layers out (`--encoder-layers-to-keep`).

        What is left of the weights after that is compared with the model's.

        Raises:
            InputError: the checkpoint was made with other flags or data.
        """
        check = self.register_load_state_dict_pre_hook(check_checkpoint_fits) if strict else None
        try:
            return super().load_state_dict(state_dict, strict=strict, **options)
        finally:
            if check is not None:
                check.remove()


def check_checkpoint_fits(model: nn.Module, state: Mapping[str, Tensor], *_: Any) -> None:
    """Refuse a checkpoint whose weights aren't the model's, and name them: fairseq only says that they differ.

    Raises:
        InputError: it was trained for other languages; weights are missing, superfluous, or of another shape.
    """
    own = model.state_dict()
    asked, learned = (
        [(name, found[1]) for name in names if (found := _LANGUAGE.search(name))] for names in (own, state)
    )
    if asked and learned and sorted(asked) != sorted(learned):
        first, second = (", ".join(dict.fromkeys(language for _, language in each)) for each in (learned, asked))
        raise InputError(
            f"the checkpoint should be of the languages that it was trained for ({first}), but is used for {second}. "
            "Give it text and flags of its own languages, in its own direction."
        )
    check_weights_fit(
        own,
        state,
        "the checkpoint",
        "this model",
        "It was made with other model flags, for other languages, or with data of other words or labels: give those "
        "that it was trained with. In training, another --save-dir starts afresh.",
    )


def check_numbers(args: Any) -> None:
    """Refuse dropouts and sizes that no model has, among the flags of this package's models.

    Raises:
        InputError: a dropout of everything, or of what is no share; a size that is too small, or beyond any model's.
    """
    for name, (least, most) in _SIZES.items():
        given = getattr(args, name, None)
        if given is not None and not (isinstance(given, int | float) and least <= given <= most):
            said = f"{given:.6g}" if isinstance(given, int | float) else f"{given!r:.80}"
            raise InputError(f"--{name.replace('_', '-')} should be {least} to {most}, but is {said}.")
    for name in _DROPOUTS:
        given = getattr(args, name, None)
        if given is not None and not (isinstance(given, int | float) and 0 <= given < 1):
            raise InputError(f"--{name.replace('_', '-')} should be at least 0 and less than 1, but is {given!s:.80}.")


def take_feature_size(args: Namespace, task: Any, twin: Optional[str]) -> None:
    """Set `args.visual_feature_size` to F of the task's store, if it isn't known yet; it goes into the checkpoint.

    Args:
        args: the model's flags.
        task: its `image_feature_size` is F, 0 without a store.
        twin: the architecture that does without images, for the message; None where the model itself does.

    Raises:
        InputError: no store and no size, or two sizes that differ; or as `check_numbers`.
    """
    check_numbers(args)
    stored = getattr(task, "image_feature_size", 0)
    named = f"--arch {args.arch}" if getattr(args, "arch", None) else "the model"  # hydra gives it another way
    wanted = getattr(args, "visual_feature_size", None) or stored
    if not wanted and twin is None:
        args.visual_feature_size = 0
        return
    if not wanted:
        raise InputError(
            f"{named} needs images: give --image-features and --image-ids to a task of this package, such "
            f"as grounded_translation; for the text-only twin use --arch {twin}."
        )
    if stored and wanted != stored:
        raise InputError(
            f"the model takes image features of size {wanted}, but {task.cfg.image_features} has size {stored}. "
            f"{_SAME_STORE}"
        )
    if not stored:
        logger.warning("the model can use images, but without --image-features it has none: text alone must do.")
    args.visual_feature_size = wanted


def features_of(visual: Optional[dict[str, Tensor]], feature_size: int) -> Optional[tuple[Tensor, Tensor]]:
    """The features of a batch's images and their mask; None without images.

    Shapes:
        returns: (B, N, R, F);  (B, N, R), True = absent

    Raises:
        InputError: images for a model that was built for none (F = 0), or features of another size.
    """
    if visual is None:
        return None
    if not feature_size:
        raise InputError(TEXT_ALONE)
    features = visual["features"]
    if features.shape[-1] != feature_size:
        raise InputError(
            f"the model was trained on image features of size {feature_size}, but these have {features.shape[-1]}. "
            f"{_SAME_STORE}"
        )
    return features, visual["padding_mask"]
