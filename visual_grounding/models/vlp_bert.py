"""`--arch vlp_bert`: VLP's pre-training (§3.2), BERT over text, object tags and regions with two heads."""

from argparse import ArgumentParser, Namespace
from typing import Any, NamedTuple, Optional

import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel, register_model
from torch import Tensor

from ..errors import InputError
from ..modules.vision_language_bert import MaskedWordHead, PairedImageHead, VisionLanguageBert
from .bert_choices import built_from, take_bert
from .presets import register_presets
from .vision_language_model import BERT_PRESETS, MODELS, VisionLanguageConfig, build_stream
from .visual_model import StrictLoading, features_of, take_feature_size


class Predictions(NamedTuple):
    """What the heads say of a batch, of K hidden words and J hidden tags.

    Shapes:
        words: (K, V);  tags: (J, V)
        predicted_tags: (B, G) bool, the J tags: those that are hidden, and for which there were positions
        paired: (B,), positive for "its own images"
    """

    words: Tensor
    tags: Tensor
    predicted_tags: Tensor
    paired: Tensor


@register_model("vlp_bert")  # no dataclass=: what is read from a BERT has to go into the flags that fairseq saves
class VLPBertModel(StrictLoading, BaseFairseqModel):
    """Says which words and tags are hidden, and whether text and images belong together.

    Attributes:
        reads_image_tags: it takes `--image-tags`.
        reads_columns: what it reads of regions beside features and tags.

    Shapes:
        src_tokens: (B, T);  visual: the batch's `net_input["visual"]`
        hidden_words: (B, T);  hidden_tags: (B, G), True where a mask hides something
        returns: (K, V), (J, V), (B, G), (B,)
    """

    reads_image_tags = True
    reads_columns = ("boxes",)

    def __init__(self, stream: VisionLanguageBert) -> None:
        super().__init__()
        self.stream = stream
        self.word_head = MaskedWordHead(stream.bert.config)
        self.paired_head = PairedImageHead(stream.bert.config)

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, VisionLanguageConfig(), delete_default=True, with_prefix="")

    @classmethod
    @built_from("bert_config")
    def build_model(cls, args: Namespace, task: Any) -> "VLPBertModel":
        """Build from `--bert`, from sizes, or from what a checkpoint keeps of either.

        Raises:
            InputError: the task translates; no images, or no such BERT, or one of another dictionary.
        """
        if getattr(task, "target_dictionary", None) is not None:
            raise InputError(
                "--arch vlp_bert reads text and says hidden words of it: train it with --task "
                "vision_language_pretraining. For translation choose --arch vlp_translation."
            )
        take_feature_size(args, task, twin="bert_base")
        read = take_bert(args, task, MODELS)
        model = cls(build_stream(args, task, read))
        if read is not None and read.head:
            model.word_head.load_state_dict(read.head)
        return model

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        visual: Optional[dict[str, Tensor]] = None,
        hidden_words: Optional[Tensor] = None,
        hidden_tags: Optional[Tensor] = None,
    ) -> Predictions:
        """Predict what is hidden; nothing of words or tags where no mask is given.

        Shapes:
            src_tokens: (B, T);  hidden_words: (B, T);  hidden_tags: (B, G)
            returns: (K, V), (J, V), (B, G), (B,)

        Raises:
            InputError: features of another size than this model was built for.
        """
        features_of(visual, self.stream.feature_size)
        hidden, _, _, read_tags = self.stream(src_tokens, visual)
        words, tags = hidden[:, 1 : 1 + src_tokens.shape[1]], hidden[:, 1 + src_tokens.shape[1] :]
        asked = torch.zeros_like(src_tokens, dtype=torch.bool) if hidden_words is None else hidden_words
        predicted = torch.zeros_like(read_tags) if hidden_tags is None else read_tags & hidden_tags
        states = words[asked], tags[:, : predicted.shape[1]][predicted]  # (K, D), (J, D)
        logits = self.word_head(torch.cat(states), self.stream.words)  # (K + J, V)
        return Predictions(
            logits[: len(states[0])], logits[len(states[0]) :], predicted, self.paired_head(hidden[:, 0])
        )

    def max_positions(self) -> int:
        """The longest source, with its end; tags take what is left."""
        return self.stream.max_positions


register_presets("vlp_bert", BERT_PRESETS)
