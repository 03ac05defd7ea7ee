"""Mask the last word of sentences, and see whether a pre-trained stream (--arch vtlm) can predict it, with its images.

    visual-grounding probe last-word --checkpoint checkpoints/vtlm/checkpoint_best.pt --split valid \\
        --twin-checkpoint checkpoints/tlm/checkpoint_best.pt --image-order congruent shuffled --out probes/last-word

The last word of the source, of the target, or of both sentences is masked, all its pieces; sentences that end in
punctuation lose that first. A word is right where all its pieces are. With both masked, both languages' words are
counted, and "words" is the share of right ones among them. Pairs of which a sentence has no word, or ends in one that
the dictionary doesn't know, are left out and counted.

Intervals of shares of words are Wilson's, tests of two runs McNemar's (exact, two-sided); where a sentence has two
words, both are a bootstrap over sentences (one-sided p). Several pairs of languages are counted apart.
--twin-checkpoint is another model, such as TLM: the same without images. DIR/results.json has all numbers.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError, warn
from .probing import PACKAGES, add_model, add_running, changes_of, check_running, shown, write_results
from .scoring import aligned, meta_of, small_p

if TYPE_CHECKING:
    import numpy as np

    from ..probes.last_word import Guesses, Pair
    from ..probes.trained import Trained

_STRANGERS = 20  # one pair in so many may end in another word in a twin's data, before that is refused
_WORDS = "words"  # of both languages, where both are masked
_TESTS = "McNemar's, exact, two-sided; of words of both languages a paired bootstrap, one-sided"


class Run(NamedTuple):
    """One way of asking: which model, which images, which languages, which words are masked."""

    system: str
    images: str
    languages: str
    masked: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model and its sentences."""
    add_model(parser, twin=True)
    add_running(parser)


def run(args: argparse.Namespace) -> None:
    """Predict, count, print a table, write the same as JSON.

    Raises:
        InputError: models and data that don't belong together, or no pair whose last words can be masked.
    """
    from ..devices import choose_device
    from ..probes import last_word as probe
    from ..probes.trained import check_orders, check_seen, load_split, load_trained
    from ..progress import progress_bar

    check_running(args)
    device = choose_device(args.device)
    paths = {"model": args.checkpoint, "twin": args.twin_checkpoint}
    systems = {
        name: load_trained(path, "visual_tlm", device, changes_of(args), args.user_dir)
        for name, path in paths.items()
        if path is not None
    }
    check_orders(systems["model"], args.image_order)
    check_seen(list(systems.values()), changes_of(args))
    kept, counts = _pairs(args, systems)
    orders = {name: args.image_order if trained.sees else ["none"] for name, trained in systems.items()}
    found: dict[Run, dict[str, Guesses]] = {}
    asked = counts["n"] * len(probe.MASKED) * sum(map(len, orders.values()))
    with progress_bar(asked, 0, "masked sentences") as bar:
        for name, trained in systems.items():
            for order in orders[name]:
                dataset = load_split(trained, args.split, order)
                for languages, pairs in kept[name].items():
                    for masked in probe.MASKED:
                        found[Run(name, order, languages, masked)] = probe.guess(
                            trained, dataset, pairs, masked, args.split, args.batch_size, bar.update
                        )
    report = {
        "probe": "last-word",
        "split": args.split,
        **counts,
        "runs": [each for way, guesses in found.items() for each in _shares(args, way, guesses)],
        "comparisons": _comparisons(args, found),
        "interval": f"95 %, Wilson; of words of both languages a bootstrap over sentences, {args.bootstrap_samples} "
        f"resamplings, seed {args.seed} (Wilson's over sentences where all are right, or none)",
        "test": _TESTS,
        "meta": meta_of(args, (args.checkpoint, args.twin_checkpoint), PACKAGES),
    }
    write_results(args.out, report)
    print("\n".join(_table(report)))


def _pairs(
    args: argparse.Namespace, systems: "Mapping[str, Trained]"
) -> "tuple[dict[str, dict[str, list[Pair]]], dict[str, Any]]":
    """The pairs that every model is asked, by its name and their languages; and how many there are.

    Raises:
        InputError: the models' data are other sentences, or none is left.
    """
    from ..probes import last_word as probe
    from ..probes.trained import load_split
    from ..shares import warn_of

    every, sizes, left_out = {}, {}, {}
    for name, trained in systems.items():
        dataset = load_split(trained, args.split)
        sizes[name] = len(dataset)
        every[name], left_out[name] = probe.pairs_of(trained, dataset)
    if len(set(sizes.values())) > 1:
        raise InputError(
            f"both models should be asked the same pairs of sentences, but {args.split} has {sizes['model']} in the "
            f"data of {args.checkpoint} and {sizes['twin']} in that of {args.twin_checkpoint}.",
            "twin_checkpoint",
            "data",
        )
    shared = [languages for languages in every["model"] if all(languages in each for each in every.values())]
    rows = {
        languages: set.intersection(*({pair.row for pair in each[languages]} for each in every.values()))
        for languages in shared
    }
    kept = {
        name: {languages: [pair for pair in each[languages] if pair.row in rows[languages]] for languages in shared}
        for name, each in every.items()
    }
    n = sum(map(len, rows.values()))
    if not n:
        raise InputError(
            f"{args.split} should have pairs of sentences with words that are known, but has none.", "split"
        )
    _check_same_words(args, systems, kept)
    for warning in warn_of(sizes["model"] - n, sizes["model"], "are left out.", "pairs of sentences"):
        warn(warning)
    return kept, {"pairs": sizes["model"], "n": n, "left_out": left_out}


def _check_same_words(
    args: argparse.Namespace, systems: "Mapping[str, Trained]", kept: "Mapping[str, Mapping[str, Sequence[Pair]]]"
) -> None:
    """Refuse a twin whose data are other sentences of as many lines.

    Raises:
        InputError: more than one pair in twenty ends in other words.
    """
    from ..probes.last_word import words_of

    said = {
        name: [words_of(trained, pair) for pairs in kept[name].values() for pair in pairs]
        for name, trained in systems.items()
    }
    first, *others = said.values()
    for twin in others:
        other = [place for place in range(len(first)) if first[place] != twin[place]]
        if len(other) * _STRANGERS > len(first):
            place = other[0]
            raise InputError(
                f"both models should be asked the same pairs of sentences, but {len(other)} of {len(first)} end in "
                f"other words in the data of {args.twin_checkpoint}, the first in {' and '.join(twin[place])} instead "
                f"of {' and '.join(first[place])}.",
                "twin_checkpoint",
                "data",
            )


def _shares(args: argparse.Namespace, way: Run, guesses: "Mapping[str, Guesses]") -> list[dict[str, Any]]:
    """The share of right words of one run: of each language whose word is masked, then of both."""
    import numpy as np

    from ..analysis.contrastive import accuracy_of
    from ..analysis.intervals import interval_of
    from ..analysis.significance import resample_mean

    found = []
    for predicted, guess in guesses.items():
        accuracy = accuracy_of(guess.right)
        found.append(
            {
                **way._asdict(),
                "predicted": predicted,
                "n": len(guess.right),
                "right": accuracy.right,
                "accuracy": {"value": accuracy.accuracy, "low": accuracy.low, "high": accuracy.high},
                "pieces": int(guess.pieces.sum()),
                "pieces_right": int(guess.pieces_right.sum()),
            }
        )
    if len(guesses) > 1:
        score = resample_mean(_both(guesses), samples=args.bootstrap_samples, seed=args.seed)
        total = {name: sum(each[name] for each in found) for name in ("right", "pieces", "pieces_right")}
        n = len(found) * found[0]["n"]
        share = interval_of(score)
        if share.value in (0, 1):  # every resampling is the same then; words of a sentence don't count as two
            alike = accuracy_of(np.full(found[0]["n"], bool(share.value)))
            share = share._replace(low=alike.low, high=alike.high)
        found.append({**way._asdict(), "predicted": _WORDS, "n": n, **total, "accuracy": share._asdict()})
    return found


def _both(guesses: "Mapping[str, Guesses]") -> "np.ndarray":
    """The share of right words in each sentence, (n,)."""
    import numpy as np

    return np.mean([guess.right for guess in guesses.values()], axis=0)


def _comparisons(args: argparse.Namespace, found: "Mapping[Run, Mapping[str, Guesses]]") -> list[dict[str, Any]]:
    """The first image order against the others, the model against its twin; on the same sentences."""
    from ..analysis.contrastive import compare_accuracies
    from ..analysis.significance import compare_draws, resample_mean

    first = {way.system: way.images for way in reversed(list(found))}
    compared = []
    for one, ours in found.items():
        for other, theirs in found.items():
            of_orders = one.system == other.system and one.images == first[one.system] != other.images
            of_twins = (one.system, other.system) == ("model", "twin") and (
                one.images == other.images or "none" in (one.images, other.images)
            )
            if one[2:] != other[2:] or not (of_orders or of_twins):
                continue
            shares = {name: (ours[name].right.astype(float), theirs[name].right.astype(float)) for name in ours}
            if len(ours) > 1:
                shares[_WORDS] = _both(ours), _both(theirs)
            for predicted, sides in shares.items():
                drawn = [resample_mean(side, samples=args.bootstrap_samples, seed=args.seed) for side in sides]
                test = compare_draws(*drawn)._asdict()
                if predicted != _WORDS:
                    exact = compare_accuracies(ours[predicted].right, theirs[predicted].right)
                    test |= exact._asdict()
                ways = {"first": one._asdict(), "second": other._asdict()}
                compared.append({**ways, "predicted": predicted, "n": len(sides[0]), **test})
    return compared


def _table(report: dict[str, Any]) -> list[str]:
    """The report for a reader."""
    from ..analysis.intervals import Interval

    lines = [
        f"{report['n']} of {report['pairs']} pairs of sentences of {report['split']}: last words that are predicted "
        "right, in percent",
        "",
    ]
    rows = [["system", "images", "languages", "masked", "predicted", "words", "right", "right pieces"]]
    for each in report["runs"]:
        share = Interval(*(100 * number for number in Interval(**each["accuracy"])))
        pieces = f"{100 * each['pieces_right'] / each['pieces']:.1f}"
        names = [each[name] for name in (*Run._fields, "predicted")]
        rows.append([*names, str(each["n"]), shown(share, 1), pieces])
    lines += aligned(rows)
    if report["comparisons"]:
        rows = [["difference", "languages", "masked", "predicted", "n", "points", "p"]]
        for pair in report["comparisons"]:
            delta = Interval(*(100 * pair[name] for name in ("delta", "low", "high")))
            one, other = pair["first"], pair["second"]
            names = [f"{one['system']}.{one['images']} - {other['system']}.{other['images']}", one["languages"]]
            names += [one["masked"], pair["predicted"], str(pair["n"])]
            rows.append([*names, shown(delta, 1, sign=True), small_p(pair["p_value"])])
        lines += ["", f"test: {report['test']}", "", *aligned(rows)]
    return [*lines, "", f"intervals: {report['interval']}; of differences a bootstrap"]
