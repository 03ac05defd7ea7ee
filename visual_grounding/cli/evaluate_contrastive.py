"""Contrastive evaluation, as CoMMuTE's: how often a model finds the correct translation more probable than the other.

    visual-grounding evaluate contrastive --correct right.out --incorrect wrong.out --reference correct.fr --out DIR

Both are what `fairseq-generate --score-reference` prints, once with the correct and once with the incorrect
translations as targets. The lower perplexity is preferred: 2 to the power of minus the mean log2 probability per
token, which stands in the lines H-. A tie counts as wrong. --twin-correct and --twin-incorrect are another model's
runs, or the same model's with shuffled images; a paired test (McNemar, exact) says whether the two differ. --reference
holds the correct translations, so that the two runs can't be swapped unnoticed.

Chance is 50 %. Where every sentence is there once with each of its images, as in CoMMuTE, a model that doesn't look has
exactly that, but for ties. Everything goes to DIR/scores.json, too. From CoMMuTE's files to this: docs/evaluation.md.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, warn
from .scoring import add_resampling, aligned, check_resampling, meta_of, small_p

if TYPE_CHECKING:
    import numpy as np

    from ..analysis.contrastive import ScoredTargets, Verdicts

_METRIC = "contrastive_accuracy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs to compare."""
    parser.add_argument("--correct", required=True, metavar="FILE", help="scores of the correct translations")
    parser.add_argument("--incorrect", required=True, metavar="FILE", help="scores of the incorrect translations")
    parser.add_argument("--reference", required=True, metavar="FILE", help="the correct translations, one a line")
    parser.add_argument("--twin-correct", metavar="FILE", help="--correct of the model to compare with")
    parser.add_argument("--twin-incorrect", metavar="FILE", help="--incorrect of the model to compare with")
    add_resampling(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for scores.json")


def run(args: argparse.Namespace) -> None:
    """Read both runs, judge each example, print a table, write the same as JSON.

    Raises:
        InputError: runs that don't belong together, or an output that can't be written.
    """
    from ..analysis.contrastive import (
        CHANCE,
        check_same_examples,
        compare_accuracies,
        judge,
        read_scored_targets,
    )
    from ..analysis.hypotheses import read_references
    from ..analysis.score_files import described_metric, write_score_files
    from ..analysis.significance import draw_sentences
    from ..storage.artefact import sha256_of_file
    from ..storage.lines import check_read_again

    if (args.twin_correct is None) != (args.twin_incorrect is None):
        raise InputError("--twin-correct and --twin-incorrect should be given together, but one is missing.")
    check_resampling(args)
    files = (args.correct, args.incorrect, args.reference, args.twin_correct, args.twin_incorrect)
    check_read_again(*files)
    references = read_references(args.reference)
    pairs = {"hypothesis": (args.correct, args.incorrect)}
    if args.twin_correct:
        pairs["twin"] = (args.twin_correct, args.twin_incorrect)
    runs = {name: (read_scored_targets(right), read_scored_targets(wrong)) for name, (right, wrong) in pairs.items()}
    for right, wrong in pairs.values():
        if sha256_of_file(right) == sha256_of_file(wrong):
            raise InputError(f"{right} and {wrong} should score two translations of each sentence, but are the same.")
    verdicts = {}
    for name, (correct, incorrect) in runs.items():
        try:
            _check_reference(correct, args.reference, references)
        except InputError as error:
            if _is_of(incorrect, args.reference, references):
                raise InputError(
                    f"--{'twin-' if name == 'twin' else ''}correct and --{'twin-' if name == 'twin' else ''}incorrect "
                    f"look exchanged: {incorrect.path} has the targets of {args.reference}, {correct.path} hasn't."
                ) from error
            raise
        verdicts[name] = judge(correct, incorrect)
        _warn(correct, incorrect)
    systems: dict[str, Any] = {"hypothesis": None, "twin": None}
    systems.update({name: _described(verdict, *pairs[name]) for name, verdict in verdicts.items()})
    comparison, resampled = None, {}
    if "twin" in runs:
        check_same_examples(runs["hypothesis"], runs["twin"])
        ours, theirs = (verdicts[name].right for name in ("hypothesis", "twin"))
        drawn = draw_sentences(len(references), args.bootstrap_samples, args.seed)
        resampled = {f"{name}.{_METRIC}": _resampled(verdicts[name].right, drawn) for name in runs}
        comparison = {
            "test": "McNemar's test, exact, two-sided",
            **compare_accuracies(ours, theirs)._asdict(),
        }
    report = {
        "sentences": len(references),
        "test_set": {"file": args.reference, "sha256": sha256_of_file(args.reference)},
        "metrics": {_METRIC: described_metric("contrastive accuracy, %", percent=True)},
        "systems": systems,
        "resampling": {"samples": args.bootstrap_samples, "seed": args.seed} if comparison else None,
        "comparison": comparison,
        "chance": CHANCE,
        "preferred": "lower perplexity, 2 ^ -(mean log2 probability per token); ties count as wrong",
        "meta": meta_of(args, files, ("scipy", "numpy")),
    }
    write_score_files(Path(args.out), report, resampled)
    print("\n".join(_table(report)))


def _check_reference(correct: "ScoredTargets", path: str, references: list[str]) -> None:
    """The targets of the correct run are the correct translations."""
    from ..analysis.hypotheses import check_targets
    from ..analysis.translation_scores import check_same_length

    check_same_length(correct.path, len(correct.targets), path, len(references))
    for warning in check_targets(correct.path, dict(enumerate(correct.targets)), path, references):
        warn(warning)


def _is_of(run: "ScoredTargets", path: str, references: list[str]) -> bool:
    """Whether the targets of a run are those of the reference, as far as one can tell."""
    try:
        _check_reference(run, path, references)
    except InputError:
        return False
    return True


def _warn(correct: "ScoredTargets", incorrect: "ScoredTargets") -> None:
    from ..analysis.contrastive import doubts

    for warning in doubts(correct, incorrect):
        warn(warning)


def _described(verdicts: "Verdicts", correct: str, incorrect: str) -> dict[str, Any]:
    """One model's entry in the JSON."""
    from ..analysis.contrastive import accuracy_of
    from ..analysis.translation_scores import spread

    found = accuracy_of(verdicts.right)
    return {
        "files": [correct],
        "incorrect_files": [incorrect],
        _METRIC: spread([found.accuracy])._asdict(),
        **found._asdict(),
        "ties": int(verdicts.tied.sum()),
        "by_probability_of_the_whole": accuracy_of(verdicts.right_by_sum)._asdict(),
        "verdicts": verdicts.right.astype(int).tolist(),
    }


def _resampled(right: "np.ndarray", drawn: "np.ndarray") -> "np.ndarray":
    return right[drawn].mean(axis=1, keepdims=True).T


def _table(report: dict[str, Any]) -> list[str]:
    """The report for a reader: one row a model, then the test."""
    rows = [["", "right", "accuracy", "95 % interval", "p against chance", "ties", "by probability of the whole"]]
    for name, system in report["systems"].items():
        if system:
            whole = system["by_probability_of_the_whole"]["accuracy"]
            rows.append(
                [
                    name,
                    f"{system['right']} of {system['examples']}",
                    f"{100 * system['accuracy']:.1f} %",
                    f"{100 * system['low']:.1f} … {100 * system['high']:.1f} %",
                    small_p(system["p_value"]),
                    str(system["ties"]),
                    f"{100 * whole:.1f} %",
                ]
            )
    lines = [
        f"{report['sentences']} examples; chance is {100 * report['chance']:.0f} %; preferred: {report['preferred']}",
        "",
        *aligned(rows),
    ]
    if test := report["comparison"]:
        lines += [
            "",
            f"hypothesis - twin: {100 * test['delta']:+.1f} points; right alone: {test['only_first']} and "
            f"{test['only_second']} examples; p {small_p(test['p_value'])} ({test['test']})",
        ]
    return lines
