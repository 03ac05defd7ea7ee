"""Validation scores over a whole split, from what a criterion hands over: recall, and later F1, Spearman and others.

A task that derives from `ValidationScores` says which values it scores, by name; any criterion can serve it that hands
these values over in evaluation:

    self.task.collect("embeddings", id=sample["id"], image=sample["image_rows"], text=text, images=images)

The values of all batches, from every process, come together, each item once; the scores are logged beside the loss, so
`--best-checkpoint-metric` can name them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.logging import meters, metrics
from fairseq.logging.meters import Meter, MetersDict
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .one_iterator import OneIterator

logger = logging.getLogger(__name__)

Values = dict[str, Tensor]  # name -> (B, …), one row an item; "id" (B,) is among them


@dataclass(frozen=True)
class Scored:
    """One kind of values that a criterion may hand over.

    Attributes:
        values: names of the tensors, beside `id`.
        scores: names of what is logged.
        score: from the values of a whole split, sorted by id, to the scores. Values of different lengths are filled up
            with zeros.
        optional: whether a criterion may leave them out without a word.
    """

    values: Sequence[str]
    scores: Sequence[str]
    score: Callable[[Values], Mapping[str, float]]
    optional: bool = False


class ValidationScores(OneIterator):
    """A task with scores over a whole split; a mixin, before the task that it derives from otherwise.

    Attributes:
        scored: what it scores, by the names under which a criterion hands it over.
    """

    scored: Mapping[str, Scored] = {}
    _open: dict[str, Values] | None = None  # what the criterion hands over for the batch at hand; None in training
    _gathered: list[dict[str, Values]]
    _said: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gathered = []

    def collect(self, name: str, **values: Tensor) -> None:
        """Take what a criterion hands over for a batch in evaluation; in training it is left.

        Args:
            name: one of `scored`.
            values: `id` and what else `scored[name]` names, one row an item.

        Shapes:
            values: (B, …) each

        Raises:
            ValueError: the task doesn't score these, or not with such values.
        """
        if name not in self.scored:
            known = ", ".join(self.scored) or "nothing"
            raise ValueError(f"{type(self).__name__} scores {known}, but the criterion hands over {name!r}")
        wanted = {"id", *self.scored[name].values}
        if values.keys() != wanted:
            raise ValueError(f"{name!r} should come with {sorted(wanted)}, but comes with {sorted(values)}")
        sizes = {key: len(value) for key, value in values.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"{name!r} should have one row an item in each of its values, but has {sizes}")
        if self._open is not None:
            self._open[name] = {key: _to_cpu(value) for key, value in values.items()}

    def valid_step(self, sample: dict[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Loss of a batch; what the criterion hands over, in every process, waits for the scores of the split."""
        self._open = {}
        try:
            result = super().valid_step(sample, model, criterion)
            mine = self._open
        finally:
            self._open = None
        absent = [name for name, scored in self.scored.items() if name not in mine and not scored.optional]
        if sample and absent and not self._said:
            logger.warning(
                f"{type(criterion).__name__} hands over no {', '.join(absent)}, so {type(self).__name__} can't log "
                + ", ".join(score for name in absent for score in self.scored[name].scores)
            )
            self._said = True
        everyone: list[Any] = [mine]
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            everyone = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(everyone, mine)
        self._gathered += everyone
        return result

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """Log the criterion's numbers, and in validation the scores of the split so far."""
        super().reduce_metrics(logging_outputs, criterion)
        batches, self._gathered = self._gathered, []
        for name in sorted({name for batch in batches for name in batch}):
            key = f"_{name}"  # fairseq doesn't print what begins so
            for split in _splits_at_hand():
                if key not in split:
                    split.add_meter(key, SplitMeter(self.scored[name].score), 50)
                    for score in self.scored[name].scores:
                        split.add_meter(score, ScoreMeter(split[key], score), 20)
                for batch in batches:
                    if name in batch:
                        split[key].update(batch[name])


def _splits_at_hand() -> list[MetersDict]:
    """fairseq's aggregators that end with the split that is validated.

    Those with a name ("valid") outlive it, and fairseq saves them with a checkpoint: what a whole split needs would
    stay in memory there between validations, in a class that fairseq can't load again.
    """
    lasting = {id(aggregator) for aggregator in metrics._aggregators.values()}
    return [aggregator for aggregator in metrics.get_active_aggregators() if id(aggregator) not in lasting]


class SplitMeter(Meter):
    """Collects values while a split is validated; scores them when asked. An item seen twice counts once.

    Args:
        score: from the values of all items to scores.
    """

    def __init__(self, score: Callable[[Values], Mapping[str, float]]) -> None:
        self._score = score
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._items: dict[int, Values] = {}
        self._scores: Mapping[str, float] | None = None

    def update(self, values: Values) -> None:
        """Add a batch.

        Shapes:
            values: (B, …) each
        """
        for row, item in enumerate(values["id"].tolist()):
            self._items[item] = {name: value[row] for name, value in values.items()}
        self._scores = None

    @property
    def scores(self) -> Mapping[str, float]:
        """All scores of what was collected."""
        if self._scores is None:
            items = [self._items[item] for item in sorted(self._items)]
            self._scores = self._score({name: _together([item[name] for item in items]) for name in items[0]})
        return self._scores


class ScoreMeter(Meter):
    """One of the scores of what a `SplitMeter` collects, as fairseq prints it.

    Args:
        split: what collects.
        name: of the score.
    """

    def __init__(self, split: SplitMeter, name: str) -> None:
        self._split = split
        self._name = name

    def reset(self) -> None:
        """Nothing: the split's meter forgets."""

    @property
    def smoothed_value(self) -> float:
        """The score, rounded."""
        return round(self._split.scores[self._name], 4)


class EarlierMeter(MetersDict._DerivedMeter):
    """Stands for our meters in the checkpoints of earlier versions; they hold nothing. fairseq saves no such kind."""

    def __init__(self) -> None:
        super().__init__(lambda meters: None)


# fairseq looks up the classes of a checkpoint's meters by their names in its own module.
meters.RetrievalMeter = meters.SplitMeter = EarlierMeter  # of 0.1.0, and between it and the next


def _together(rows: list[Tensor]) -> Tensor:
    """(S, …); where rows have different lengths, the shorter ones end in zeros."""
    alike = all(row.shape == rows[0].shape for row in rows)
    return torch.stack(rows) if alike else pad_sequence(rows, batch_first=True)


def _to_cpu(value: Tensor) -> Tensor:
    """Out of the graph; halves become float32, so that scores of all precisions compare alike."""
    value = value.detach().cpu()
    return value.float() if value.is_floating_point() else value
