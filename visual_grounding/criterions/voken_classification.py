"""`--criterion voken_classification`: the voken of every piece beside masked words (VOK §2.2, eq. 1)."""

import math
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.logging import metrics
from torch import Tensor

from ..modules.linear_cross_entropy import UNASKED, Answers

PARTS = ("voken", "mlm")


@register_criterion("voken_classification")
class VokenClassificationCriterion(FairseqCriterion):
    """Mean over the vokens plus λ times the mean over the masked words of a batch.

        L = ω/|V| Σ_i −log p_i(v(w_i; s)) + λ/|ŝ| Σ_{w_i ∈ ŝ} −log q_i(w_i)      (VOK eq. 1)

    ω -> the task's `voken_weight`, 1 in the paper; λ -> its `mlm_weight`; V -> all pieces but the special ones and
    those without a voken, masked or not; ŝ -> the masked words. Deviation: eq. 1 has sums; the means are those of the
    paper's code. A part without anything to tell is 0.

    Assumption: each batch of each process has means of its own, which count by its blocks; fairseq divides by their
    number over all processes and, with `--update-freq`, batches. What is logged is summed over all before it is
    divided: the means of a whole split, however it was cut into batches. Losses are logged in bits, as fairseq logs
    them; `ppl` is the perplexity of the masked words.
    """

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self.weights = {"voken": float(task.cfg.voken_weight), "mlm": float(task.cfg.mlm_weight)}

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of a batch times its blocks; their number; what to log.

        Shapes:
            sample: `word_targets` and, where there are vokens, `voken_targets`: (B, T), −1 where nothing is asked
            returns: loss ()
        """
        words, vokens = sample["word_targets"], sample.get("voken_targets")
        found = model(**sample["net_input"], word_targets=words, voken_targets=vokens)
        blocks = int(sample["nsentences"])
        logged: dict[str, Any] = {"ntokens": sample["ntokens"], "nsentences": blocks, "sample_size": blocks}
        loss = torch.zeros((), device=words.device)
        answered: dict[str, Answers] = {"voken": found.vokens, "mlm": found.words}
        for part, answers in answered.items():
            if answers is None:
                continue
            count = len(answers.right)
            loss = loss + self.weights[part] * answers.loss / max(count, 1)
            logged |= {f"{part}_loss": answers.loss.detach(), f"{part}_hits": answers.right.sum(), f"{part}s": count}
            logged[f"{part}_part"] = self.weights[part] * answers.loss.detach()
        if found.vokens is not None and vokens is not None:
            masked = (words != UNASKED)[vokens != UNASKED]  # (P,)
            logged |= {"masked_hits": (found.vokens.right & masked).sum(), "masked": masked.sum()}
        return loss * blocks, blocks, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the means of both parts, their weighted sum, and which share of vokens and of words was right.

        Of the vokens also the shares at masked pieces and at those that the model sees.
        """
        total = {name: sum(float(output.get(name, 0)) for output in logging_outputs) for name in _SUMMED}
        for part in PARTS:
            count = total[f"{part}s"]
            if not count:
                continue
            metrics.log_scalar(f"{part}_loss", total[f"{part}_loss"] / count / math.log(2), count, round=3)
            # fairseq doesn't print what begins so
            metrics.log_scalar(f"_{part}_part", total[f"{part}_part"] / count / math.log(2), count)
        if total["mlms"]:
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["mlm_loss"].avg))
        visible = total["vokens"] - total["masked"]
        for name, hits, count in (
            ("word_accuracy", total["mlm_hits"], total["mlms"]),
            ("voken_accuracy", total["voken_hits"], total["vokens"]),
            ("voken_accuracy_masked", total["masked_hits"], total["masked"]),
            ("voken_accuracy_visible", total["voken_hits"] - total["masked_hits"], visible),
        ):
            if count:
                metrics.log_scalar(name, hits / count, count, round=4)
        metrics.log_derived("loss", loss_of_parts)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: only sums are logged."""
        return True


_SUMMED = (*(f"{part}{name}" for part in PARTS for name in ("s", "_loss", "_part", "_hits")), "masked", "masked_hits")


def loss_of_parts(meters: Any) -> float:
    """The weighted sum of the parts' means so far; a part of which nothing was asked is 0."""
    return round(sum(float(meters[f"_{part}_part"].avg or 0) for part in PARTS if f"_{part}_part" in meters), 3)
