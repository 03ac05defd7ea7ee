"""Batch normalisation without weights, whose statistics stay in float32."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional


class BatchStandardisation(nn.Module):
    """Each channel minus its mean over the batch, divided by its standard deviation; running values outside training.

    Features after a ReLU share one large direction (random photos have a cosine of 0.88), and so do mean word vectors.
    With all similarities equal, the hardest negative gives hardly any gradient, and training stays there for epochs.
    A batch of one has no deviation: it is treated as outside training.

    Statistics stay in float32 where the model is halved: in bfloat16 a running mean of 3 stops 1.3 standard deviations
    short when the deviation is 0.1, and a variance above 65,504 is infinite in float16.

    Shapes:
        vectors: (B, D)
        returns: (B, D), of the same dtype
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(size, affine=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Standardise.

        Shapes:
            vectors: (B, D)
            returns: (B, D)
        """
        full = vectors.float()
        if len(vectors) > 1:
            return self.norm(full).to(vectors.dtype)
        mean, variance = self.norm.running_mean, self.norm.running_var
        return functional.batch_norm(full, mean, variance, training=False, eps=self.norm.eps).to(vectors.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Follow the model to another device, but not to another precision."""
        kept = {name: buffer for name, buffer in self.norm.named_buffers() if buffer.is_floating_point()}
        super()._apply(fn, recurse)
        for name, buffer in kept.items():
            setattr(self.norm, name, buffer.to(getattr(self.norm, name).device))
        return self
