"""Collect what evaluate.sh measured into RUN/results.json and print it as the tables of the README.

Several runs are seeds: OUT/results.json and the tables then have means and spread, each seed's difference, and one test
over seeds and sentences for each pair, as `visual-grounding report runs` makes it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visual_grounding.analysis.runs import Row, doubts, read_runs, tabulate_runs
from visual_grounding.analysis.translation_scores import spread
from visual_grounding.errors import InputError
from visual_grounding.storage.artefact import write_json
from visual_grounding.storage.lines import read_lines

TEXTS = {
    "plain.valid1": "development rows with a photo (1,109)",
    "plain.test": "test rows with a photo (467)",
    "plain.test1": "test_2016_flickr, 757 of its 1,000 rows",
    "plain.test2": "test_2017_flickr (1,000)",
    "plain.test3": "test_2017_mscoco (461)",
    "groups.all": "all of these five, development rows among them",
    "groups.short": "those of at most 8 words",
    "groups.rare": "those with a word that is rare in training",
    "noisy.valid": "words missing: development rows (1,109)",
    "noisy.test": "words missing: test rows (467)",
    "masked.valid": "masked nouns: development rows (1,109)",
    "masked.test": "masked nouns: test rows (467)",
}
SYSTEMS = ("text-only", "retrieved", "shuffled", "paired", "shuffled-pairs", "blank")
RECALLS = tuple(f"{way}_r{k}" for way in ("text_to_image", "image_to_text") for k in (1, 5, 10))


def read_recall(log: Path, split: str) -> dict[str, float]:
    """R@K in percent, out of the log of fairseq-validate."""
    for line in reversed(read_lines(log)):
        place = line.find("{")
        if place >= 0 and f"{split}_{RECALLS[0]}" in line:
            found = json.loads(line[place:])
            return {name: round(100 * float(found[f"{split}_{name}"]), 1) for name in RECALLS}
    raise SystemExit(f"error: {log} should hold the scores of {split}, but doesn't.")


def read_comparison(path: Path) -> dict[str, Any]:
    """BLEU of both systems (tokens, as given), their difference, its 95 % interval and the p-value."""
    scores = json.loads(path.read_text(encoding="utf-8"))
    bleu = {name: round(scores["systems"][name]["tokenised_bleu"]["mean"], 2) for name in ("hypothesis", "twin")}
    test = scores["comparison"]["pairs"][0]["tokenised_bleu"]
    rounded = {name: round(test[name], 2) for name in ("delta", "low", "high")}
    return {"sentences": scores["sentences"], "bleu": bleu, **rounded, "p_value": test["p_value"]}


def collect(run: Path) -> dict[str, Any]:
    """Everything in one dictionary."""
    recall: dict[str, Any] = {}
    for log in sorted((run / "logs").glob("recall-*.log")):
        _, encoder, split = log.stem.split("-")
        recall.setdefault(encoder, {})[split] = read_recall(log, split)
    bleu: dict[str, dict[str, float]] = {}
    comparisons: dict[str, dict[str, Any]] = {}
    for folder in sorted((run / "scores").iterdir()):
        kind, split, pair = folder.name.split(".", 2)
        system, twin = pair.split(".against.")
        found = read_comparison(folder / "scores.json")
        text = f"{kind}.{split}"
        bleu.setdefault(text, {}).update({system: found["bleu"]["hypothesis"], twin: found["bleu"]["twin"]})
        comparisons.setdefault(text, {})[f"{system} against {twin}"] = {
            name: value for name, value in found.items() if name != "bleu"
        }
    overlap = json.loads((run / "overlap.json").read_text(encoding="utf-8"))
    return {"overlap": overlap, "recall": recall, "bleu": bleu, "comparisons": comparisons}


def tables(results: dict[str, Any]) -> list[str]:
    """The same for a reader, in Markdown."""
    lines = ["| retriever, photos of | text→image R@1 / 5 / 10 | image→text R@1 / 5 / 10 |", "| --- | --- | --- |"]
    for encoder, splits in results["recall"].items():
        for split, scores in splits.items():
            ways = [" / ".join(f"{scores[name]:.1f}" for name in group) for group in (RECALLS[:3], RECALLS[3:])]
            lines.append(f"| {encoder}, {split} | {ways[0]} | {ways[1]} |")
    lines += ["", f"| BLEU | {' | '.join(SYSTEMS)} |", "| --- |" + " --- |" * len(SYSTEMS)]
    for text, label in TEXTS.items():
        scores = results["bleu"][text]
        cells = [f"{scores[system]:.2f}" if system in scores else "" for system in SYSTEMS]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines += ["", "| paired bootstrap | pair | difference | 95 % interval | p |", "| --- | --- | --- | --- | --- |"]
    for text, label in TEXTS.items():
        for pair, test in results["comparisons"][text].items():
            interval = f"{test['low']:+.2f} … {test['high']:+.2f}"
            lines.append(f"| {label} | {pair} | {test['delta']:+.2f} | {interval} | {test['p_value']:.3f} |")
    return lines


def collect_seeds(runs: Sequence[Path]) -> dict[str, Any]:
    """Everything that was measured of several seeds in one dictionary: lists have one value a seed."""
    single = [collect(run) for run in runs]
    evaluations = read_runs([run / "scores" for run in runs])
    rows = tabulate_runs(runs, evaluations, ["tokenised_bleu"])
    for warning in doubts(rows, evaluations):
        print(f"warning: {warning}", file=sys.stderr)
    recall = {
        encoder: {
            split: {name: [each["recall"][encoder][split][name] for each in single] for name in RECALLS}
            for split in splits
        }
        for encoder, splits in single[0]["recall"].items()
    }
    bleu = {
        text: {system: [each["bleu"][text][system] for each in single] for system in systems}
        for text, systems in single[0]["bleu"].items()
    }
    comparisons: dict[str, dict[str, Any]] = {}
    for row in rows:
        kind, split, pair = row.name.split(".", 2)
        of_text = comparisons.setdefault(f"{kind}.{split}", {})
        of_text[pair.replace(".against.", " against ")] = described_test(row)
    return {"seeds": len(runs), "recall": recall, "bleu": bleu, "comparisons": comparisons}


def described_test(row: Row) -> dict[str, Any]:
    """The test of one pair over all seeds."""
    if row.test is None:
        raise InputError(
            f"{row.name} should have a twin and draws of its sentences. Run evaluate.sh of each seed again."
        )
    return {
        "sentences": row.sentences,
        "delta": row.test.delta,
        "deltas": row.test.deltas,
        "low": row.test.low,
        "high": row.test.high,
        "p_value": row.test.p_value,
        "p_holm": row.p_holm,
    }


def tables_of_seeds(results: dict[str, Any]) -> list[str]:
    """The same for a reader, in Markdown: mean ± standard deviation over the seeds."""
    lines = [f"{results['seeds']} seeds, mean ± standard deviation", ""]
    lines += ["| retriever, photos of | text→image R@1 / 5 / 10 | image→text R@1 / 5 / 10 |", "| --- | --- | --- |"]
    for encoder, splits in results["recall"].items():
        for split, scores in splits.items():
            ways = [" / ".join(shown(scores[name], 1) for name in group) for group in (RECALLS[:3], RECALLS[3:])]
            lines.append(f"| {encoder}, {split} | {ways[0]} | {ways[1]} |")
    lines += ["", f"| BLEU | {' | '.join(SYSTEMS)} |", "| --- |" + " --- |" * len(SYSTEMS)]
    for text, label in TEXTS.items():
        scores = results["bleu"][text]
        cells = [shown(scores[system], 2) if system in scores else "" for system in SYSTEMS]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    tests = [
        (label, pair, test) for text, label in TEXTS.items() for pair, test in results["comparisons"][text].items()
    ]
    lines += ["", f"p: t-test over seeds and sentences, two-sided; Holm over {len(tests)} pairs", ""]
    lines += [
        "| | pair | difference | 95 % interval | p | p, Holm | each seed's difference |",
        "| --- |" + " --- |" * 6,
    ]
    for label, pair, test in tests:
        interval = f"{test['low']:+.2f} … {test['high']:+.2f}"
        each = ", ".join(f"{delta:+.2f}" for delta in test["deltas"])
        numbers = f"{test['delta']:+.2f} | {interval} | {test['p_value']:.4f} | {test['p_holm']:.3f}"
        lines.append(f"| {label} | {pair} | {numbers} | {each} |")
    return lines


def shown(values: Sequence[float], digits: int) -> str:
    """Mean and spread of one number over the seeds."""
    found = spread(values)
    return f"{found.mean:.{digits}f}" + ("" if found.std is None else f" ± {found.std:.{digits}f}")


def main() -> None:
    """Write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, nargs="+", required=True, help="the OUT of the other scripts, one a seed")
    parser.add_argument("--out", type=Path, help="folder for results.json of several runs")
    args = parser.parse_args()
    if len(args.run) > 1 and args.out is None:
        parser.error("several runs need --out")
    try:
        results = collect(args.run[0]) if len(args.run) == 1 else collect_seeds(args.run)
    except InputError as error:
        raise SystemExit(f"error: {error}") from error
    write_json((args.out or args.run[0]) / "results.json", results)
    print("\n".join(tables(results) if len(args.run) == 1 else tables_of_seeds(results)))


if __name__ == "__main__":
    main()
