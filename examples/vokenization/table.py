"""Scores of all rows and seeds as one table, and each task's gain beside its grounding ratio (VOK Tables 2 to 6, A.7).

    python table.py --out out --seeds 3

Reads OUT/seedN/scores/ROW/TASK.json and OUT/stats/statistics.json; writes OUT/table.md and OUT/table.json.
"""

import argparse
import json
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
from tabulate import tabulate

MODEL, TWIN = "voken", "mlm-more"


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
    for name, of_task in scores.items():
        means = [mean_and_spread(of_task.get(task, {}).values()) for task in tasks]
        whole = all(len(of_task[task]) == args.seeds for task in shared)
        seeds = range(1, args.seeds + 1) if whole and shared else ()
        average = [float(np.mean([of_task[task][seed] for task in shared])) for seed in seeds]
        rows.append([name, *means, mean_and_spread(average)])
    mean = "mean" if shared == tasks else f"mean of {', '.join(shared) or 'none'}"
    table = tabulate(rows, ["", *tasks, mean], tablefmt="github", disable_numparse=True)
    gains = gain_table(scores, tasks, ratios(args.out))
    (args.out / "table.md").write_text(f"{table}\n\n{gains}\n", encoding="utf-8")
    (args.out / "table.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    print(f"{table}\n\n{gains}")
    return 0


def read_scores(out: Path, seeds: int) -> dict[str, dict[str, dict[int, float]]]:
    """Row -> task -> seed -> score."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for seed in range(1, seeds + 1):
        for path in sorted((out / f"seed{seed}" / "scores").glob("*/*.json")):
            score = json.loads(path.read_text(encoding="utf-8"))["score"]
            found.setdefault(path.parent.name, {}).setdefault(path.stem, {})[seed] = 100 * score
    return found


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


if __name__ == "__main__":
    sys.exit(main())
