"""Which of two translations a model prefers: the verdicts by hand, and every run that isn't what it should be."""

import math
from pathlib import Path

import numpy as np
import pytest

from visual_grounding.analysis.contrastive import (
    ScoredTargets,
    accuracy_of,
    check_same_examples,
    check_same_sources,
    compare_accuracies,
    doubts,
    judge,
    read_scored_targets,
)
from visual_grounding.errors import InputError


def printed(*examples: tuple[str, str, list[float]], order: list[int] | None = None) -> str:
    """What fairseq-generate --score-reference prints of (source, target, log2 probability of each token)."""
    lines = ["2024-01-01 10:00:00 | INFO | fairseq_cli.generate | loading"]
    for i in order or range(len(examples)):
        source, target, scores = examples[i]
        mean = sum(scores) / len(scores)
        hypothesis = target.replace("<<unk>>", "<unk>")
        lines += [
            f"S-{i}\t{source}",
            f"T-{i}\t{target}",
            f"H-{i}\t{mean}\t{hypothesis}",
            f"D-{i}\t{mean}\t{hypothesis}",
        ]
        lines.append(f"P-{i}\t" + " ".join(f"{score:.4f}" for score in scores))
    return "\n".join([*lines, "2024-01-01 10:00:01 | INFO | fairseq_cli.generate | NOTE: done", ""])


def scored(*scores: float, tokens: int = 2, targets: list[str] | None = None, path: str = "run") -> ScoredTargets:
    """A run with these means per token."""
    count = len(scores)
    targets = targets or [f"ziel {n} {path}" for n in range(count)]
    return ScoredTargets(
        path, [f"satz {n}" for n in range(count)], targets, np.array(scores), np.full(count, tokens, int)
    )


def test_scored_targets_are_read_in_the_order_of_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text(printed(("bat", "Schläger", [-1.0, -2.0]), ("a bat", "<<unk>> b", [-1, -1, -4]), order=[1, 0]))
    found = read_scored_targets(path)
    assert (found.path, found.sources, found.targets) == (str(path), ["bat", "a bat"], ["Schläger", "<<unk>> b"])
    assert found.log_probabilities.tolist() == [-1.5, -2.0]
    assert found.tokens.tolist() == [2, 3]


def test_lower_perplexity_is_right_and_a_tie_is_wrong() -> None:
    # perplexities 2^1 < 2^2: right; 2^3 > 2^2: wrong; 2^2 = 2^2: tied
    verdicts = judge(scored(-1, -3, -2, path="a"), scored(-2, -2, -2, path="b"))
    assert verdicts.right.tolist() == [True, False, False]
    assert verdicts.tied.tolist() == [False, False, True]


def test_perplexity_is_per_token_and_the_sum_of_the_whole() -> None:
    # -1 per token of 4 tokens is -4; -1.5 of 2 tokens is -3: the longer one has the lower perplexity, the shorter
    # one the higher probability
    verdicts = judge(scored(-1.0, tokens=4, path="a"), scored(-1.5, tokens=2, path="b"))
    assert (verdicts.right.tolist(), verdicts.right_by_sum.tolist()) == ([True], [False])


def test_translations_that_are_the_same_to_the_model_are_tied_whatever_rounding_says() -> None:
    correct = scored(-1.0, -1.0, targets=["le <<unk>>", "la rive"])
    incorrect = scored(-1.000001, -2.0, targets=["le <<unk>>", "la banque"])
    verdicts = judge(correct, incorrect)
    assert (verdicts.right.tolist(), verdicts.tied.tolist()) == ([False, True], [True, False])
    assert not verdicts.right_by_sum[0]
    assert list(doubts(correct, incorrect)) == [
        "1 of 2 pairs of translations in run (50.0 %) are the same in the model's words, so they count as wrong; its "
        "vocabulary may lack what decides."
    ]
    assert not list(doubts(scored(-1, path="a"), scored(-1, path="b")))


def test_a_model_that_does_not_look_is_right_on_half_of_commute() -> None:
    # each sentence twice, its two translations changing places: whatever the scores are, one of the two is right
    scores = np.random.default_rng(1).normal(size=(20, 2)) - 5
    correct = scored(*scores.ravel(), path="a")
    incorrect = scored(*scores[:, ::-1].ravel(), path="b")
    assert judge(correct, incorrect).right.mean() == 0.5


def test_accuracy_is_the_share_with_wilsons_interval() -> None:
    found = accuracy_of(np.array([True] * 8 + [False] * 2))
    z, n, p = 1.959963984540054, 10, 0.8  # Wilson's score interval, written out
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert (found.right, found.examples, found.accuracy) == (8, 10, 0.8)
    assert (found.low, found.high) == pytest.approx(
        ((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))
    )
    assert found.p_value == pytest.approx(2 * (45 + 10 + 1) / 2**10)
    everything = accuracy_of(np.ones(20, bool))
    assert everything.high == 1 and everything.low == pytest.approx(20 / (20 + z * z))


def test_two_models_are_compared_on_the_examples_that_one_alone_has_right() -> None:
    first = np.array([True] * 6 + [False, False, True, True])
    second = np.array([False] * 6 + [True, False, True, True])
    found = compare_accuracies(first, second)
    assert (found.only_first, found.only_second) == (6, 1)
    assert found.delta == pytest.approx(0.5)
    assert found.p_value == pytest.approx(2 * (1 + 7) / 2**7)
    assert compare_accuracies(first, first) == (0, 0, 0, 1)
    assert compare_accuracies(second, first).delta == pytest.approx(-0.5)


def test_scores_of_translations_that_the_model_made_itself_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text(printed(("a", "x y", [-1.0]), ("b", "z", [-1.0])).replace("-1.0\tz", "-1.0\tw"))
    with pytest.raises(InputError, match=r"1 of 2 lines H- are other .* is H-1: 'w', not 'z'\. .*--score-reference"):
        read_scored_targets(path)


@pytest.mark.parametrize("kind", "STHP")
def test_a_missing_line_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    text = printed(*[(f"s{n}", f"t{n}", [-1.0]) for n in range(4)])
    path.write_text("\n".join(line for line in text.split("\n") if not line.startswith((f"{kind}-1", f"{kind}-3"))))
    missing = rf"of every example from 0 to 3, its highest, but 2 {kind}- lines are missing, the first is {kind}-1\."
    with pytest.raises(InputError, match=missing):
        read_scored_targets(path)


def test_an_example_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text(printed(("a", "x", [-1.0])) * 2)
    with pytest.raises(InputError, match=r"should hold each example once, but has S-0 twice\. Give each run"):
        read_scored_targets(path)


def test_a_score_that_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text(printed(("a", "x", [-1.0])).replace("H-0\t-1.0", "H-0\tnan"))
    with pytest.raises(InputError, match=r"a finite score in each line H-, but H-0 has 'nan'"):
        read_scored_targets(path)


def test_a_text_without_scores_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("la rive\n")
    with pytest.raises(InputError, match=r"out should be what fairseq-generate --score-reference printed, but has no"):
        read_scored_targets(path)


def test_runs_of_other_sources_are_refused() -> None:
    three, two = scored(-1, -1, -1, path="a"), scored(-1, -1, path="b")
    with pytest.raises(InputError, match="a and b should be of the same examples, but have 3 and 2"):
        judge(three, two)
    turned = scored(-1, -1, -1, path="b")._replace(sources=["satz 0", "satz 2", "satz 1"])
    with pytest.raises(InputError, match=r"same sources, but 2 of 3 differ, the first is S-1: 'satz 1' and 'satz 2'"):
        judge(three, turned)
    pieces = scored(-1, -1, -1, path="b")._replace(sources=["sa@@ tz 0", "SATZ 1", "▁satz ▁2"])
    check_same_sources(three, pieces)


def test_the_same_translations_on_both_sides_are_refused() -> None:
    run = scored(-1, -2, path="a")
    with pytest.raises(
        InputError, match=r"a and a should hold scores of correct and of incorrect .* all 2 translations"
    ):
        judge(run, run)


def test_models_that_scored_other_translations_are_refused() -> None:
    ours, theirs = (scored(-1, -1, path="a"), scored(-2, -2, path="b")), (scored(-1, -1, path="a"), scored(-2, -2))
    check_same_examples(ours, ours)
    with pytest.raises(InputError, match=r"b and run should have the same translations, but 2 of 2 differ.* is T-0: "):
        check_same_examples(ours, theirs)
    other = ours[0]._replace(sources=["satz 0", "satz 7"])
    with pytest.raises(InputError, match=r"a and a should have the same sources, but 1 of 2 differ, the first is S-1"):
        check_same_examples(ours[:1], [other])
    unknown = scored(-1, -1, targets=["ziel <<unk>> a", "ziel 1 a"])
    check_same_examples(ours[:1], [unknown])


def test_pieces_are_compared_as_the_text_that_they_are_decoded_to(tmp_path: Path) -> None:
    """With --bpe targets are printed as text, and hypotheses in H- as pieces, in D- as text."""
    path = tmp_path / "out"
    text = printed(("a b", "Fledermaus", [-1.0, -2.0])).replace("H-0\t-1.5\tFledermaus", "H-0\t-1.5\tFleder@@ maus")
    path.write_text(text)
    assert read_scored_targets(path).targets == ["Fledermaus"]
    path.write_text(text.replace("D-0\t-1.5\tFledermaus", "D-0\t-1.5\tKeule"))
    with pytest.raises(InputError, match="is H-0: 'Keule', not 'Fledermaus'"):
        read_scored_targets(path)


def test_sources_with_words_that_one_model_does_not_know_are_no_others() -> None:
    one, other = scored(-1, -2, path="a"), scored(-1, -2, path="b")
    check_same_sources(one, other._replace(sources=["satz <unk>", "satz 1"]))
    with pytest.raises(InputError, match="the same sources, but 1 of 2 differ, the first is S-1"):
        check_same_sources(one, other._replace(sources=["satz <unk>", "satz 2"]))
