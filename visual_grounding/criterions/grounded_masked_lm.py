"""`--criterion grounded_masked_lm`: hidden words, and hidden regions' features (GS §2.2).

    L = L_JMLM + L_JMRM

# Assumption: the paper doesn't say how the two weigh: one to one, each a mean over what is hidden.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ..errors import InputError
from ..modules.grounded_encoder import region_regression_loss


@dataclass
class GroundedMaskedLMConfig(FairseqDataclass):
    """The flag of the regions' loss."""

    region_loss_power: float = field(
        default=1.0, metadata={"help": "p of L_p, how far a hidden region's features are from what is predicted"}
    )


_MOST_POWER = 16  # beyond it float32 can't hold the squares of gradients
_ASKED = ("hidden_words", "word_side", "hidden_regions", "region_side")


@register_criterion("grounded_masked_lm", dataclass=GroundedMaskedLMConfig)
class GroundedMaskedLMCriterion(FairseqCriterion):
    """Each batch has means of its own; what is logged are those of a whole split, in bits where they are of words.

    A batch without a hidden word, or without a hidden region, adds 0 for that loss.

    Raises:
        InputError: a power that isn't above 0, or above 16.
    """

    def __init__(self, task: Any, region_loss_power: float) -> None:
        super().__init__(task)
        if not 0 < region_loss_power <= _MOST_POWER:
            raise InputError(
                f"--region-loss-power should be a number above 0 and at most {_MOST_POWER}, but is {region_loss_power}."
            )
        if region_loss_power != 1 and str(task.cfg.grounding_objective) == "jmlm":
            raise InputError(
                "--region-loss-power is of regions that are learned: give --grounding-objective both or jmrm."
            )
        self.power = region_loss_power

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of a batch; 1, by which fairseq divides it; what to log.

        Shapes:
            sample: `hidden_words` (B, T), `word_side` and `region_side` (B,), `hidden_regions` (B, N, R)
            returns: loss ()
        """
        asked = {name: sample[name] for name in _ASKED if name in sample}
        # One forward for both sides: distributed training follows gradients from one to the other.
        found = model(**sample["net_input"], mask=self.task.mask, **asked)
        loss = found.idle
        logged: dict[str, Any] = {name: sample[name] for name in ("ntokens", "nsentences")}
        # Always all of them, of the same kinds: fairseq adds up what the processes log without looking at the names.
        nothing = loss.detach().new_zeros(())
        logged |= {"words": 0, "right_words": nothing, "mlm_loss": nothing, "regions": 0, "region_loss": nothing}
        if found.words is not None:
            words = len(found.words.right)
            loss = loss + found.words.loss / words
            logged |= {"words": words, "right_words": found.words.right.sum(), "mlm_loss": found.words.loss.detach()}
        if found.regions is not None:
            hidden = sample["hidden_regions"][sample["region_side"]]  # (B', N, R)
            features = sample["net_input"]["visual"]["features"][sample["region_side"]][hidden]  # (J, F)
            far = region_regression_loss(found.regions, features, self.power)
            loss = loss + far
            logged |= {"regions": len(features), "region_loss": far.detach() * len(features)}
        return loss, 1, {**logged, "sample_size": 1}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log both means, their sum, and the share of words that are right; what there is none of, isn't logged."""
        names = ("mlm_loss", "words", "right_words", "region_loss", "regions")
        total = {name: float(sum(output.get(name, 0) for output in logging_outputs)) for name in names}
        if total["words"]:
            bits = total["mlm_loss"] / total["words"] / math.log(2)
            metrics.log_scalar("mlm_loss", bits, total["words"], round=3)
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["mlm_loss"].avg))
            metrics.log_scalar("word_accuracy", total["right_words"] / total["words"], total["words"], round=4)
        if total["regions"]:
            metrics.log_scalar("region_loss", total["region_loss"] / total["regions"], total["regions"], round=4)
        metrics.log_derived("loss", loss_of_parts)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: only sums are logged."""
        return True


def loss_of_parts(meters: Any) -> float:
    """The sum of both means so far; a part of which nothing was hidden, since fairseq logged last, is 0."""
    return round(sum(float(meters[part].avg or 0) for part in ("mlm_loss", "region_loss") if part in meters), 3)
