"""How good a model of understanding is: accuracy and F1, correlations, or F1 of entities, with 95 % intervals.

    visual-grounding evaluate predictions --checkpoint checkpoint_best.pt --split test --out scores/snli

For models of --task grounded_sentence_prediction and grounded_tagging. Intervals are those of a bootstrap over
examples. What it is compared with is another model (--twin-checkpoint), or the same one with other images
(--image-order congruent shuffled); then p is the chance that it isn't better, by the paired bootstrap on the same
draws. What isn't given, such as images, is as in each model's training; images of another model are in the order of its
training whatever is given.

DIR/scores.json has all numbers, for `visual-grounding report runs`, too; DIR/predictions.tsv what was predicted.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from .probing import PACKAGES, add_compared, add_running, changes_of, check_running, compared
from .scoring import aligned, meta_of, small_p

if TYPE_CHECKING:
    from ..analysis.prediction_scores import Predicted
    from ..probes.trained import Trained

TABLE = "predictions.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, what it is compared with, and its images."""
    add_compared(parser)
    add_running(parser, f"scores.json and {TABLE}")


def run(args: argparse.Namespace) -> None:
    """Predict, score, resample, print a table, write the same as JSON.

    Raises:
        InputError: a model of another task, models of other examples, or an output that can't be written.
    """
    from ..analysis.prediction_scores import METRICS, resample_predictions
    from ..analysis.score_files import write_score_files
    from ..analysis.significance import compare_draws, draw_sentences
    from ..devices import choose_device
    from ..probes.trained import check_seen
    from ..storage.text_files import write_lines

    check_running(args)
    device = choose_device(args.device)
    runs = {name: _predicted(args, *run, device) for name, run in compared(args).items()}
    check_seen([each.trained for each in runs.values()], changes_of(args))
    first = runs["hypothesis"]
    for each in runs.values():
        if each.test_set["sha256"] != first.test_set["sha256"]:
            raise InputError(
                f"both models should be asked the same examples, but they are asked {first.test_set['file']} and "
                f"{each.test_set['file']}. Name one folder for both.",
                "data",
            )
        if each.convention != first.convention:
            raise InputError(
                f"both models should tell the same classes, but F1 is {first.convention} of {first.trained.path}, and "
                f"{each.convention} of {each.trained.path}. Train both on one folder's examples.",
                "twin_checkpoint",
            )
    draws = draw_sentences(len(first.predicted.gold), args.bootstrap_samples, args.seed)
    resampled = {name: resample_predictions(each.predicted, draws) for name, each in runs.items()}
    metrics = METRICS[first.predicted.answers]
    comparison = None
    if "twin" in runs:
        comparison = {
            metric: compare_draws(resampled["hypothesis"][metric], resampled["twin"][metric])._asdict()
            for metric in metrics
        }
    report = _report(args, runs, resampled, metrics, comparison)
    drawn = {f"{name}.{metric}": scores[metric].drawn[None] for name, scores in resampled.items() for metric in metrics}
    columns = [*first.texts, *(each.said for each in runs.values())]
    heads = [*("first", "second")[: len(first.texts) - 1], "answer", *runs]
    rows = ["\t".join(row) for row in zip(*([head, *column] for head, column in zip(heads, columns)))]
    write_score_files(args.out, report, drawn, {TABLE: partial(write_lines, lines=rows)})
    print("\n".join(_table(report)))


class _Run(NamedTuple):
    """One model with images of one order.

    Attributes:
        trained: the model.
        images: their order, or "none".
        test_set: file and digest.
        texts: sentences and answers.
        said: predictions as they are written.
        convention: of classes, of which F1 is; else empty.
    """

    trained: "Trained"
    images: str
    test_set: dict[str, str]
    texts: list[list[str]]
    predicted: "Predicted"
    said: list[str]
    convention: str


def _predicted(args: argparse.Namespace, path: Path, order: str | None, device: Any) -> _Run:
    """Load a model and let it predict."""
    from ..analysis.prediction_scores import f1_of
    from ..probes.predictions import TASKS, example_texts, predict, said_of
    from ..probes.trained import check_orders, load_split, load_trained
    from ..progress import progress_bar
    from ..text.example_files import read_asked

    trained = load_trained(path, TASKS, device, changes_of(args), args.user_dir)
    if path == args.checkpoint and order:
        check_orders(trained, [order])
    order = order or str(trained.settings.image_order)
    dataset = load_split(trained, args.split, order)
    folder = Path(str(trained.settings.data).partition(":")[0])
    asked, meta = read_asked(folder)
    with progress_bar(len(dataset), 0, "examples") as bar:
        predicted = predict(trained, dataset, args.batch_size, bar.update)
    test_set = {"file": str(folder / args.split), "sha256": meta["splits"][args.split]["sha256"]}
    texts = example_texts(folder, args.split, asked.sentences, len(dataset))
    said, shown = said_of(trained, predicted), order if trained.sees else "none"
    return _Run(trained, shown, test_set, texts, predicted, said, f1_of(predicted, trained.task.asked.labels))


def _report(
    args: argparse.Namespace,
    runs: dict[str, _Run],
    resampled: dict[str, Any],
    metrics: Mapping[str, str],
    comparison: dict[str, Any] | None,
) -> dict[str, Any]:
    """What goes into scores.json."""
    from ..analysis.intervals import interval_of
    from ..analysis.score_files import described_metric
    from ..analysis.translation_scores import spread

    systems: dict[str, Any] = {"hypothesis": None, "twin": None}
    for name, each in runs.items():
        intervals = {metric: interval_of(resampled[name][metric]) for metric in metrics}
        systems[name] = {
            "files": [str(each.trained.path)],
            "images": each.images,
            **{metric: {**spread([found.value])._asdict(), "low": found.low, "high": found.high}
               for metric, found in intervals.items()},
        }  # fmt: skip
    first = runs["hypothesis"]
    return {
        "sentences": len(first.predicted.gold),
        "test_set": first.test_set,
        "metrics": {name: described_metric(label, percent=True) for name, label in metrics.items()},
        "systems": systems,
        "conventions": {"f1": first.convention} if first.convention else {},
        "resampling": {"samples": args.bootstrap_samples, "seed": args.seed},
        "interval": f"95 %, bootstrap over examples, {args.bootstrap_samples} resamplings, seed {args.seed}",
        "comparison": comparison,
        "meta": meta_of(args, {str(each.trained.path) for each in runs.values()}, (*PACKAGES, "scipy", "seqeval")),
    }


def _table(report: dict[str, Any]) -> list[str]:
    """The report for a reader: a row a model, then the differences."""
    rows = [["", "images", *(of["label"] for of in report["metrics"].values())]]
    for name, system in report["systems"].items():
        if system:
            found = [system[metric] for metric in report["metrics"]]
            shown = [f"{100 * of['mean']:.1f} [{100 * of['low']:.1f}, {100 * of['high']:.1f}]" for of in found]
            rows.append([name, system["images"], *shown])
    lines = [
        f"{report['sentences']} examples of {report['test_set']['file']}; {report['interval']}",
        "",
        *aligned(rows),
    ]
    for metric, of in (report["comparison"] or {}).items():
        lines.append(
            f"hypothesis - twin, {report['metrics'][metric]['label']}: {100 * of['delta']:+.1f} "
            f"[{100 * of['low']:+.1f}, {100 * of['high']:+.1f}], p {small_p(of['p_value'])} (one-sided)"
        )
    return lines
