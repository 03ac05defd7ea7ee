"""`--criterion grounded_sentence_prediction`: cross-entropy of classes, or squared distance of numbers.

fairseq's `sentence_prediction` has the same losses. It can't serve here: what it predicts it keeps to itself, so F1 and
correlations of a whole split couldn't be told.
"""

import math
from typing import Any

from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.logging import metrics
from torch import Tensor

from ..data.labelled_examples import PREDICTIONS
from ..modules.prediction_head import answer_loss
from ..text.labelled_text import CLASSES, VALUES


@register_criterion("grounded_sentence_prediction")
class GroundedSentencePredictionCriterion(FairseqCriterion):
    """Mean over the examples; of classes it is logged in bits, as fairseq logs them, of numbers as it is.

    Attributes:
        tells: answers that it is for.
    """

    tells: tuple[str, ...] = (CLASSES, VALUES)

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Summed loss of a batch; its examples, or words; what to log.

        Shapes:
            sample: `target` (B,), or (B, W) of tags;  returns: loss ()
        """
        outputs = model(**sample["net_input"])  # (B, C), or (B, W, C)
        values = self.task.asked.answers == VALUES
        loss, count = answer_loss(outputs, self.task.learned(sample), values)
        gold, predicted = self.task.answered(outputs, sample)
        self.task.collect(PREDICTIONS, id=sample["id"], gold=gold, predicted=predicted)
        logged = {
            "loss": loss.detach() if values else loss.detach() / math.log(2),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": max(count, 1),
            "told": count,
        }
        return loss, max(count, 1), logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the loss over all batches and processes, divided by what it is of."""
        total, count = (sum(float(output.get(name, 0)) for output in logging_outputs) for name in ("loss", "told"))
        metrics.log_scalar("loss", total / count if count else 0.0, count, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: only sums are logged."""
        return True
