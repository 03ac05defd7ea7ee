"""`--arch voken_roberta`: a RoBERTa that learns masked words and vokens (VOK §2.2)."""

from fairseq.models import register_model

from ..modules.pretrained_bert import FAMILIES
from .presets import register_presets
from .voken_lm import VOKEN_PRESETS, VokenLanguageModel


@register_model("voken_roberta")  # no dataclass=: what is read from a BERT has to go into the flags that fairseq saves
class VokenRobertaModel(VokenLanguageModel):
    """Positions behind the padding symbol's number and one kind of segment, as transformers' RoBERTa."""

    family = FAMILIES["roberta"]


register_presets("voken_roberta", VOKEN_PRESETS)
