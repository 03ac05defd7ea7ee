"""COMET (Rei et al. 2020), by its authors' package and one of their models, both of which users fetch themselves.

It isn't reimplemented: the trained model is the metric. Its package, unbabel-comet, isn't installed along: it pins old
versions of what this one needs. Its loader unpickles what the model's file holds, so name models that you trust.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, in_short

BATCH_SIZE = 8
_CHECKPOINT = "checkpoints/model.ckpt"  # where a model's folder has it, beside hparams.yaml


def why_not(model: str | Path | None) -> str | None:
    """Why COMET can't be computed; None if it can.

    >>> why_not(None)
    'no model is named'
    """
    if model is None:
        return "no model is named"
    return None if find_spec("comet") else "unbabel-comet isn't installed: pip install unbabel-comet"


def checkpoint_of(model: str | Path) -> Path:
    """The file of a model.

    Args:
        model: the checkpoint, or the folder that has it as `checkpoints/model.ckpt`.

    Raises:
        InputError: there is no such file.
    """
    path = Path(model)
    checkpoint = path / _CHECKPOINT if path.is_dir() else path
    if not checkpoint.is_file():
        raise InputError(
            f"a COMET model should be a checkpoint, or a folder with {_CHECKPOINT} in it, but there is no file "
            f"{checkpoint}.",
            "comet",
        )
    return checkpoint


class Comet:
    """One of COMET's models, loaded once.

    Args:
        model: as for `checkpoint_of`.

    Raises:
        InputError: as `checkpoint_of`, or unbabel-comet can't load it.
    """

    def __init__(self, model: str | Path) -> None:
        self.path = checkpoint = checkpoint_of(model)
        try:
            self._model: Any = import_module("comet").load_from_checkpoint(str(checkpoint))
        except Exception as error:  # whatever its loader, and those below it, say of a file
            raise InputError(
                f"{checkpoint} should be a model of unbabel-comet, but can't be loaded: {in_short(error)}.", "comet"
            ) from error

    def score(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """A score for each sentence; the corpus's is their mean.

        Args:
            sources: S sentences as people write them.
            hypotheses: S detokenised translations.
            references: S detokenised references.

        Shapes:
            returns: (S,)

        Raises:
            InputError: the model gives something else than a finite score for each.
        """
        import torch

        sentences = [
            {"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
        ]
        gpus = int(torch.cuda.is_available())
        output = self._model.predict(sentences, batch_size=BATCH_SIZE, gpus=gpus, progress_bar=False)
        scores = np.asarray(getattr(output, "scores", output), dtype=np.float64)
        if scores.shape != (len(sentences),) or not np.isfinite(scores).all():
            raise InputError(
                f"{self.path} should give a finite score for each of {len(sentences)} sentences, but gives numbers of "
                f"shape {scores.shape}, {np.count_nonzero(~np.isfinite(scores))} of them not finite. Is unbabel-comet "
                "of version 2 or later?",
                "comet",
            )
        return scores
