"""Scores of all rows and seeds, each task's gain beside its grounding ratio (VOK Tables 2 to 6, A.7), and the floors.

    python table.py --out out --seeds 3

Reads OUT/seedN/scores/ROW/TASK.json, the last validation in OUT/logs/seedN/train-ROW.log, OUT/stats/statistics.json and
OUT/floors.json; writes OUT/table.md and OUT/table.json.
"""

import argparse
import json
import re
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
from scipy.stats import t as student
from tabulate import tabulate

from visual_grounding.storage.artefact import write_json

MODEL, TWIN = "voken", "mlm-more"
VALIDATED = ("ppl", "voken_accuracy_masked", "voken_accuracy_visible")


def main() -> int:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    scores = read_scores(args.out, args.seeds)
    tasks = list(dict.fromkeys(task for row in scores.values() for task in row))
    shared = [task for task in tasks if all(task in of_task for of_task in scores.values())]
    rows = []
    validations = {name: read_validations(args.out, name, args.seeds) for name in {*scores, MODEL}}
    for name, of_task in scores.items():
        means = [mean_and_spread(of_task.get(task, {}).values()) for task in tasks]
        whole = all(len(of_task[task]) == args.seeds for task in shared)
        seeds = range(1, args.seeds + 1) if whole and shared else ()
        average = [float(np.mean([of_task[task][seed] for task in shared])) for seed in seeds]
        perplexities = [each["ppl"] for each in validations[name].values() if "ppl" in each]
        rows.append([name, *means, mean_and_spread(average), mean_and_spread(perplexities)])
    mean = "mean" if shared == tasks else f"mean of {', '.join(shared) or 'none'}"
    tables = [
        tabulate(rows, ["", *tasks, mean, "perplexity"], tablefmt="github", disable_numparse=True),
        *contrast_table(scores, shared, args.seeds),
        gain_table(scores, tasks, ratios(args.out)),
        *floor_table(args.out, validations[MODEL]),
    ]
    write_json(args.out / "table.json", {"scores": scores, "validations": validations})
    whole = args.out / "table.md.new"  # which a killed run leaves, not half of the table
    whole.write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    whole.replace(args.out / "table.md")
    print("\n\n".join(tables))
    return 0


def read_scores(out: Path, seeds: int) -> dict[str, dict[str, dict[int, float]]]:
    """Row -> task -> seed -> score."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for seed in range(1, seeds + 1):
        for path in sorted((out / f"seed{seed}" / "scores").glob("*/*.json")):
            score = json.loads(path.read_text(encoding="utf-8"))["score"]
            found.setdefault(path.parent.name, {}).setdefault(path.stem, {})[seed] = 100 * score
    return found


def read_validations(out: Path, row: str, seeds: int) -> dict[int, dict[str, float]]:
    """Seed -> what the last validation of a language model said: perplexity of masked words, accuracy of vokens."""
    found = {}
    for seed in range(1, seeds + 1):
        log = out / "logs" / f"seed{seed}" / f"train-{row}.log"
        if log.is_file():
            found[seed] = last_validation(log.read_text(encoding="utf-8"))
    return found


def last_validation(log: str) -> dict[str, float]:
    """What the last validation of a training said, of what it said."""
    lines = [line for line in log.splitlines() if "valid on 'valid' subset" in line]
    found = {name: re.findall(rf"\| {name} ([0-9.]+)", lines[-1]) if lines else [] for name in VALIDATED}
    return {name: float(values[-1]) for name, values in found.items() if values}


def floor_table(out: Path, validations: dict[int, dict[str, float]]) -> list[str]:
    """The recall of tokens and each seed's accuracy of vokens beside what they should be above, if measured."""
    path = out / "floors.json"
    if not path.is_file():
        return []
    floors = json.loads(path.read_text(encoding="utf-8"))
    own, control = floors["recall"]["matcher"], floors["recall"]["control"]
    times = floors["recall_times"]
    rows = [
        [
            f"recall of single tokens at 10, among {own['photos']} photos: lower end of [{percent(own['low'])}, "
            f"{percent(own['high'])}]",
            percent(own["low"]),
            f"{times} × {percent(control['recall'])} of shuffled captions",
            own["low"] >= times * control["recall"],
        ]
    ]
    for seed, said in validations.items():
        for where, name, floor in (
            ("masked pieces", "voken_accuracy_masked", "commonest_voken"),
            ("pieces that are seen", "voken_accuracy_visible", "commonest_voken_of_piece"),
        ):
            if name in said:
                told = f"voken accuracy, {where}, seed {seed}"
                rows.append([told, percent(said[name]), percent(floors[floor]), said[name] > floors[floor]])
    shown = [[*row, "holds" if holds else "DOES NOT HOLD"] for *row, holds in rows]
    table = tabulate(shown, ["floor", "found", "should be above", ""], tablefmt="github", disable_numparse=True)
    unigrams = floors.get("unigram_perplexity")  # folders of before don't say
    if unigrams is None:
        return [table]
    return [table, f"perplexity of who knows alone how frequent pieces are: {unigrams:.0f}"]


def percent(share: float) -> str:
    """Of a share, 0..1."""
    return f"{100 * share:.2f} %"


def mean_and_spread(scores: Collection[float]) -> str:
    """Mean, and where there are several, standard deviation."""
    if not scores:
        return ""
    values = list(scores)
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")


def ratios(out: Path) -> dict[str, float]:
    """Each corpus' grounding ratio."""
    path = out / "stats" / "statistics.json"
    if not path.is_file():
        return {}
    said = json.loads(path.read_text(encoding="utf-8"))
    return {corpus["name"]: corpus["grounding_ratio"] for corpus in said["corpora"]}


def gain_table(scores: dict[str, dict[str, dict[int, float]]], tasks: list[str], ratio: dict[str, float]) -> str:
    """Gain over the twin for each task, of seeds that both have, beside its grounding ratio, least grounded first."""
    rows = []
    for task in sorted(tasks, key=lambda name: ratio.get(name, 0.0)):
        ours, twins = (scores.get(name, {}).get(task, {}) for name in (MODEL, TWIN))
        gains = [ours[seed] - twins[seed] for seed in sorted(ours.keys() & twins.keys())]
        if gains:
            said = ", ".join(f"{gain:+.1f}" for gain in gains)
            rows.append([task, f"{100 * ratio[task]:.1f} %" if task in ratio else "", f"{np.mean(gains):+.1f}", said])
    return tabulate(
        rows,
        ["task", "grounding ratio", f"{MODEL} minus {TWIN}", "each seed"],
        tablefmt="github",
        disable_numparse=True,
    )


def contrast_table(scores: dict[str, dict[str, dict[int, float]]], tasks: list[str], seeds: int) -> list[str]:
    """Gain of the mean over tasks on that of each other row, with the 95 % interval of a paired t-test over seeds."""
    rows, numbers = [], range(1, seeds + 1)
    own = scores.get(MODEL, {})
    for name, of_task in scores.items():
        measured = own and all(seed in each[task] for each in (own, of_task) for task in tasks for seed in numbers)
        if name == MODEL or not measured or seeds < 2 or not tasks:
            continue
        gains = [float(np.mean([own[task][seed] - of_task[task][seed] for task in tasks])) for seed in numbers]
        half = student.ppf(0.975, seeds - 1) * np.std(gains, ddof=1) / seeds**0.5
        gain = float(np.mean(gains))
        rows.append([f"{MODEL} minus {name}", f"{gain:+.1f} [{gain - half:+.1f}, {gain + half:+.1f}]"])
    return [tabulate(rows, ["", "mean"], tablefmt="github", disable_numparse=True)] if rows else []


if __name__ == "__main__":
    sys.exit(main())
