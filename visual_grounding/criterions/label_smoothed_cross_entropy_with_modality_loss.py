"""`--criterion label_smoothed_cross_entropy_with_modality_loss`: VLP §3.3, eq. 3 to 5."""

import logging
import math
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from fairseq.models import MODEL_REGISTRY
from torch import Tensor

from ..errors import MOST_WEIGHT, InputError
from ..modules.modality_loss import TokenWeight, counted_positions, modality_distance, modality_loss

logger = logging.getLogger(__name__)

LEARNED = "learned"


@dataclass
class LabelSmoothedCrossEntropyWithModalityLossConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of the modality loss, beside those of label smoothing."""

    modality_weight: str = field(
        default=LEARNED,
        metadata={
            "help": "lambda of the modality loss: learned, one for each token (VLP eq. 5); or a fixed number (0.4 in "
            "the paper), or one for each of --modality-layers, comma-separated"
        },
    )
    modality_layers: str = field(
        default="last", metadata={"help": "decoder layers with the modality loss: last, all, or such as 0,2,5"}
    )


@register_criterion(
    "label_smoothed_cross_entropy_with_modality_loss", dataclass=LabelSmoothedCrossEntropyWithModalityLossConfig
)
class LabelSmoothedCrossEntropyWithModalityLossCriterion(LabelSmoothedCrossEntropyCriterion):
    """Translate, and let what the decoder finds in the regions point where what it finds in the text points.

        L = L_XENT + Σ_l λ^(l) Σ_j 1 − cos(h_x,j, h_v,j)             (VLP eq. 3 and 4)
        L = L_XENT + Σ_l Σ_j λ_j^(l) (1 − cos(h_x,j, h_v,j))         (with eq. 5)

    L_XENT -> fairseq's `label_smoothed_cross_entropy`; l -> `--modality-layers`; j -> words of the target, in rows that
    have a region. Both are sums, and fairseq divides both by the same: the target tokens of an update, or its sentences
    with --sentence-avg. So λ weighs a token's modality loss against its cross-entropy (in nats), and a row without
    regions, which adds nothing, pulls its mean down.

    The vectors of eq. 5 are the criterion's: trained along, kept in checkpoints beside the model, and no part of it. A
    checkpoint that was trained without them is gone on from with new ones. `fairseq-validate` builds a criterion and
    loads the model alone, so there nothing is logged that needs them, and a warning says so.

    In evaluation L is L_XENT alone: the second look is for training only, and the best checkpoint is the one that
    translates best, however large λ is. What is logged: `modality_cosine`, the mean over what counts;
    `modality_weight`, the mean λ (learned, it can fall to 0); `modality_loss` and `translation_loss`, the two parts
    of L, in bits as `loss`.

    Raises:
        InputError: the model's decoder can't look at text and regions apart; there are no such layers, or not as many
            weights as layers; a weight is neither a number nor learned.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        modality_weight: str,
        modality_layers: str,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        decoder = getattr(task, "looks_apart", None)
        if decoder is None:
            raise InputError(_without_second_look(getattr(task, "built_model", None)))
        self.layers = layers_of(modality_layers, decoder.layers)
        weights = weights_of(modality_weight, self.layers)
        self.weights = weights or {}
        self.token_weight = TokenWeight(decoder.embedding_size, decoder.size) if weights is None else None
        self.weights_known = weights is not None  # learned ones as soon as they are loaded or trained
        self.warned = False
        if not task.image_feature_size:
            logger.warning("without --image-features there is no modality loss: text alone is trained on.")

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """L of a batch, summed; what it is to be divided by; what to log.

        Shapes:
            sample["target"]: (B, U);  returns: loss (), or (B·U, 1) with reduce=False
        """
        self.weights_known |= self.training
        output = model(**sample["net_input"], attend_apart=self.layers)
        translation, nll_loss = self.compute_loss(model, output, sample, reduce=reduce)
        modality, logged = self.compute_modality_loss(model, output, sample)
        modality = modality.sum() if reduce else modality[:, self.ignore_prefix_size :].reshape(-1, 1)
        loss = translation + modality if self.training else translation
        sample_size = len(sample["target"]) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.detach(),
            "translation_loss": translation.detach(),
            "nll_loss": nll_loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": len(sample["target"]),
            "sample_size": sample_size,
            **logged,
        }
        if self.weights_known:
            logging_output["modality_loss"] = modality.detach()
        if self.report_accuracy:
            correct, total = self.compute_accuracy(model, output, sample)
            logging_output.update(n_correct=utils.item(correct), total=utils.item(total))
        return loss, sample_size, logging_output

    def compute_modality_loss(
        self, model: Any, output: Any, sample: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Σ_l of each position's modality loss, and the sums over what counts that means are made of.

        Where the learned vectors weren't loaded the loss is 0, and there is no sum of λ.

        Shapes:
            returns: (B, U); sums ()
        """
        target = model.get_targets(sample, output)
        visual = sample["net_input"].get("visual")
        absent = target.new_ones(len(target), 1) > 0 if visual is None else visual["padding_mask"].flatten(1)
        counted = counted_positions(target, self.padding_idx, absent)  # (B, U)
        counted[:, : self.ignore_prefix_size] = False
        if not self.weights_known:
            self._warn_of_unknown_weights()
        embedded = model.decoder.embed_tokens(target)  # (B, U, D')
        loss = torch.zeros(target.shape, device=target.device)
        cosine, weights, count = (torch.zeros((), device=target.device) for _ in range(3))
        for layer, (text, regions) in output[1]["attended_apart"].items():
            distance = modality_distance(text, regions)
            with torch.no_grad():
                cosine += (1 - distance).masked_fill(~counted, 0.0).sum()
                count += counted.sum()
            if not self.weights_known:
                continue  # the vectors needn't even be on this device
            weight = self.weights[layer] if self.token_weight is None else self.token_weight(embedded, text, regions)
            loss = loss + modality_loss(distance, weight, counted)
            with torch.no_grad():
                weights += (weight * counted).sum()
        sums = {"modality_cosine": cosine, "modality_counted": count}
        return loss, {**sums, "modality_weight": weights} if self.weights_known else sums

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log fairseq's, both parts of the loss, and the mean cosine and λ over all that counted in all processes."""
        super().reduce_metrics(logging_outputs)

        def total(name: str) -> float:
            return float(sum(output.get(name, 0) for output in logging_outputs))

        size, counted = total("sample_size"), total("modality_counted")
        logged = {name for output in logging_outputs for name in output}
        for name in ("translation_loss", "modality_loss"):
            if name in logged:
                metrics.log_scalar(name, total(name) / max(size, 1) / math.log(2), size, round=3)
        for name in ("modality_cosine", "modality_weight"):
            if counted and name in logged:
                metrics.log_scalar(name, total(name) / counted, counted, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: only sums are logged."""
        return True

    def load_state_dict(self, state_dict: Any, strict: bool = True, **options: Any) -> Any:
        """As torch's; None, which a checkpoint of a criterion without parameters has, changes nothing."""
        if state_dict is None:
            logger.info("the checkpoint has no weights of the modality loss: they start anew")
            return None
        self.weights_known = True
        return super().load_state_dict(state_dict, strict=strict, **options)

    def _warn_of_unknown_weights(self) -> None:
        if not self.warned:
            logger.warning(
                "modality_weight and modality_loss aren't logged: they need the vectors that were learned beside the "
                "model, and fairseq-validate loads the model alone. fairseq-train logs both of its validation."
            )
        self.warned = True


def layers_of(chosen: str, layers: int) -> tuple[int, ...]:
    """Numbers of layers, from 0.

    >>> layers_of("last", 6), layers_of("all", 3), layers_of("2,0", 3)
    ((5,), (0, 1, 2), (2, 0))

    Raises:
        InputError: there are no such layers.
    """
    if chosen in ("last", "all"):
        return tuple(range(layers))[-1:] if chosen == "last" else tuple(range(layers))
    parts = [part.strip() for part in chosen.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal() and int(part) < layers]
    if len(set(numbers)) < len(parts):
        raise InputError(
            f"--modality-layers should be last, all, or different numbers of the decoder's layers (0 to {layers - 1}) "
            f"with commas between, but is {chosen!r}."
        )
    return tuple(numbers)


def weights_of(chosen: str, layers: tuple[int, ...]) -> Optional[dict[int, float]]:
    """Each layer's λ; None where they are learned.

    >>> weights_of("0.4", (0, 5)), weights_of("1,0.5", (0, 5)), weights_of("learned", (5,))
    ({0: 0.4, 5: 0.4}, {0: 1.0, 5: 0.5}, None)

    Raises:
        InputError: they aren't numbers from 0 on, or neither one nor one for each layer.
    """
    if chosen == LEARNED:
        return None
    try:
        weights = [float(part) for part in chosen.split(",")]
    except ValueError:
        weights = []
    if len(weights) not in (1, len(layers)) or not all(0 <= weight <= MOST_WEIGHT for weight in weights):
        raise InputError(
            f"--modality-weight should be {LEARNED}, a number from 0 to {MOST_WEIGHT:,.0f}, or {len(layers)} with "
            f"commas between, one for each of the layers {', '.join(map(str, layers))}, but is {chosen!r}."
        )
    return dict(zip(layers, weights * len(layers) if len(weights) == 1 else weights))


def _without_second_look(model: Optional[type]) -> str:
    """What to say of a model without a decoder over text and regions."""
    able = sorted(name for name, each in MODEL_REGISTRY.items() if getattr(each, "attends_to_regions", False))
    names = [name for name, each in MODEL_REGISTRY.items() if each is model]
    has = f"that of --arch {names[0]} doesn't" if names else "that of this task's model doesn't say that it does"
    choose = f"Choose --arch {' or '.join(able)} with --task grounded_translation" if able else "Choose another --arch"
    return (
        f"the modality loss is for a decoder that attends to text and regions, but {has}. {choose}, or --criterion "
        "label_smoothed_cross_entropy."
    )
