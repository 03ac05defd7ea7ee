"""What a checkpoint remembers of the vokens that it was trained to tell: of which images they are the numbers.

checkpoint["task_state"]["vokens"]   {"keys_sha256": of the candidates, "count": V}; not there without vokens
"""

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..vokenization.vokens import Vokens
from .word_memory import DICTIONARIES, WordMemory

VOKENS = "vokens"


class VokenMemory(WordMemory):
    """A task's state that knows its words and the candidates of its vokens, and refuses others.

    Raises:
        InputError: vokens of other candidates than those before, or than a checkpoint's.
    """

    own = (DICTIONARIES, VOKENS)

    _place: str | Path = ""

    @property
    def known(self) -> dict[str, Any] | None:
        """The candidates of the vokens so far, or of a checkpoint's: `keys_sha256` and `count`."""
        return self._state.get(VOKENS)

    def meet(self, vokens: Vokens) -> None:
        """Know the candidates of some vokens, or compare them with those that are known.

        Raises:
            InputError: they are others.
        """
        own = {"keys_sha256": vokens.keys_sha256, "count": vokens.size}
        if self.known is None:
            self._state[VOKENS], self._place = own, vokens.folder
        _compare(own, vokens.folder, self._state[VOKENS], self._place)

    def take_over(self, state_dict: dict[str, Any]) -> None:
        """Compare a checkpoint with the task; a task without vokens keeps what the checkpoint knows of its own.

        Raises:
            InputError: the checkpoint was trained with other words, or on vokens of other candidates.
        """
        super().take_over(state_dict)
        learned = state_dict.get(VOKENS)
        if not isinstance(learned, dict) or not {"keys_sha256", "count"} <= learned.keys():
            return
        if self.known is None:
            self._state[VOKENS], self._place = learned, "the checkpoint"
        _compare(self._state[VOKENS], self._place, learned, "the checkpoint")


def _compare(own: dict[str, Any], place: object, known: dict[str, Any], other: object) -> None:
    if own != known:
        raise InputError(
            f"vokens in {place} should be numbers of the same images as those of {other}, but are of {own['count']}, "
            f"keys sha256 {own['keys_sha256'][:8]}…, and those of {known['count']}, {known['keys_sha256'][:8]}…: a "
            "number would mean another image. Choose all of them among the same images: visual-grounding vokenize … "
            f"--out {place}"
        )
