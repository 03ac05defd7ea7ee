"""Text without images and captions with theirs, mixed 1:1 (GS §3.2): in every epoch the captions that come next."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..modules.masking import generator_of
from ..retrieval.image_ids import NO_IMAGE
from ..storage.artefact import check_array_whole
from .grounded_text import MaskedLines

_MIX = 7  # what random numbers are drawn for: which captions


def draw_captions(captions: int, wanted: int, seed: int, start: int = 0) -> np.ndarray:
    """Captions in a random order, from where the draw before ended; all of them before one again.

    # Assumption: the paper doesn't say how the shorter side of the mixture, or the longer one, is repeated or cut.

    Args:
        captions: C, how many there are.
        wanted: L, how many are drawn.
        seed: of the order, another one each time that all were drawn.
        start: how many were drawn before.

    Shapes:
        returns: (L,)

    >>> first, second = draw_captions(5, 3, seed=1), draw_captions(5, 2, seed=1, start=3)
    >>> sorted(first.tolist() + second.tolist())
    [0, 1, 2, 3, 4]
    """
    rounds = range(start // captions, -(-(start + wanted) // captions))
    orders = [generator_of(seed, _MIX, number).permutation(captions) for number in rounds]
    begun = start - rounds.start * captions
    return np.concatenate([*orders, np.zeros(0, dtype=np.int64)])[begun : begun + wanted]


class CaptionMixture(MaskedLines):
    """Lines of text, and behind them as many captions, which are others in the next epoch.

    It changes when fairseq says which epoch begins, rather than being loaded anew: fairseq asks for another epoch's
    part only of a split that is called `train`, and each dataset leaves its workers behind.

    Args:
        lines: the text.
        captions: all of them.
        seed: of their order.
        folders: how many lines each folder of text has, of which one is read an epoch.
        number: which of them `lines` are.

    Attributes:
        drawn: (L,), the captions of this epoch.
    """

    def __init__(
        self, lines: MaskedLines, captions: MaskedLines, seed: int, folders: Sequence[int], number: int
    ) -> None:
        self.lines, self.captions = lines, captions
        self._seed, self._folders = seed, list(folders)
        sizes = np.concatenate([lines.sizes, lines.sizes])  # of captions: `set_epoch`
        super().__init__(_Both(self), sizes, lines.dictionary, sizes.max(initial=0), lines.masking, None, lines.shuffle)
        self.set_epoch(number + 1)

    @property
    def changes(self) -> bool:
        """Always: captions do."""
        return True

    def set_epoch(self, epoch: int) -> None:
        """fairseq says which epoch begins, before it makes batches of it."""
        super().set_epoch(epoch)
        rounds, number = divmod(epoch - 1, len(self._folders))
        before = rounds * sum(self._folders) + sum(self._folders[:number])
        self.drawn = draw_captions(len(self.captions), len(self.lines), self._seed, before)
        self.sizes = np.concatenate([self.lines.sizes, self.captions.sizes[self.drawn]])


class _Both:
    """The text of a mixture, by number."""

    def __init__(self, mixture: CaptionMixture) -> None:
        self._mixture = mixture

    def __len__(self) -> int:
        return 2 * len(self._mixture.lines)

    def __getitem__(self, index: int) -> Tensor:
        lines, captions = self._mixture.lines, self._mixture.captions
        if index < len(lines):
            return lines.texts[index]  # type: ignore[no-any-return]
        return captions.texts[int(self._mixture.drawn[index - len(lines)])]  # type: ignore[no-any-return]


class ImagesOfMixture:
    """None for a line of text, and each caption's own.

    Args:
        mixture: the lines.
        ids: of all captions.

    Shapes:
        ids: (C, N)
    """

    changes = True

    def __init__(self, mixture: CaptionMixture, ids: np.ndarray) -> None:
        self.mixture, self.ids = mixture, ids

    def rows(self, places: np.ndarray, samples: list[Any], epoch: int) -> np.ndarray:
        """Rows of the store, in the order of `places`.

        Shapes:
            places: (B,)
            returns: (B, N), −1 = none

        Raises:
            InputError: the table was cut short since it was opened.
        """
        check_array_whole(self.ids)
        found = np.full((len(places), self.ids.shape[1]), NO_IMAGE, dtype=self.ids.dtype)
        behind = places - len(self.mixture.lines)
        found[behind >= 0] = self.ids[self.mixture.drawn[behind[behind >= 0]]]
        return found
