"""How well grounded language models tell hidden words, and hidden regions: perplexity and loss, with 95 % intervals.

    visual-grounding evaluate perplexity --checkpoint checkpoint_best.pt --split valid --out scores/paired

For models of --task grounded_lm. What a model is compared with is another one (--twin-checkpoint), or itself with other
images (--image-order congruent shuffled); p is the chance that it isn't better, by the paired bootstrap on the same
draws of lines. Both are asked the same words. Where images were found for lines that a mask had been laid on, as they
have to be, its words are asked of all models. What isn't given, such as images, is as in each model's training; a model
that was trained without images gets none, and one that was trained with those of captions has none for other text, but
those of --image-ids.

Of models that learned regions (--grounding-objective jmrm or both), where lines have images: also the region loss, how
far a hidden region's features are from what is predicted, |r − r̂| as a mean over features and regions, whatever the
power that training had.

DIR/scores.json has all numbers, for `visual-grounding report runs`, too.
"""

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import InputError, warn
from .probing import PACKAGES, add_compared, add_running, changes_of, check_running, compared, shown
from .scoring import aligned, meta_of, small_p

if TYPE_CHECKING:
    import numpy as np

    from ..analysis.intervals import ResampledScore
    from ..probes.perplexity import Told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, what it is compared with, and its images."""
    add_compared(parser)
    parser.add_argument(
        "--masks",
        metavar="TABLE",
        help="ask the words that were hidden when these images were found (default: where images of a model were found "
        "so, those; else the same in every run)",
    )
    add_running(parser, "scores.json")


def run(args: argparse.Namespace) -> None:
    """Tell what is hidden, print a table, write the same as JSON.

    Raises:
        InputError: a model of another task, models of other lines, or an output that can't be written.
    """
    from ..analysis.intervals import interval_of
    from ..analysis.score_files import described_metric, write_score_files
    from ..analysis.significance import draw_sentences
    from ..analysis.translation_scores import spread
    from ..devices import choose_device
    from ..probes.perplexity import CAPTIONS, ask_alike, ask_as, has_images, lines_of, tell_hidden
    from ..probes.trained import check_orders, check_seen, load_split, load_trained
    from ..progress import progress_bar

    check_running(args)
    device = choose_device(args.device)
    runs = {}
    for name, (path, order) in compared(args).items():
        trained = load_trained(path, "grounded_lm", device, _changes(args), args.user_dir)
        if path == args.checkpoint and order:
            check_orders(trained, [order])
        given, order = order, order or str(trained.settings.image_order)
        dataset = load_split(trained, args.split, order)
        shown = has_images(dataset)
        if path == args.checkpoint and given == "shuffled" and not shown:
            raise InputError(
                f"images can't be {order}, as those of {path} are of captions, and lines of {args.split} have none. "
                f"Name theirs, or ask for {CAPTIONS}{args.split}.",
                "image_order",
                "image_ids",
            )
        runs[name] = trained, dataset, order if shown else "none"
        if args.masks:
            ask_as(trained, runs[name][1], args.masks, args.split)
    check_seen([trained for trained, _, _ in runs.values()], _changes(args))
    if all(images == "none" for _, _, images in runs.values()):
        _refuse_images(args)
    masks = ask_alike([dataset for _, dataset, _ in runs.values()], args.split)
    told = {}
    with progress_bar(len(masks) * len(runs), 0, "lines") as bar:
        for name, (trained, dataset, _) in runs.items():
            told[name] = tell_hidden(trained, dataset, args.batch_size, bar.update)
    words = int(told["hypothesis"].words.sum())
    if not words:
        raise InputError(f"{args.split} has no hidden word.", "split")
    draws = draw_sentences(len(masks), args.bootstrap_samples, args.seed)
    if said := _other_regions(told, [trained for trained, _, _ in runs.values()]):
        warn(f"{said}, so its region loss is left out.")
        told["twin"].regions[:] = 0
    resampled = {name: _resampled(each, draws) for name, each in told.items()}
    systems: dict[str, Any] = {"hypothesis": None, "twin": None}
    for name, (trained, _, images) in runs.items():
        regions = int(told[name].regions.sum())
        systems[name] = {"files": [str(trained.path)], "images": images, "regions": regions}
        for metric, score in resampled[name].items():
            found = interval_of(score)
            systems[name][metric] = {**spread([found.value])._asdict(), "low": found.low, "high": found.high}
    metrics = {
        metric: described_metric(metric.replace("_", " "), better="lower") for of in resampled.values() for metric in of
    }
    report = {
        "sentences": len(masks),
        "words": words,
        "test_set": {"file": args.split, "sha256": _digest(lines_of(masks))},
        "metrics": metrics,
        "systems": systems,
        "conventions": {"region_loss": told["hypothesis"].hidden} if "region_loss" in metrics else {},
        "resampling": {"samples": args.bootstrap_samples, "seed": args.seed},
        "interval": f"95 %, bootstrap over lines, {args.bootstrap_samples} resamplings, seed {args.seed}",
        "comparison": _comparison(resampled) if "twin" in runs else None,
        "meta": meta_of(args, {trained.path for trained, _, _ in runs.values()}, PACKAGES),
    }
    drawn = {
        f"{name}.{metric}": score.drawn[None] for name, each in resampled.items() for metric, score in each.items()
    }
    write_score_files(args.out, report, drawn)
    print("\n".join(_table(report)))


def _other_regions(told: dict[str, "Told"], models: list[Any]) -> str:
    """Why the twin's region loss can't be compared; nothing where it can, or where there is none.

    A model is compared with itself whatever regions other images hide: those are its images then.
    """
    if "twin" not in told or not all(each.regions.any() for each in told.values()):
        return ""
    first, twin = models
    if first.path == twin.path:
        return ""
    if first.task.images.store.signature != twin.task.images.store.signature:
        return "the twin's regions are of other features"
    if told["hypothesis"].hidden != told["twin"].hidden:
        return "the twin hides other regions (--region-mask-prob, --images-per-sentence, --image-ids)"
    return ""


def _resampled(told: "Told", draws: "np.ndarray") -> dict[str, "ResampledScore"]:
    """Each metric that a model has, by its name."""
    from ..analysis.perplexity import resample_perplexity, resample_region_loss

    found = {
        "perplexity": resample_perplexity(told.bits, told.words, draws),
        "region_loss": resample_region_loss(told.distances, told.regions, draws),
    }
    return {metric: score for metric, score in found.items() if score is not None}


def _comparison(resampled: dict[str, dict[str, "ResampledScore"]]) -> dict[str, Any]:
    """The test of each metric that both have; lower is better."""
    from ..analysis.significance import compare_draws

    found = {}
    for metric, own in resampled["hypothesis"].items():
        if metric in resampled["twin"]:
            test = compare_draws(resampled["twin"][metric], own)
            found[metric] = {"delta": -test.delta, "low": -test.high, "high": -test.low, "p_value": test.p_value}
    return found


def _changes(args: argparse.Namespace) -> dict[str, Any]:
    """What is otherwise than in training."""
    from ..probes.perplexity import CAPTIONS

    changes = changes_of(args)
    if args.image_ids and not args.split.startswith(CAPTIONS):
        changes["caption_data"] = None  # these images are not of captions, but of these lines
    return changes


def _refuse_images(args: argparse.Namespace) -> None:
    """Refuse choices of images where no line has any: they would change nothing. A store may have moved.

    Raises:
        InputError: there are some.
    """
    from ..probes.perplexity import CAPTIONS

    if given := {"images_per_sentence", "image_seed"} & set(_changes(args)):
        raise InputError(
            f"images are chosen, but lines of {args.split} have none: the model learned with those of captions. Name "
            f"theirs with --image-ids, or ask for {CAPTIONS}{args.split}.",
            *sorted(given),
        )


def _digest(masks: Any) -> str:
    """sha256 of all lines and of what is hidden in them: the identity of the test set."""
    import hashlib

    digest = hashlib.sha256()
    for row in range(len(masks)):
        digest.update(masks[row]["tokens"].numpy().tobytes() + masks[row]["hidden"].numpy().tobytes())
    return digest.hexdigest()


def _table(report: dict[str, Any]) -> list[str]:
    """The report for a reader."""
    labels = {metric: str(of["label"]) for metric, of in report["metrics"].items()}
    rows = [["", "images", *labels.values()]]
    systems = {name: system for name, system in report["systems"].items() if system}
    for name, system in systems.items():
        of = [system.get(metric) for metric in labels]
        rows.append(
            [name, system["images"], *(shown((each["mean"], each["low"], each["high"])) if each else "" for each in of)]
        )
    regions = max(system["regions"] for system in systems.values())
    hidden = f"{report['words']} hidden words" + (f" and {regions} hidden regions" if regions else "")
    lines = [f"{hidden} of {report['sentences']} lines; {report['interval']}", "", *aligned(rows)]
    for metric, test in sorted((report["comparison"] or {}).items()):
        difference = shown((test["delta"], test["low"], test["high"]), sign=True)
        lines.append(f"hypothesis - twin, {labels[metric]}: {difference}, p {small_p(test['p_value'])} (one-sided)")
    return lines
