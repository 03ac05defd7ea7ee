"""`--criterion masked_lm_with_paired_image`: VLP's pre-training (§3.2): hidden words and tags, whose images.

    L = L_MLM + L_paired

Assumption: the paper adds the two without saying how they weigh: one to one, each a mean over what it predicts.
"""

import math
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.logging import metrics
from torch import Tensor

from ..modules.vision_language_losses import UNKNOWN_PAIR, masked_word_loss, paired_image_loss


@register_criterion("masked_lm_with_paired_image")
class MaskedLMWithPairedImageCriterion(FairseqCriterion):
    """The means of a batch, times its sentences, by whose number over all processes fairseq divides.

    A batch without a hidden word, or without images, adds 0 for that loss. Losses are logged in bits, as fairseq logs
    them; `ppl` is the perplexity of what is hidden.
    """

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        """Loss of a batch times its sentences; their number; what to log.

        Shapes:
            sample: `target` (B, T) and `tag_target` (B, G), padding where nothing is hidden; `paired` (B,)
            returns: loss ()
        """
        pad = self.task.source_dictionary.pad()
        target, tag_target, paired = sample["target"], sample.get("tag_target"), sample["paired"]
        hidden_words = target != pad
        hidden_tags = None if tag_target is None else tag_target != pad
        found = model(**sample["net_input"], hidden_words=hidden_words, hidden_tags=hidden_tags)
        words = target[hidden_words]  # (K,)
        tags = words[:0] if tag_target is None else tag_target[found.predicted_tags]  # (J,)
        masked_loss = masked_word_loss(torch.cat([found.words, found.tags]), torch.cat([words, tags]))
        paired_loss = paired_image_loss(found.paired, paired)
        sentences = len(paired)
        known = paired != UNKNOWN_PAIR
        logging_output = {
            "loss": float((masked_loss + paired_loss).detach()) * sentences,
            "mlm_loss": float(masked_loss.detach()) * (len(words) + len(tags)),
            "words": len(words),
            "right_words": _right(found.words, words),
            "tags": len(tags),
            "right_tags": _right(found.tags, tags),
            "pairs": int(known.sum()),
            "right_pairs": int((((found.paired > 0) == (paired > 0)) & known).sum()),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sentences,
        }
        logging_output["paired_image_loss"] = float(paired_loss.detach()) * logging_output["pairs"]
        return (masked_loss + paired_loss) * sentences, sentences, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the losses, and the share of words, of tags and of pairs that are right; what there is none of, isn't."""
        total = {name: float(sum(output.get(name, 0) for output in logging_outputs)) for name in _SUMMED}
        hidden = total["words"] + total["tags"]
        sizes = {"loss": total["sample_size"], "mlm_loss": hidden, "paired_image_loss": total["pairs"]}
        for name, count in sizes.items():
            if count or name == "loss":
                metrics.log_scalar(name, total[name] / max(count, 1) / math.log(2), count, round=3)
        if hidden:
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["mlm_loss"].avg))
        for name, right, count in (
            ("word_accuracy", total["right_words"], total["words"]),
            ("tag_accuracy", total["right_tags"], total["tags"]),
            ("paired_image_accuracy", total["right_pairs"], total["pairs"]),
        ):
            if count:
                metrics.log_scalar(name, right / count, count, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: only sums are logged."""
        return True


_SUMMED = (
    "loss", "mlm_loss", "words", "right_words", "tags", "right_tags", "pairs", "right_pairs", "paired_image_loss",
    "sample_size",
)  # fmt: skip


def _right(logits: Tensor, targets: Tensor) -> int:
    """How many are right: logits (K, V), targets (K,)."""
    return int((logits.argmax(dim=-1) == targets).sum())
