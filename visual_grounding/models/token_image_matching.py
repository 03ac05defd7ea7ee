"""`--arch token_image_matching`: VOK §3.2, wired from `modules/token_image_matcher.py`."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model
from omegaconf import II
from torch import Tensor

from ..errors import InputError
from ..features.store import FeatureStore
from ..modules.joint_embedding import WORD_ENCODERS
from ..modules.sentence_encoders import load_text_encoder
from ..modules.token_image_matcher import TRAINING_CHOICES, TokenImageMatcher, TokenImageMatcherConfig
from ..text.tokenizer_bridge import TokenizerBridge
from .visual_model import StrictLoading, check_numbers

_MOST_GIGABYTES = 10**6  # no machine has as much memory


@dataclass
class TokenImageMatchingConfig(FairseqDataclass):
    """Flags of the matcher. Their defaults are the paper's, or its code's."""

    joint_size: int = field(default=64, metadata={"help": "size of the common space"})
    matcher_layers: int = field(
        default=4, metadata={"help": "last layers of --text-encoder that a token's vector is made of"}
    )
    matcher_hidden_size: int = field(default=256, metadata={"help": "size inside the two feed-forward networks"})
    matcher_dropout: float = field(default=0.3, metadata={"help": "dropout in them, behind their ReLU"})
    sentence_level: bool = field(
        default=False,
        metadata={"help": "match sentences instead of tokens: a caption has the vector of its first piece, [CLS]"},
    )
    keep_encoder_states: float = field(
        default=0.0,
        metadata={
            "help": "gigabytes of memory, in each process, for what the frozen encoder says of captions, which is then "
            "computed in the first epoch alone, on a CPU most of the time; 100 take about 0.02 with BERT base. "
            "Several processes have other captions each epoch, and gain less. What is kept has the rounding of the "
            "batch that it was read in, so a training that goes on may differ in its last bits"
        },
    )
    text_encoder: str = II("task.text_encoder")


@register_model("token_image_matching", dataclass=TokenImageMatchingConfig)
class TokenImageMatchingModel(StrictLoading, BaseFairseqModel):
    """Tokens in their sentence, and images, as unit vectors of one space.

    Args:
        matcher: both sides.

    Shapes:
        tokens: (B, T);  token_padding_mask: (B, T)
        visual["features"]: (B, 1, R, F);  visual["padding_mask"]: (B, 1, R), True = absent
        returns: tokens (B, T, D), or sentences (B, D) with `--sentence-level`; images (B, D)
    """

    def __init__(self, matcher: TokenImageMatcher) -> None:
        super().__init__()
        self.matcher = matcher

    @classmethod
    def build_model(cls, cfg: TokenImageMatchingConfig, task: Any) -> "TokenImageMatchingModel":
        """Build for the task's images.

        Raises:
            InputError: the text encoder isn't a pretrained one that can be read so, or the images are no features.
        """
        check_numbers(cfg)
        if cfg.text_encoder in WORD_ENCODERS:
            raise InputError(
                "--arch token_image_matching needs a pretrained --text-encoder (a name on the hub, or a folder), but "
                f"it is {cfg.text_encoder!r}."
            )
        if not hasattr(task, "take_image_network"):
            raise InputError(
                "token_image_matching is a vokenizer, which belongs to --task image_text_matching: it finds images and "
                "translates nothing. Make a folder of its checkpoint with: visual-grounding export"
            )
        if not isinstance(task.image_store, FeatureStore):
            raise InputError(
                "--arch token_image_matching learns from features, whose network stays as it is, but --image-folder "
                "gives pictures. Make features of them with: visual-grounding extract … --pool mean, and give those as "
                "--image-features."
            )
        if not 0 <= cfg.keep_encoder_states <= _MOST_GIGABYTES:
            raise InputError(
                f"--keep-encoder-states should be 0 to {_MOST_GIGABYTES} gigabytes, but is {cfg.keep_encoder_states}."
            )
        bridge = TokenizerBridge(cfg.text_encoder)  # vokens belong to pieces: their places in a text must be known
        if cfg.sentence_level and not bridge.opening:
            raise InputError(
                f"--sentence-level reads a sentence's first piece, but the tokenizer of {cfg.text_encoder} puts none "
                "such as [CLS] before it. Leave the flag out: a sentence then has the mean of its tokens' vectors."
            )
        chosen = {name: getattr(cfg, flag) for name, flag in TRAINING_CHOICES.items()}
        config = TokenImageMatcherConfig(image_feature_size=task.image_store.feature_size, **chosen)
        matcher = TokenImageMatcher(config, load_text_encoder(cfg.text_encoder))
        if cfg.keep_encoder_states:
            matcher.keep_states(int(cfg.keep_encoder_states * 2**30))
        return cls(matcher)

    def forward(self, tokens: Tensor, token_padding_mask: Tensor, visual: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Embed a batch of captions and their images.

        Shapes:
            tokens: (B, T);  token_padding_mask: (B, T)
            visual["features"]: (B, 1, R, F);  visual["padding_mask"]: (B, 1, R)
            returns: tokens (B, T, D), or sentences (B, D); images (B, D)

        Raises:
            ValueError: a sentence has several images, where each should have the one that it describes.
        """
        features, padding_mask = visual["features"], visual["padding_mask"]
        if padding_mask.shape[1] != 1:
            raise ValueError(f"each sentence should have 1 image, but has {padding_mask.shape[1]}")
        return self.matcher(tokens, token_padding_mask, features[:, 0], padding_mask[:, 0])
