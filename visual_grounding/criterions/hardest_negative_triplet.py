"""`--criterion hardest_negative_triplet`: VA eq. 1, every pair against its hardest negative of the batch."""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics

from ..errors import InputError, check_weight
from ..modules.matching_losses import TRIPLET_DIRECTIONS, hardest_negative_triplet_loss


@dataclass
class HardestNegativeTripletConfig(FairseqDataclass):
    """Flags of the triplet loss."""

    triplet_margin: float = field(default=0.2, metadata={"help": "alpha of the triplet loss, in cosine"})
    triplet_direction: ChoiceEnum(TRIPLET_DIRECTIONS) = field(  # type: ignore[valid-type]
        default="image",
        metadata={
            "help": "image: hardest caption for each image (the paper); both: and hardest image for each caption"
        },
    )


@register_criterion("hardest_negative_triplet", dataclass=HardestNegativeTripletConfig)
class HardestNegativeTripletCriterion(FairseqCriterion):
    """Mean over the pairs of a batch; pairs whose image is absent take no part, not even as negatives.

    Negatives come from the batch of one process: `--batch-size` decides how hard they are, `--update-freq` doesn't.

    Raises:
        InputError: a margin that is negative, infinite or NaN.
    """

    def __init__(self, task: Any, triplet_margin: float, triplet_direction: str) -> None:
        super().__init__(task)
        check_weight("--triplet-margin", triplet_margin)
        self.margin = triplet_margin
        self.direction = str(triplet_direction)

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        """Loss of a batch, summed; the number of its pairs; what to log. In evaluation the task gets the embeddings.

        Shapes:
            sample["image_rows"]: (B,);  sample["net_input"]: what the model takes
            returns: loss () summed over the pairs, or (B',) with reduce=False

        Raises:
            InputError: the model has no vector of a sentence.
        """
        text, images = model(**sample["net_input"])  # (B, D) each
        if text.dim() != 2:
            raise InputError(
                "--criterion hardest_negative_triplet compares sentences with images, but the model gives a vector for "
                "each token. Train it with --criterion token_image_hinge, or with --sentence-level."
            )
        present = ~sample["net_input"]["visual"]["padding_mask"].flatten(1).all(dim=1)  # (B,)
        with torch.autocast(text.device.type, enabled=False):  # float16 would round cosines to 0.0005
            similarity = images[present].float() @ text[present].float().T
        losses = hardest_negative_triplet_loss(similarity, sample["image_rows"][present], self.margin, self.direction)
        loss = losses.sum() if reduce else losses
        pairs = len(losses)
        logging_output = {
            "loss": float(losses.detach().sum()),
            "violations": int((losses.detach() > 0).sum()),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": pairs,
        }
        if not self.training:
            self.task.collect("embeddings", id=sample["id"], image=sample["image_rows"], text=text, images=images)
        return loss, pairs, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the mean loss, the fraction of pairs that still lose against a negative, and how many have no image."""
        pairs = sum(int(output.get("sample_size", 0)) for output in logging_outputs)
        for name in ("loss", "violations"):
            total = float(sum(output.get(name, 0) for output in logging_outputs))
            metrics.log_scalar(name, total / max(pairs, 1), pairs, round=4)
        absent = sum(int(output.get("nsentences", 0)) for output in logging_outputs) - pairs
        if absent > 0:  # unreadable pictures, or images without features
            metrics.log_scalar_sum("absent", absent)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: only sums are logged."""
        return True
