"""The two losses of VLP's pre-training (§3.2)."""

import torch
from torch import Tensor
from torch.nn import functional

UNKNOWN_PAIR = -1


def masked_word_loss(logits: Tensor, words: Tensor) -> Tensor:
    """Cross-entropy of what masks hide, mean over it; 0 where nothing is hidden.

        − 1/K Σ_k log softmax(logits_k)[word_k]

    Computed in float32.

    Shapes:
        logits: (K, V);  words: (K,)
        returns: ()

    >>> masked_word_loss(torch.tensor([[0.0, 0.0], [9.0, 9.0]]), torch.tensor([0, 1])).item()  # ln 2 each
    0.6931471824645996
    >>> masked_word_loss(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)).item()
    0.0
    """
    return functional.cross_entropy(logits.float(), words, reduction="sum") / max(len(words), 1)


def paired_image_loss(logits: Tensor, paired: Tensor) -> Tensor:
    """Binary cross-entropy of "these are the sentence's own images", mean over the sentences that have any.

        − 1/P Σ_p log σ(logit_p) for its own, − 1/P Σ_p log (1 − σ(logit_p)) for others

    0 where no sentence has an image. Computed in float32.

    Shapes:
        logits: (B,);  paired: (B,) 1 for its own, 0 for others, −1 for a sentence without images
        returns: ()

    >>> paired_image_loss(torch.tensor([0.0, 0.0, 9.0]), torch.tensor([1, 0, -1])).item()  # ln 2 each
    0.6931471824645996
    """
    known = (paired != UNKNOWN_PAIR).float()  # a mask and no selection, whose size a device would be asked for
    with torch.autocast(logits.device.type, enabled=False):
        losses = functional.binary_cross_entropy_with_logits(
            logits.float(), paired.clamp(min=0).float(), weight=known, reduction="sum"
        )
    return losses / known.sum().clamp(min=1)
