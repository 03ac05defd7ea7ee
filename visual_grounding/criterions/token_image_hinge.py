"""`--criterion token_image_hinge`: VOK §3.2, every token of a caption nearer to its image than to another."""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ..errors import check_weight
from ..modules.matching_losses import TOKEN_IMAGE_NEGATIVES, next_other_image, other_images, token_image_hinge
from ..modules.token_image_matcher import mean_of_tokens


@dataclass
class TokenImageHingeConfig(FairseqDataclass):
    """Flags of the hinge loss."""

    token_image_margin: float = field(default=0.5, metadata={"help": "M of the hinge loss, in cosine"})
    token_image_negatives: ChoiceEnum(TOKEN_IMAGE_NEGATIVES) = field(  # type: ignore[valid-type]
        default="one",
        metadata={
            "help": "one: a single other image of the batch for each caption (the paper); all: the mean over every "
            "other image of the batch"
        },
    )


@register_criterion("token_image_hinge", dataclass=TokenImageHingeConfig)
class TokenImageHingeCriterion(FairseqCriterion):
    """Mean over the tokens of a batch, special pieces included; with a sentence-level matcher, over its captions.

    A caption takes no part where its image is absent, or where no other image of the batch is there. Negatives come
    from the batch of one process: `--update-freq` doesn't add to them.

    Raises:
        InputError: a margin that is negative, infinite or NaN.
    """

    def __init__(self, task: Any, token_image_margin: float, token_image_negatives: str) -> None:
        super().__init__(task)
        check_weight("--token-image-margin", token_image_margin)
        self.margin = token_image_margin
        self.negatives = str(token_image_negatives)

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        """Loss of a batch, summed; the number of its terms; what to log. In evaluation the task gets the vectors.

        Shapes:
            sample["image_rows"]: (B,);  sample["special_mask"]: (B, T), True at special pieces
            sample["net_input"]: what the model takes, which gives tokens (B, T, D) or sentences (B, D), images (B, D)
            returns: loss () summed over tokens or sentences, or (n,) with reduce=False
        """
        text, images = model(**sample["net_input"])
        padding_mask = sample["net_input"]["token_padding_mask"]  # (B, T)
        of_tokens = text.dim() == 3
        vectors = text if of_tokens else text.unsqueeze(1)  # (B, D) -> (B, 1, D)
        real = ~padding_mask if of_tokens else ~padding_mask.all(dim=1, keepdim=True)  # (B, T) or (B, 1)
        present = ~sample["net_input"]["visual"]["padding_mask"].flatten(1).all(dim=1)  # (B,)
        others = other_images(sample["image_rows"], present)  # (B, B)
        losses = self._hinge(vectors, images, others)
        opposed = others.any(dim=1)  # (B,)
        counted = real & (present & opposed).unsqueeze(1)
        losses = losses.masked_fill(~counted, 0.0)
        terms = int(counted.sum())
        logging_output = {
            "loss": float(losses.detach().sum()),
            "violations": int((losses.detach() > 0).sum()),
            "without_image": int((~present).sum()),
            "without_negative": int((present & ~opposed).sum()),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": terms,
        }
        if not self.training:
            self._hand_over(text, images, sample)
        return losses.sum() if reduce else losses[counted], terms, logging_output

    def _hinge(self, vectors: Tensor, images: Tensor, others: Tensor) -> Tensor:
        """Every token's term.

        Shapes:
            vectors: (B, T, D);  images: (B, D);  others: (B, B)
            returns: (B, T)
        """
        with torch.autocast(vectors.device.type, enabled=False):  # float16 would round cosines to 0.0005
            vectors, images = vectors.float(), images.float()
            own = torch.einsum("btd,bd->bt", vectors, images)
            if self.negatives == "all":
                return token_image_hinge(own, torch.einsum("btd,cd->btc", vectors, images), others, self.margin)
            negative = next_other_image(others)  # (B,)
            against = torch.einsum("btd,bd->bt", vectors, images[negative]).unsqueeze(2)  # (B, T, 1)
            return token_image_hinge(own, against, (negative >= 0).unsqueeze(1), self.margin)

    def _hand_over(self, text: Tensor, images: Tensor, sample: dict[str, Any]) -> None:
        """To the task: a vector of each caption; and of its tokens, without special pieces."""
        known = {"id": sample["id"], "image": sample["image_rows"], "images": images}
        if text.dim() == 2:
            self.task.collect("embeddings", text=text, **known)
            return
        self.task.collect("embeddings", text=mean_of_tokens(text), **known)
        self.task.collect("tokens", tokens=text.masked_fill(sample["special_mask"].unsqueeze(2), 0.0), **known)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the mean loss of a token, the fraction that still loses against a negative, and who took no part."""
        terms = sum(int(output.get("sample_size", 0)) for output in logging_outputs)
        for name in ("loss", "violations"):
            total = float(sum(output.get(name, 0) for output in logging_outputs))
            metrics.log_scalar(name, total / max(terms, 1), terms, round=4)
        for name, said in (("without_image", "absent"), ("without_negative", "without_negative")):
            captions = sum(int(output.get(name, 0)) for output in logging_outputs)
            if captions > 0:
                metrics.log_scalar_sum(said, captions)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: only sums are logged."""
        return True
