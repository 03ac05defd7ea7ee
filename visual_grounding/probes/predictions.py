"""What a trained model of understanding predicts for a split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset

from ..analysis.prediction_scores import Predicted
from ..text.example_files import ANSWERS, SIDES, read_column
from ..text.labelled_text import TAGS, VALUES
from .trained import Trained, batches, on_device

TASKS = ("grounded_sentence_prediction", "grounded_tagging")


def predict(trained: Trained, dataset: FairseqDataset, batch_size: int, taken: Callable[[int], object]) -> Predicted:
    """Predict every example of a split.

    Args:
        taken: is told how many examples were read.
    """
    rows: list[Any] = [None] * len(dataset)
    with torch.no_grad():
        for batch in batches(dataset, range(len(dataset)), batch_size):
            outputs = trained.model(**on_device(trained, batch)["net_input"]).cpu()
            gold, said = trained.task.answered(outputs, batch)
            for row, right, predicted in zip(batch["id"].tolist(), gold, said):
                rows[row] = right, predicted
            taken(len(batch["id"]))
    gold, said = zip(*rows)
    return trained.task.predicted(_table(gold), _table(said))  # type: ignore[no-any-return]


def _table(rows: tuple[torch.Tensor, ...]) -> np.ndarray:
    """(S,), or (S, W) with zeros behind shorter rows."""
    if not rows[0].dim():
        return torch.stack(rows).numpy()
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True).numpy()


def said_of(trained: Trained, predicted: Predicted) -> list[str]:
    """Each example's prediction as its answers are written: a class's name, a number, or tags.

    Args:
        predicted: of which the predictions are meant.
    """
    if predicted.answers == TAGS:
        return [" ".join(tags) for tags in predicted.predicted]
    if predicted.answers == VALUES:
        return [f"{value:.4f}" for value in predicted.predicted.tolist()]
    labels = trained.task.asked.labels
    return [labels[number] for number in predicted.predicted.tolist()]


def example_texts(folder: Path, split: str, sentences: int, count: int) -> list[list[str]]:
    """The columns of an example folder: its sentences, and what is right.

    Raises:
        InputError: there are more or fewer than `count`.
    """
    return [read_column(folder, split, name, count) for name in (*SIDES[:sentences], ANSWERS)]
