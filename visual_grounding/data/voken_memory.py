"""What a checkpoint remembers of its vokens: of which images they are the numbers, how they and the pieces were made.

checkpoint["task_state"]["vokens"]   {"keys_sha256": of the candidates, "count": V, "tokenizer_sha256": of what cut the
                                     text, "made": the vokens' signature}; not there without vokens
checkpoint["task_state"]["voken_labels"]   what was told of each piece, and of which pieces; not there where nothing was
"""

import logging
from pathlib import Path
from typing import Any

from ..errors import InputError, printable
from ..storage.signature import making
from ..vokenization.vokens import Vokens
from .word_memory import DICTIONARIES, WordMemory

VOKENS, VOKEN_LABELS = "vokens", "voken_labels"
logger = logging.getLogger(__name__)


class VokenMemory(WordMemory):
    """A task's state that knows its words, the candidates of its vokens and their tokenizer, and refuses others.

    Vokens that were chosen among the same images in another way, which may be meant, are warned of.

    Raises:
        InputError: vokens of other candidates or pieces than those before, or than a checkpoint's.
    """

    own = (DICTIONARIES, VOKENS, VOKEN_LABELS)

    _place: str | Path = ""

    @property
    def known(self) -> dict[str, Any] | None:
        """What is known of the vokens so far, or of a checkpoint's: see above."""
        return self._state.get(VOKENS)

    def meet(self, vokens: Vokens) -> None:
        """Know some vokens, or compare them with those that are known.

        Raises:
            InputError: they are numbers of other images, or of other pieces.
        """
        own = {
            "keys_sha256": vokens.keys_sha256,
            "count": vokens.size,
            "tokenizer_sha256": vokens.tokenizer_sha256,
            "made": making(vokens.signature),
        }
        if self.known is None:
            self._state[VOKENS], self._place = own, vokens.folder
        _compare(own, vokens.folder, self._state[VOKENS], self._place)

    def remember_labels(self, kind: str, sentence: str) -> None:
        """Know what is told: `--voken-labels` and `--voken-sentence-label`."""
        self._state[VOKEN_LABELS] = f"--voken-labels {kind} --voken-sentence-label {sentence}"

    def take_over(self, state_dict: dict[str, Any]) -> None:
        """Compare a checkpoint with the task; a task without vokens keeps what the checkpoint knows of its own.

        Raises:
            InputError: the checkpoint was trained with other words, or on vokens of other candidates or pieces.
        """
        super().take_over(state_dict)
        asked, before = self._state.get(VOKEN_LABELS), state_dict.get(VOKEN_LABELS)
        if asked and before and asked != before:
            logger.warning(
                "the checkpoint was trained with %s, and goes on with %s: what it has learned to tell is something "
                "else. If that isn't meant, give the flags that it was trained with.",
                printable(str(before)),
                asked,
            )
        learned = state_dict.get(VOKENS)
        if learned is None:
            return
        if self.known is None:
            self._state[VOKENS], self._place = learned, "the checkpoint"
        _compare(self._state[VOKENS], self._place, learned, "the checkpoint")


def _compare(own: dict[str, Any], place: object, known: dict[str, Any], other: object) -> None:
    if any(own[name] != known[name] for name in ("keys_sha256", "count")):
        raise InputError(
            f"vokens in {place} should be numbers of the same images as those of {other}, but are of {own['count']}, "
            f"keys sha256 {own['keys_sha256'][:8]}…, and those of {known['count']}, {known['keys_sha256'][:8]}…: a "
            "number would mean another image. Choose all of them among the same images: visual-grounding vokenize … "
            f"--out {place}"
        )
    if (cut := own.get("tokenizer_sha256")) and (others := known.get("tokenizer_sha256", cut)) != cut:
        raise InputError(
            f"vokens in {place} should be of text that was cut by the same tokenizer as those of {other}, but by its "
            f"sha256 it is another one, {cut[:8]}… ≠ {others[:8]}…, which may have the same pieces and cut elsewhere. "
            f"Give them those pieces: visual-grounding revokenize … --out {place}"
        )
    if (made := own.get("made")) and (theirs := known.get("made", made)) != made:
        logger.warning(
            "vokens in %s were chosen in another way than those of %s:\n  %s\n  %s\nThey are numbers of the same "
            "images, so training goes on. If it isn't meant, make them alike.",
            place,
            other,
            printable(made),
            printable(theirs),
        )
