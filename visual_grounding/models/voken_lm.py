"""What `--arch voken_bert` and `voken_roberta` share: a language model that tells vokens, too (VOK §2.2)."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel
from torch import Tensor

from ..errors import InputError
from ..modules.linear_cross_entropy import UNASKED, Answers, linear_cross_entropy
from ..modules.pretrained_bert import Family, bert_config
from ..modules.vision_language_bert import MaskedWordHead
from ..modules.voken_head import HEADS, VokenHead
from ..storage.outside import parse_json
from .bert_choices import BertChoicesConfig, built_from, size_presets, take_bert
from .visual_model import StrictLoading

# The paper says layers and sizes; heads and the size inside layers are those of its code.
VOKEN_PRESETS = size_presets(
    {
        "": {},
        "_6l_512h": {"bert_size": 512, "bert_layers": 6, "bert_heads": 8, "bert_ffn_size": 2048},
        "_12l_768h": {"bert_size": 768, "bert_layers": 12, "bert_heads": 12, "bert_ffn_size": 3072},
    }
)


@dataclass
class VokenLMModelConfig(BertChoicesConfig):
    """The flags of a BERT, and of what is above it."""

    voken_head: ChoiceEnum(HEADS) = field(  # type: ignore[valid-type]
        default="linear",
        metadata={"help": "what tells vokens: one linear layer (the paper), or another, GELU and LayerNorm before it"},
    )


class Found(NamedTuple):
    """What was told of a batch; None for what wasn't asked, or has no head."""

    words: Optional[Answers]
    vokens: Optional[Answers]


class VokenLanguageModel(StrictLoading, BaseFairseqModel):
    """A BERT with a head for masked words and one for vokens; the heads share nothing but what is below them.

    A head that is never asked (`--mlm-weight 0`, no vokens) isn't built. The vokens' is the last to be, so that with
    the same seed all else begins alike with vokens and without.

    Args:
        body: of transformers, without its pooling layer, in fairseq's numbers.
        words: whether it tells masked words.
        vokens: V; 0 for none.
        head: of vokens, one of `HEADS`.

    Attributes:
        family: of its body; the model is registered as `voken_` and its kind.

    Shapes:
        src_tokens: (B, T);  padding_mask: (B, T) True at padding, None where there is none
        word_targets, voken_targets: (B, T), −1 where nothing is asked
        returns: of words and of vokens: (), the summed loss, and (P,), which are right
    """

    family: ClassVar[Family]

    def __init__(self, body: Any, words: bool, vokens: int, head: str) -> None:
        super().__init__()
        config = body.config
        self.body = body
        self.word_head = MaskedWordHead(config) if words else None
        start = head, config.layer_norm_eps, config.initializer_range
        self.voken_head = VokenHead(config.hidden_size, vokens, *start) if vokens else None

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Flags without defaults, so that a preset can set them; what nobody sets takes the dataclass's default."""
        gen_parser_from_dataclass(parser, VokenLMModelConfig(), delete_default=True, with_prefix="")

    @classmethod
    @built_from("bert_config")
    def build_model(cls, args: Namespace, task: Any) -> "VokenLanguageModel":
        """Build from `--bert`, from sizes, or from what a checkpoint keeps of either, and of the heads.

        Raises:
            InputError: the task has no vokens to tell, or there is no such BERT, or one of another dictionary.
        """
        if not hasattr(task, "voken_count"):
            raise InputError(f"--arch {args.arch} learns by --task voken_lm, not by {type(task).__name__}.")
        read = take_bert(args, task, (f"voken_{cls.family.kind}",), family=cls.family)
        # Not flags: they come from the task, and what is made without its vokens from a checkpoint has its heads.
        args.voken_count = task.voken_count if (known := getattr(args, "voken_count", None)) is None else known
        args.masked_words = task.predicts_words if (known := getattr(args, "masked_words", None)) is None else known
        args.voken_head = str(getattr(args, "voken_head", None) or VokenLMModelConfig.voken_head)
        config = bert_config(parse_json(args.bert_config), len(task.source_dictionary), cls.family)
        body = cls.family.part(1)(config, add_pooling_layer=False)
        model = cls(body, args.masked_words, args.voken_count, args.voken_head)
        if read is not None:
            prefix = cls.family.prefix
            body.load_state_dict({name.removeprefix(prefix): value for name, value in read.body.items()})
            if read.head and model.word_head is not None:
                model.word_head.load_state_dict(read.head)
        return model

    def forward(
        self,
        src_tokens: Tensor,
        padding_mask: Optional[Tensor] = None,
        word_targets: Optional[Tensor] = None,
        voken_targets: Optional[Tensor] = None,
    ) -> Found:
        """How well masked words and vokens are told.

        Shapes:
            src_tokens, padding_mask, word_targets, voken_targets: (B, T)
            returns: () and (P,), of each
        """
        hidden = self.states(src_tokens, padding_mask)  # (B, T, D)
        words = vokens = None
        if self.word_head is not None and word_targets is not None:
            asked = word_targets != UNASKED
            states = self.word_head.transform(hidden[asked])  # (K, D)
            words = linear_cross_entropy(states, self.words, self.word_head.bias, word_targets[asked])
        if self.voken_head is not None and voken_targets is not None:
            vokens = self.voken_head(hidden, voken_targets)
        return Found(words, vokens)

    def states(self, src_tokens: Tensor, padding_mask: Optional[Tensor] = None) -> Tensor:
        """The last layer's states.

        Shapes:
            src_tokens, padding_mask: (B, T)
            returns: (B, T, D)
        """
        attended = None if padding_mask is None else (~padding_mask).long()  # (B, T), as transformers wants it
        states: Tensor = self.body(input_ids=src_tokens, attention_mask=attended).last_hidden_state
        return states

    @property
    def words(self) -> Tensor:
        """The embedding of words, which their head shares.

        Shapes:
            returns: (W, D)
        """
        weight: Tensor = self.body.embeddings.word_embeddings.weight
        return weight

    def max_positions(self) -> int:
        """The longest block, with `[CLS]` and `[SEP]`."""
        return int(self.body.config.max_position_embeddings) - self.family.first_position
