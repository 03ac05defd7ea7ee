"""How good predicted classes, numbers and tags are: accuracy, F1, Spearman's and Pearson's correlation, entities' F1.

Accuracy and F1 are functions of sums over examples, so that a draw of the bootstrap only adds up rows of counts, as for
BLEU (`significance.py`); the correlations are computed for each draw.

F1 of two classes is that of the second; of more, the mean over those that occur ("macro"). Entities are those that
conlleval sees (seqeval), and one is right with all of its words and its kind.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..text.labelled_text import CLASSES, TAGS, VALUES
from .intervals import ResampledScore

METRICS = {
    CLASSES: {"accuracy": "accuracy, %", "f1": "F1, %"},
    VALUES: {"spearman": "Spearman, %", "pearson": "Pearson, %"},
    TAGS: {"entity_f1": "F1 of entities, %", "precision": "precision, %", "recall": "recall, %",
           "tag_accuracy": "accuracy of tags, %"},
}  # fmt: skip
NO_TAGS = ("I-?", "B-?")  # of gold tags that no training example has: nothing that is predicted is right


class Predicted(NamedTuple):
    """What is right of each example, and what was predicted.

    Attributes:
        answers: classes, values or tags.
        gold: (S,) class numbers, -1 for one that can't be predicted; (S,) numbers; or the tags of each sentence.
        predicted: likewise.
        labels: of classes, how many there are.
    """

    answers: str
    gold: Any
    predicted: Any
    labels: int = 0


def prediction_scores(of: Predicted) -> dict[str, float]:
    """All scores of a set of examples, 0..1, correlations from -1.

    >>> prediction_scores(Predicted(CLASSES, [0, 1, 1], [0, 1, 0], 2))  # 2 of 3; precision 1, recall 1/2
    {'accuracy': 0.6666666666666666, 'f1': 0.6666666666666666}
    >>> prediction_scores(Predicted(VALUES, [1.0, 2.0, 3.0], [10.0, 30.0, 20.0]))
    {'spearman': 0.5, 'pearson': 0.5}
    >>> prediction_scores(Predicted(TAGS, [["B-PER", "I-PER", "B-LOC"]], [["B-PER", "O", "B-LOC"]]))["entity_f1"]
    0.5
    """
    if of.answers == VALUES:
        return {name: float(correlate(np.array(of.gold), np.array(of.predicted))) for name, correlate in _OF_VALUES}
    sums = counts_of(of).sum(axis=0, keepdims=True)
    return {name: float(score[0]) for name, score in _scores_of_sums(of, sums).items()}


def f1_of(of: Predicted, labels: Sequence[str]) -> str:
    """Whose F1 is meant where classes are told, in words; empty of other answers.

    Args:
        labels: names of the classes, by their numbers.

    >>> f1_of(Predicted(CLASSES, [], [], 2), ["literal", "metaphor"])
    "that of 'metaphor', beside 'literal'"
    """
    if of.answers != CLASSES:
        return ""
    if of.labels == 2:
        return f"that of {labels[1]!r}, beside {labels[0]!r}"
    return f"the mean of {', '.join(map(repr, labels))}"


def resample_predictions(of: Predicted, draws: np.ndarray) -> dict[str, ResampledScore]:
    """All scores on the whole set, and on draws of its examples.

    Args:
        draws: numbers of examples, as `draw_sentences` draws them.

    Shapes:
        draws: (K, S)
    """
    whole = prediction_scores(of)
    if of.answers == VALUES:
        gold, predicted = np.array(of.gold), np.array(of.predicted)
        drawn = {
            name: np.array([correlate(gold[draw], predicted[draw]) for draw in draws]) for name, correlate in _OF_VALUES
        }
    else:
        counts = counts_of(of)
        times = np.stack([np.bincount(draw, minlength=len(counts)) for draw in draws])  # (K, S)
        drawn = _scores_of_sums(of, times @ counts)
    return {name: ResampledScore(whole[name], drawn[name]) for name in METRICS[of.answers]}


def counts_of(of: Predicted) -> np.ndarray:
    """Counts of each example, whose sums the scores are made of.

    Shapes:
        returns: of classes (S, 2 + 3 C): right, of no known class; then right, predicted and gold of each. Of tags
            (S, 5): entities that are right, predicted and gold, tags that are right, and all
    """
    if of.answers == TAGS:
        return np.array([_tag_counts(gold, predicted) for gold, predicted in zip(of.gold, of.predicted)])
    gold, predicted = np.array(of.gold), np.array(of.predicted)
    right = gold == predicted  # (S,)
    classes = np.arange(of.labels)
    theirs, ours = gold[:, None] == classes, predicted[:, None] == classes  # (S, C)
    unknown = ~theirs.any(axis=1)
    return np.concatenate([right[:, None], unknown[:, None], theirs & ours, ours, theirs], axis=1).astype(np.int64)


def _tag_counts(gold: Sequence[str], predicted: Sequence[str]) -> list[int]:
    from seqeval.metrics.sequence_labeling import get_entities

    theirs, ours = set(get_entities(list(gold))), set(get_entities(list(predicted)))
    right = sum(one == other for one, other in zip(gold, predicted))
    return [len(theirs & ours), len(ours), len(theirs), right, len(gold)]


def _scores_of_sums(of: Predicted, sums: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of each row of sums.

    Shapes:
        sums: (K, columns);  returns: (K,) each
    """
    if of.answers == TAGS:
        right, ours, theirs, tags, words = sums.T
        return {
            "entity_f1": _share(2 * right, ours + theirs),
            "precision": _share(right, ours),
            "recall": _share(right, theirs),
            "tag_accuracy": _share(tags, words),
        }
    both, ours, theirs = np.split(sums[:, 2:], 3, axis=1)  # (K, C)
    f1 = _share(2 * both, ours + theirs)
    # Examples of no class that could be predicted are one more class, of which none is told.
    occurs = (ours + theirs > 0).sum(axis=1) + (sums[:, 1] > 0)
    mean = f1[:, 1] if of.labels == 2 else _share(f1.sum(axis=1), occurs)
    return {"accuracy": sums[:, 0] / len(of.gold), "f1": mean}


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; 0 of nothing."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=np.asarray(whole) > 0)


def pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Pearson's correlation; 0 where one of both doesn't vary.

    Shapes:
        gold, predicted: (S,)

    >>> pearson(np.array([1.0, 2.0]), np.array([5.0, 5.0]))
    0.0
    """
    ours, theirs = (each - each.mean() for each in (predicted.astype(float), gold.astype(float)))
    size = float(np.sqrt((ours**2).sum() * (theirs**2).sum()))
    return float((ours * theirs).sum()) / size if size else 0.0


def spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's: Pearson's of the ranks, of equals the mean of theirs.

    Shapes:
        gold, predicted: (S,)
    """
    from scipy.stats import rankdata

    return pearson(rankdata(gold), rankdata(predicted))


_OF_VALUES: tuple[tuple[str, Callable[[np.ndarray, np.ndarray], float]], ...] = (
    ("spearman", spearman),
    ("pearson", pearson),
)
