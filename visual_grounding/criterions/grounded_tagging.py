"""`--criterion grounded_tagging`: cross-entropy of each word's tag, told from its first piece."""

from fairseq.criterions import register_criterion

from ..text.labelled_text import TAGS
from .grounded_sentence_prediction import GroundedSentencePredictionCriterion


@register_criterion("grounded_tagging")
class GroundedTaggingCriterion(GroundedSentencePredictionCriterion):
    """Mean over the words of a batch that have a piece and a tag that training knows; logged in bits."""

    tells = (TAGS,)
