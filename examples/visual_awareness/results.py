"""Collect what evaluate.sh measured into RUN/results.json and print it as the tables of the README."""

import argparse
import json
from pathlib import Path
from typing import Any

from visual_grounding.storage.lines import read_lines

TEXTS = {
    "plain.valid1": "development rows with a photo (1,109)",
    "plain.test": "test rows with a photo (467)",
    "plain.test1": "test_2016_flickr, 757 of its 1,000 rows",
    "plain.test2": "test_2017_flickr (1,000)",
    "plain.test3": "test_2017_mscoco (461)",
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


def main() -> None:
    """Write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="the OUT of the other scripts")
    args = parser.parse_args()
    results = collect(args.run)
    (args.run / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print("\n".join(tables(results)))


if __name__ == "__main__":
    main()
