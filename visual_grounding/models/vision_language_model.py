"""What the models of VLP share: flags, and the stream of text, tags and regions that their BERT reads."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Optional

from ..modules.pretrained_bert import BERT, PretrainedBert, bert_config
from ..modules.vision_language_bert import VisionLanguageBert
from ..storage.outside import parse_json
from .bert_choices import BertChoicesConfig, size_presets
from .visual_model import VisualModelConfig

MODELS = ("vlp_bert", "vlp_translation")
BERT_PRESETS = size_presets(
    {
        "": {},
        "_small": {"bert_size": 512, "bert_layers": 6, "bert_heads": 8, "bert_ffn_size": 2048},
        "_tiny": {"bert_size": 128, "bert_layers": 4, "bert_heads": 4, "bert_ffn_size": 256},
    }
)


@dataclass
class VisionLanguageConfig(BertChoicesConfig, VisualModelConfig):
    """The flags of a BERT over text, tags and regions."""


def build_stream(args: Namespace, task: Any, read: Optional[PretrainedBert]) -> VisionLanguageBert:
    """The BERT that `take_bert` decided on, with the weights that it read.

    Raises:
        InputError: sizes that don't fit each other.
    """
    config = bert_config(parse_json(args.bert_config), len(task.source_dictionary))
    stream = VisionLanguageBert(config, args.visual_feature_size)
    if read is not None:
        stream.bert.load_state_dict({name.removeprefix(BERT.prefix): value for name, value in read.body.items()})
    return stream
