"""What is told of sentences or words from an encoder's states: classes, numbers, or tags (VA §2.5, GS §4.2)."""

import torch
from torch import Tensor, nn

_DEVIATION = 0.02  # of first weights, as in BERT and ALBERT


class PredictionHead(nn.Module):
    """A linear layer on the states that are asked: logistic regression (GS §4.2), "a feed forward layer" (VA §2.5).

        o = W dropout(h) + b

    # Assumption: VA says no more of the layer, and "the same fine-tuning as BERT"; BERT's pooler stays away here, as
    # what it was trained for, the next sentence, isn't asked.

    Args:
        outputs: classes; 1 for a number.

    Shapes:
        states: (…, D);  returns: (…, C)
    """

    def __init__(self, size: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(size, outputs)
        nn.init.normal_(self.output.weight, std=_DEVIATION)
        nn.init.zeros_(self.output.bias)

    def begin_at(self, value: float) -> None:
        """Let the bias be a number, before training."""
        nn.init.constant_(self.output.bias, value)

    def forward(self, states: Tensor) -> Tensor:
        """states (…, D) -> (…, C)."""
        found: Tensor = self.output(self.dropout(states))
        return found


def states_at(states: Tensor, positions: Tensor | None, opens: int) -> Tensor:
    """States of whole sentences, which stand first ([CLS]), or of the first pieces of words.

    Args:
        opens: how many positions stand before a sentence's own.

    Shapes:
        states: (B, T', D);  positions: (B,) or (B, W), -1 for a word without a piece, whose state is then that of
            the sentence
        returns: (B, D), or (B, W, D)
    """
    if positions is None:
        return states[:, 0]
    places = torch.where(positions < 0, 0, positions + opens)
    if places.dim() == 1:
        return states[torch.arange(len(states), device=states.device), places]
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def answer_loss(outputs: Tensor, target: Tensor, values: bool) -> tuple[Tensor, int]:
    """Cross-entropy of classes, or the squared distance of numbers, summed; and over how many.

    What has no answer that could be told, a negative class number, is left out.

    Shapes:
        outputs: (…, C), or (…, 1) for numbers;  target: (…)
        returns: ()

    >>> loss, count = answer_loss(torch.zeros(3, 2), torch.tensor([0, 1, -1]), False)
    >>> round(loss.item(), 4), count  # 2 ln 2
    (1.3863, 2)
    >>> loss, count = answer_loss(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 2.0]), True)
    >>> loss.item(), count
    (4.0, 2)
    """
    if values:
        return (outputs.float().squeeze(-1) - target.float()).square().sum(), target.numel()
    known = target >= 0
    loss = nn.functional.cross_entropy(
        outputs.float().flatten(0, -2), target.masked_fill(~known, -100).flatten(), reduction="sum"
    )
    return loss, int(known.sum())
