"""Contrastive evaluation (CoMMuTE, Futeral et al. 2023): which of two translations does a model find more probable?

Each example is a sentence with two senses, an image that decides between them, and the translation of either sense.
A model is right where the correct one has the lower perplexity:

    PPL(y | x, i) = 2 ^ (-1/|y| sum_t log2 p(y_t | y_<t, x, i)),  with the end of the sentence in y

No model has to be run in another way for it: `fairseq-generate --score-reference` prints the mean in its `H` lines (per
token, base 2) and the addends in its `P` lines. A tie counts as wrong, as in the authors' program: two translations
that are the same to the model, because they differ in unknown words alone, tell nothing.

CoMMuTE has each sentence once with each of its images, so a model that doesn't look is right on exactly one of the two:
chance is 50 % without any spread. The intervals here take examples as independent, and are too wide for such a model.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..shares import warn_of
from ..storage.lines import read_lines
from ..text.pieces import join_pieces
from ..text.resemblance import letters

CHANCE = 0.5
_LINE = re.compile(r"([STHPD])-(\d{1,18})(?:\t(.*))?")
_UNKNOWN = (
    "<<unk>>"  # as fairseq-generate writes unknown words into targets; into hypotheses without the outer brackets
)
_NO_TEXT = re.compile(r"<+\s*unk\s*>+|\s")
_UNKNOWN_SOURCE = "<unk>"


class ScoredTargets(NamedTuple):
    """What `fairseq-generate --score-reference` printed of S examples, in the order of the corpus.

    Attributes:
        path: of the file.
        sources: S sentences.
        targets: S translations that were scored.
        log_probabilities: log2 of their probability, mean per token; (S,).
        tokens: how many tokens each has, with its end; (S,).
    """

    path: str
    sources: list[str]
    targets: list[str]
    log_probabilities: np.ndarray
    tokens: np.ndarray


class Verdicts(NamedTuple):
    """Where the correct translation is preferred, and where neither is.

    Attributes:
        right: (S,) bool, by perplexity.
        tied: (S,) bool, by perplexity; never right.
        right_by_sum: (S,) bool, by the probability of the whole translation, which favours the shorter one.
    """

    right: np.ndarray
    tied: np.ndarray
    right_by_sum: np.ndarray


class Accuracy(NamedTuple):
    """Share of examples that are right, its 95 % interval (Wilson 1927), and the two-sided binomial test of chance."""

    right: int
    examples: int
    accuracy: float
    low: float
    high: float
    p_value: float


class PairedAccuracies(NamedTuple):
    """Difference of two models' accuracies on the same examples, and McNemar's test of it, exact and two-sided.

    Attributes:
        delta: the first's accuracy minus the second's.
        only_first: number of examples that the first alone has right.
        only_second: number of examples that the second alone has right.
        p_value: of so uneven a split of these, were either as likely to be the one that is right.
    """

    delta: float
    only_first: int
    only_second: int
    p_value: float


def read_scored_targets(path: str | Path) -> ScoredTargets:
    """Read one run of `fairseq-generate --score-reference`.

    Raises:
        InputError: as `read_lines`; it isn't such a run, or a part of it.
    """
    found: dict[str, dict[int, str]] = {kind: {} for kind in "STHPD"}
    for match in filter(None, map(_LINE.fullmatch, read_lines(path))):
        kind, number = match[1], int(match[2])
        if number in found[kind]:
            raise InputError(
                f"{path} should hold each example once, but has {kind}-{number} twice. Give each run of "
                "fairseq-generate its own file, and translate without --nbest."
            )
        found[kind][number] = match[3] or ""
    numbers = set().union(*found.values())
    if not numbers:
        raise InputError(
            f"{path} should be what fairseq-generate --score-reference printed, but has no line H-0 with a score. "
            "Give its output, all of it: fairseq-generate … --score-reference > FILE."
        )
    order = range(max(numbers) + 1)
    decoded = found.pop("D")
    for kind, lines in found.items():
        if len(lines) < len(order):  # the highest number may be any: it isn't counted up to
            first = next(number for number in order if number not in lines)
            raise InputError(
                f"{path} should hold the lines S-, T-, H- and P- of every example from 0 to {order[-1]}, its highest, "
                f"but {len(order) - len(lines)} {kind}- lines are missing, the first is {kind}-{first}. "
                "fairseq-generate drops examples with --skip-invalid-size-inputs-valid-test and loses some when "
                "interrupted. Run it "
                "again to its end, without --quiet, with --required-batch-size-multiple 1."
            )
    scores, texts = zip(*(_score_and_text(path, number, found["H"][number]) for number in order))
    targets = [found["T"][number] for number in order]
    # With --bpe or --tokenizer targets are printed as text, and hypotheses are so in D- alone.
    texts = tuple(decoded[n].partition("\t")[2] if n in decoded else texts[n] for n in order)
    other = [n for n in order if _NO_TEXT.sub("", texts[n]) != _NO_TEXT.sub("", targets[n])]
    if other:
        raise InputError(
            f"{path} should hold the scores of given translations, but {len(other)} of {len(order)} lines H- are other "
            f"sentences than the target beside them (T-), the first is H-{other[0]}: {texts[other[0]]!r}, not "
            f"{targets[other[0]]!r}. The model translated by itself; run it with --score-reference."
        )
    tokens = np.array([len(found["P"][number].split()) for number in order])
    return ScoredTargets(str(path), [found["S"][number] for number in order], targets, np.array(scores), tokens)


def _score_and_text(path: str | Path, number: int, rest: str) -> tuple[float, str]:
    """The two columns of an `H` line; a score that isn't finite can't be compared."""
    score, _, text = rest.partition("\t")
    try:
        value = float(score)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise InputError(f"{path} should have a finite score in each line H-, but H-{number} has {score!r}.")
    return value, text


def check_same_sources(first: ScoredTargets, second: ScoredTargets) -> None:
    """Insist that two runs are of the same sentences in the same order, however they are cut into pieces.

    Raises:
        InputError: they aren't.
    """
    if len(first.sources) != len(second.sources):
        raise InputError(
            f"{first.path} and {second.path} should be of the same examples, but have {len(first.sources)} and "
            f"{len(second.sources)}."
        )
    texts, others = _known(first.sources, second.sources, _UNKNOWN_SOURCE)
    _refuse_other(first.path, second.path, texts, others, "S", "source")


def check_same_examples(first: Sequence[ScoredTargets], second: Sequence[ScoredTargets]) -> None:
    """Insist that two models scored the same sources with the same translations.

    Args:
        first: correct and incorrect translations, as one model scored them.
        second: the same of the other model.

    Raises:
        InputError: they didn't.
    """
    for ours, theirs in zip(first, second):
        check_same_sources(ours, theirs)
        texts, others = _known(ours.targets, theirs.targets, _UNKNOWN)
        _refuse_other(ours.path, theirs.path, texts, others, "T", "translation")


def _known(first: list[str], second: list[str], unknown: str) -> tuple[list[str], list[str]]:
    """Both, but for pairs with an unknown word: what isn't in a model's vocabulary is no other text."""
    known = [(a, b) if unknown not in a + b else ("", "") for a, b in zip(first, second, strict=True)]
    return [a for a, _ in known], [b for _, b in known]


def _refuse_other(path: str, other_path: str, texts: list[str], others: list[str], kind: str, noun: str) -> None:
    differing = [
        number
        for number, (text, other) in enumerate(zip(texts, others, strict=True))
        if letters(join_pieces(text)) != letters(join_pieces(other))
    ]
    if differing:
        first = differing[0]
        raise InputError(
            f"{path} and {other_path} should have the same {noun}s, but {len(differing)} of {len(texts)} differ, the "
            f"first is {kind}-{first}: {texts[first]!r} and {others[first]!r}. Score both with the same files, in the "
            "same order."
        )


def judge(correct: ScoredTargets, incorrect: ScoredTargets) -> Verdicts:
    """Compare each correct translation's perplexity with the incorrect one's.

    Two translations that are the same in the model's words are a tie, whatever their scores: rounding differs with
    what else is in a batch.

    Raises:
        InputError: the runs are of other sources, or all translations are the same.
    """
    check_same_sources(correct, incorrect)
    same = np.array([a == b for a, b in zip(correct.targets, incorrect.targets, strict=True)])
    if same.all() and not any(_UNKNOWN in target for target in correct.targets):
        raise InputError(
            f"{correct.path} and {incorrect.path} should hold scores of correct and of incorrect translations, but all "
            f"{len(same)} translations are the same. Score the two files of translations in two runs."
        )
    ours, theirs = correct.log_probabilities, incorrect.log_probabilities
    whole, other_whole = ours * correct.tokens, theirs * incorrect.tokens
    return Verdicts((ours > theirs) & ~same, (ours == theirs) | same, (whole > other_whole) & ~same)


def doubts(correct: ScoredTargets, incorrect: ScoredTargets) -> Iterator[str]:
    """A warning of pairs that a model can't tell apart because its vocabulary lacks the words that decide."""
    same = sum(a == b for a, b in zip(correct.targets, incorrect.targets, strict=True))
    said = "are the same in the model's words, so they count as wrong; its vocabulary may lack what decides."
    yield from warn_of(same, len(correct.targets), said, f"pairs of translations in {correct.path}")


def accuracy_of(right: np.ndarray) -> Accuracy:
    """Accuracy with its interval.

    Shapes:
        right: (S,) bool

    >>> found = accuracy_of(np.array([True] * 8 + [False] * 2))
    >>> found.accuracy, round(found.low, 4), round(found.high, 4), round(found.p_value, 4)  # 2 (45 + 10 + 1) / 1024
    (0.8, 0.4902, 0.9433, 0.1094)
    """
    from scipy.stats import binomtest

    successes = int(np.count_nonzero(right))
    test = binomtest(successes, len(right), CHANCE)
    interval = test.proportion_ci(0.95, method="wilson")
    return Accuracy(
        successes, len(right), successes / len(right), float(interval.low), float(interval.high), float(test.pvalue)
    )


def compare_accuracies(first: np.ndarray, second: np.ndarray) -> PairedAccuracies:
    """McNemar's test (1947), exact, of two models on the same examples.

    Shapes:
        first, second: (S,) bool

    >>> compare_accuracies(np.array([True] * 5 + [False]), np.array([False] * 5 + [False]))  # 2 / 2^5
    PairedAccuracies(delta=0.8333333333333334, only_first=5, only_second=0, p_value=0.0625)
    """
    from scipy.stats import binomtest

    only_first, only_second = int(np.count_nonzero(first & ~second)), int(np.count_nonzero(second & ~first))
    uneven = only_first + only_second
    p_value = float(binomtest(only_first, uneven, 0.5).pvalue) if uneven else 1.0
    return PairedAccuracies((only_first - only_second) / len(first), only_first, only_second, p_value)
