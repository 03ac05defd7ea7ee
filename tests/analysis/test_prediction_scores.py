"""Scores of predictions: by hand in the doctests; here against scikit-learn, scipy and seqeval, and on draws."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import accuracy_score as tag_accuracy
from seqeval.metrics import f1_score as entity_f1
from seqeval.metrics import precision_score, recall_score
from sklearn.metrics import accuracy_score, f1_score

from visual_grounding.analysis.prediction_scores import Predicted, prediction_scores, resample_predictions
from visual_grounding.analysis.significance import draw_sentences
from visual_grounding.text.labelled_text import CLASSES, TAGS, VALUES

TAG_NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def some(kind, size=60, seed=0, labels=4):
    rng = np.random.default_rng(seed)
    if kind == VALUES:
        gold = rng.integers(1, 6, size).astype(float)
        return Predicted(VALUES, gold, gold + rng.normal(0, 2, size))
    if kind == TAGS:
        gold, said = (
            [[TAG_NAMES[t] for t in rng.integers(0, 5, n)] for n in lengths]
            for lengths in [rng.integers(1, 9, size)] * 2
        )
        return Predicted(
            TAGS, gold, [[a if rng.random() < 0.7 else b for a, b in zip(*pair)] for pair in zip(gold, said)]
        )
    gold = rng.integers(0, labels, size)
    said = np.where(rng.random(size) < 0.6, gold, rng.integers(0, labels, size))
    return Predicted(CLASSES, gold, said, labels)


def twin(of):
    """What the libraries say."""
    gold, said = of.gold, of.predicted
    if of.answers == VALUES:
        return {"spearman": spearmanr(gold, said).statistic, "pearson": pearsonr(gold, said).statistic}
    if of.answers == TAGS:
        return {"entity_f1": entity_f1(gold, said), "precision": precision_score(gold, said),
                "recall": recall_score(gold, said), "tag_accuracy": tag_accuracy(gold, said)}  # fmt: skip
    average = {"pos_label": 1} if of.labels == 2 else {"average": "macro"}
    return {"accuracy": accuracy_score(gold, said), "f1": f1_score(gold, said, zero_division=0, **average)}


CASES = [(CLASSES, {"labels": 2}), (CLASSES, {"labels": 4}), (VALUES, {}), (TAGS, {})]


@pytest.mark.parametrize(("kind", "choices"), CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_scores_are_those_of_the_libraries(kind, choices, seed):
    of = some(kind, seed=seed, **choices)
    assert prediction_scores(of) == pytest.approx(twin(of))


@pytest.mark.parametrize(("kind", "choices"), CASES)
def test_draws_are_scored_as_sets_of_their_own(kind, choices):
    of = some(kind, size=20, **choices)
    if kind == CLASSES:
        of = of._replace(gold=np.where(np.arange(20) == 7, -1, of.gold))
    draws = draw_sentences(20, 6, seed=3)
    found = resample_predictions(of, draws)
    whole = prediction_scores(of)
    for place, draw in enumerate(draws):
        drawn = of._replace(gold=[of.gold[i] for i in draw], predicted=[of.predicted[i] for i in draw])
        expected = prediction_scores(drawn)
        for name, score in found.items():
            assert score.whole == whole[name] and score.drawn[place] == pytest.approx(expected[name])


def test_what_nobody_could_know_is_wrong():
    of = Predicted(CLASSES, [0, -1, 1], [0, 1, 1], 2)
    assert prediction_scores(of) == pytest.approx({"accuracy": 2 / 3, "f1": 2 / 3})  # 1 right, 2 predicted, 1 gold
    many = Predicted(CLASSES, [0, 1, -1, 2, 2], [0, 1, 0, 2, 1], 3)
    assert prediction_scores(many) == pytest.approx(twin(many))  # in which -1 is a class, too
    tags = Predicted(TAGS, [["B-?", "O"]], [["B-PER", "O"]])
    assert prediction_scores(tags)["entity_f1"] == 0


def test_classes_that_do_not_occur_do_not_count():
    assert prediction_scores(Predicted(CLASSES, [0, 1], [0, 1], 5)) == {"accuracy": 1, "f1": 1}


def test_what_does_not_vary_correlates_with_nothing():
    assert prediction_scores(Predicted(VALUES, [1.0, 2.0], [3.0, 3.0])) == {"spearman": 0, "pearson": 0}


def test_nothing_named_is_zero_not_nan():
    found = prediction_scores(Predicted(TAGS, [["O"]], [["O"]]))
    assert found == {"entity_f1": 0, "precision": 0, "recall": 0, "tag_accuracy": 1}
