"""Text and images in two encoders, one behind the other (GS §2.1, §2.3), and what they are asked in pre-training."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import InputError
from .pretrained_encoder import CrossModalEncoder, build_encoder
from .standardisation import BatchStandardisation

_DEVIATION = 0.02  # of first weights, as in BERT and ALBERT


class Grounded(NamedTuple):
    """What the cross-modal encoder gives for a batch.

    Shapes:
        text: (B, T', D);  text_padding_mask: (B, T')
        regions: (B, M, D), M = N · R, 0 without images;  region_padding_mask: (B, M)
    """

    text: Tensor
    text_padding_mask: Tensor
    regions: Tensor
    region_padding_mask: Tensor


class GroundedEncoder(nn.Module):
    """A text encoder, and a cross-modal encoder over its states and the images.

        e_kr = W v_kr / √F + b + rank_k                   region r of the k-th image      (GS §3.3)
        h[placeholder]                                    where there is no image         (GS §2.3)

    Every sentence without an image gets the placeholder, in whatever batch it is; the others don't. A masked region's
    feature is 0: its rank stays.

    # Assumption: so it is in LXMERT's code, which the paper builds on, but for the 20 % that it keeps or exchanges.
    # Assumption: the paper has no √F. Adam moves every weight equally far, and so F of them at once move a region at
    # least √F times as far as one does: photos begin as noise to the text, and stay that for long.
    # Assumption: where the two encoders differ in size, a linear layer lies between them.

    Args:
        text: choices of the text encoder.
        cross_modal: those of the other one.
        feature_size: F; 0 for a model that always has the placeholder.
        ranks: images of a sentence at most.
        standardise: bring every feature to mean 0 and variance 1 first, by the regions that aren't hidden. Features
            after a ReLU share one large direction, along which each step then moves all images alike.

    Shapes:
        tokens: (B, T);  features: (B, N, R, F);  padding_mask, masked: (B, N, R), True = absent, or masked
        returns: as `Grounded`

    Raises:
        InputError: more images than ranks, or a text that is too long.
        ValueError: images for a model without.
    """

    def __init__(
        self,
        text: Mapping[str, Any],
        cross_modal: Mapping[str, Any],
        feature_size: int,
        ranks: int,
        standardise: bool = False,
    ) -> None:
        super().__init__()
        self.text = build_encoder(text)
        self.cross_modal = CrossModalEncoder(cross_modal)
        self.size = size = self.cross_modal.size
        self.opens, self.max_positions, self.dropout = self.text.opens, self.text.max_positions, self.text.dropout
        self.bridge = nn.Linear(self.text.size, size) if self.text.size != size else nn.Identity()
        self.feature_size = feature_size
        self.ranks = ranks
        self.standardise = BatchStandardisation(feature_size) if feature_size and standardise else None
        if feature_size:
            self.image_projection = nn.Linear(feature_size, size)
            nn.init.normal_(self.image_projection.weight, std=_DEVIATION)
            nn.init.zeros_(self.image_projection.bias)
            self.image_ranks = nn.Embedding(ranks, size)
            nn.init.normal_(self.image_ranks.weight, std=_DEVIATION)
        self.image_placeholder = nn.Parameter(torch.randn(size) * _DEVIATION)
        self.frozen = False

    def freeze_text(self) -> None:
        """Keep the text encoder as it is, without its dropout (GS §3.3: in pre-training)."""
        self.frozen = True
        self.text.requires_grad_(False)
        self.text.eval()

    def train(self, mode: bool = True) -> "GroundedEncoder":
        """Switch to training; a frozen text encoder stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.text.eval()
        return self

    def forward(
        self, tokens: Tensor, visual: dict[str, Tensor] | None = None, masked: Tensor | None = None
    ) -> Grounded:
        """Encode a batch.

        Args:
            visual: the batch's `net_input["visual"]`.
            masked: regions whose features are hidden.

        Shapes:
            tokens: (B, T);  masked: (B, N, R)
            returns: (B, T', D), (B, T'), (B, M, D), (B, M)
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states, text_absent = self.text(tokens)  # (B, T', D), (B, T')
        states = self.bridge(states)
        regions, absent = self._regions(visual, masked, states)  # (B, M, D), (B, M)
        length = states.shape[1]
        placeholder = self.image_placeholder.to(states.dtype).expand(len(states), 1, -1)
        x = torch.cat([states, placeholder, regions], dim=1)  # (B, T' + 1 + M, D)
        has_image = ~absent.all(dim=1, keepdim=True)  # (B, 1)
        found = self.cross_modal(x, torch.cat([text_absent, has_image, absent], dim=1))
        return Grounded(found[:, :length], text_absent, found[:, length + 1 :], absent)

    def states(self, tokens: Tensor, visual: dict[str, Tensor] | None = None) -> Tensor:
        """The text's states, of which the first is that of a whole sentence (GS §4.2).

        Shapes:
            tokens: (B, T);  returns: (B, T', D)
        """
        return self(tokens, visual).text  # type: ignore[no-any-return]

    def _regions(
        self, visual: dict[str, Tensor] | None, masked: Tensor | None, states: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Regions as the cross-modal encoder reads them, and which are absent.

        Shapes:
            returns: (B, M, D);  (B, M)
        """
        if visual is None:
            return states[:, :0], torch.ones(len(states), 0, dtype=torch.bool, device=states.device)
        if not self.feature_size:
            raise ValueError("a model that was built without images is given some")
        features = visual["features"].to(self.image_projection.weight.dtype)  # a store's are float16
        images = features.shape[1]
        if images > self.ranks:
            raise InputError(
                f"the model tells {self.ranks} images of a sentence apart, but there are {images}, of all its tables. "
                f"Take fewer with --images-per-sentence, or train one with --image-ranks {images}."
            )
        if self.standardise is not None:
            absent = visual["padding_mask"]
            seen = ~(absent if masked is None else absent | masked)
            # Where all are hidden they tell nothing of one another, but later a model is shown some.
            features = self.standardise(features, seen if seen.any() else ~absent)
        if masked is not None:
            features = features.masked_fill(masked.unsqueeze(-1), 0)
        rank = self.image_ranks.weight[:images, None]  # (N, 1, D)
        regions = self.image_projection(features / self.feature_size**0.5) + rank  # (B, N, R, D)
        return regions.flatten(1, 2).to(states.dtype), visual["padding_mask"].flatten(1)


class GroundedWordHead(nn.Module):
    """Which word a mask hides; the output layer is the text encoder's word embedding (GS §2.2, JMLM).

        logits = E LayerNorm(gelu(W h + b)) + c

    E -> `PretrainedEncoder.words`, which is frozen where that encoder is; `transform` does the rest but c, `bias`.

    # Assumption: the paper says no more than "a softmax head"; this is BERT's and ALBERT's own, begun anew.

    Shapes:
        hidden: (K, D);  returns: (K, E)
    """

    def __init__(self, size: int, embedding_size: int, vocabulary_size: int) -> None:
        super().__init__()
        dense = nn.Linear(size, embedding_size)
        nn.init.normal_(dense.weight, std=_DEVIATION)
        nn.init.zeros_(dense.bias)
        self.transform = nn.Sequential(dense, nn.GELU(), nn.LayerNorm(embedding_size))
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (K, D) -> (K, E), to be multiplied with the words."""
        found: Tensor = self.transform(hidden)
        return found


def region_regression_loss(predicted: Tensor, features: Tensor, power: float) -> Tensor:
    """How far hidden regions' features are from what is predicted (GS §2.2, JMRM): the mean over regions of

        1/F Σ_f |r_f − r̂_f|^p

    # Assumption: the paper has L_p with "L1 regularization"; p is 1 unless something else is asked for. The mean over
    # the features keeps it comparable with the loss of words, whatever F is.

    Shapes:
        predicted, features: (J, F)
        returns: () in float32; 0 where nothing is hidden

    >>> region_regression_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]]), 1.0).item()
    1.5
    >>> region_regression_loss(torch.zeros(0, 2), torch.zeros(0, 2), 1.0).item()
    0.0
    """
    distance = (predicted.float() - features.float()).abs()
    if power != 1:
        distance = distance.pow(power)
    return distance.sum() / max(1, distance.numel())
