"""`--arch voken_bert`: a BERT that learns masked words and vokens (VOK §2.2)."""

from fairseq.models import register_model

from ..modules.pretrained_bert import FAMILIES
from .presets import register_presets
from .voken_lm import VOKEN_PRESETS, VokenLanguageModel


@register_model("voken_bert")  # no dataclass=: what is read from a BERT has to go into the flags that fairseq saves
class VokenBertModel(VokenLanguageModel):
    """Positions from 0 and two kinds of segments, as transformers' BERT."""

    family = FAMILIES["bert"]


register_presets("voken_bert", VOKEN_PRESETS)
