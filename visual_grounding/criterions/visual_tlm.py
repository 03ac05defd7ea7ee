"""`--criterion visual_tlm`: words and labels of regions, predicted from each other (VTLM §2.2)."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ..errors import check_weight
from ..features.columns import NO_LABEL

PARTS = ("word", "region")


def summed_loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy summed over what is predicted, and how much of it is right; 0 and 0 of nothing.

    Shapes:
        logits: (P, V);  targets: (P,)
        returns: loss (), hits ()
    """
    loss = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")
    return loss, (logits.detach().argmax(dim=1) == targets).sum()


@dataclass
class VisualTLMCriterionConfig(FairseqDataclass):
    """The flag of the loss."""

    region_loss_weight: float = field(
        default=1.0,
        metadata={
            "help": "weight of the regions' mean loss beside the words'; 1 in the paper. Less where a batch has few "
            "regions and updates are few: theirs is the noisier mean"
        },
    )


@register_criterion("visual_tlm", dataclass=VisualTLMCriterionConfig)
class VisualTLMCriterion(FairseqCriterion):
    """Mean over the masked words plus mean over the chosen regions of a batch.

        L = 1/|W| Σ_w −log p(w) + ω/|R| Σ_r −log p(label of r)

    ω -> `region_loss_weight`, 1 in the paper. A part without anything to predict is 0. Each process, and with
    `--update-freq` each batch, has means of its own, of which the update is the mean, as in the reference code. What is
    logged is summed over all before it is divided: the means of a whole split, however it was cut into batches. Losses
    are logged in bits, as fairseq logs them; `ppl` is the perplexity of the masked words.

    Raises:
        InputError: a weight that is negative, infinite or NaN.
    """

    def __init__(self, task: Any, region_loss_weight: float) -> None:
        super().__init__(task)
        check_weight("--region-loss-weight", region_loss_weight)
        self.weights = {"word": 1.0, "region": region_loss_weight}

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of a batch; 1, by which fairseq divides it; what to log.

        Shapes:
            sample["word_targets"]: (B, L), padding where nothing is predicted
            sample["label_targets"]: (B, N, R), −1 there; absent without images
            returns: loss ()
        """
        words = sample["word_targets"] != self.task.source_dictionary.pad()  # (B, L)
        labels = sample.get("label_targets")
        regions = None if labels is None else labels != NO_LABEL  # (B, N, R)
        word_logits, label_logits = model(**sample["net_input"], words=words, regions=regions)
        logged: dict[str, Any] = {name: sample[name] for name in ("ntokens", "nsentences")}
        predicted = {"word": (word_logits, sample["word_targets"][words])}
        if label_logits is not None and labels is not None:
            predicted["region"] = (label_logits, labels[regions])
        loss = word_logits.new_zeros((), dtype=torch.float32)
        for part, (logits, targets) in predicted.items():
            total, hits = summed_loss(logits, targets)
            loss = loss + self.weights[part] * total / max(len(targets), 1)
            logged |= {f"{part}_loss": total.detach(), f"{part}_hits": hits, f"{part}s": len(targets)}
            logged[f"{part}_part"] = self.weights[part] * total.detach()
        return loss, 1, {**logged, "sample_size": 1}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the means of both parts, their weighted sum, and which share of words and of regions was right."""
        for part in PARTS:
            count = sum(int(output.get(f"{part}s", 0)) for output in logging_outputs)
            if count:
                bits = sum(float(output.get(f"{part}_loss", 0)) for output in logging_outputs) / math.log(2)
                hits = sum(int(output.get(f"{part}_hits", 0)) for output in logging_outputs)
                metrics.log_scalar(f"{part}_loss", bits / count, count, round=3)
                weighted = sum(float(output.get(f"{part}_part", 0)) for output in logging_outputs) / math.log(2)
                metrics.log_scalar(f"_{part}_part", weighted / count, count)  # fairseq doesn't print what begins so
                metrics.log_scalar(f"{part}_accuracy", hits / count, count, round=4)
                if part == "word":
                    metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["word_loss"].avg))
        metrics.log_derived("loss", loss_of_parts)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: only sums are logged."""
        return True


def loss_of_parts(meters: Any) -> float:
    """The weighted sum of the parts' means so far; a part of which nothing was predicted is 0."""
    return round(sum(float(meters[f"_{part}_part"].avg or 0) for part in PARTS if f"_{part}_part" in meters), 3)
