"""Perplexity, memory and time against the regions of a photo, as one table (GS Table 1), and what the recipe stands on.

    python cost.py --out out

Reads of each strategy OUT/seedN/scores/captions.NAME.blank/scores.json, the updates a second of its pre-training in
OUT/logs/seedN/pretrain-NAME.log (the quickest tenth of the intervals that fairseq logs: other work may have stood
beside the others), and the memory of a step with as many positions of OUT/logs/memory.log and memory-regions.log,
which `benchmarks/region_memory.py` printed; writes OUT/cost.md. OUT/floors.md is of OUT/seedN/scores/floor.*: a model
with photos against its twin, which learned from the same text without.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import numpy as np
from tabulate import tabulate

# Row -> strategy, positions that its photos take, and which log has their memory.
ROWS = {
    "0": ("none-captions", "0", "memory"),
    "whole image": ("i2t", "1", "memory"),
    "1": ("regions-1", "1", "memory-regions"),
    "4": ("regions-4", "4", "memory-regions"),
    "8": ("regions-8", "8", "memory-regions"),
    "16": ("regions-16", "16", "memory-regions"),
}
# Comparison with the twin -> what it is, and whether its perplexity has to be lower.
FLOORS = {
    "floor.i2t": ("own photo", True),
    "floor.i2t.shuffled": ("another's photo", False),
    "floor.i2t-shuffled": ("learned with others' photos, own photo", False),
    "floor.i2t-shuffled.shuffled": ("learned with others' photos, another's photo", False),
}


def main() -> int:
    """Write both tables, of what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    for name, table in (("cost", cost_table(args.out)), ("floors", floor_table(args.out))):
        whole = args.out / f"{name}.md.new"  # which a killed run leaves, not half of the table
        whole.write_text(f"{table}\n", encoding="utf-8")
        whole.replace(args.out / f"{name}.md")
        print(table)
    return 0


def seeds_of(out: Path) -> list[int]:
    """Those that there are."""
    return sorted(int(path.name.removeprefix("seed")) for path in out.glob("seed*") if path.name[4:].isdecimal())


def cost_table(out: Path) -> str:
    """Table 1, of the strategies that were trained, each over the seeds that it was trained with."""
    rows = []
    for regions, (name, positions, log) in ROWS.items():
        seeds = [seed for seed in seeds_of(out) if perplexity_file(out, seed, name).is_file()]
        if seeds:
            told = spread([perplexity(out, seed, name) for seed in seeds])
            taken = [found for seed in seeds if (found := seconds(out, seed, name)) is not None]
            times = spread(taken, digits=3) if taken else "–"
            rows.append([regions, told, memory(out, log).get(positions, "–"), times])
    head = ["regions", "perplexity of captions", "memory of a step, GB", "seconds an update"]
    return tabulate(rows, head, tablefmt="github", disable_numparse=True)


def floor_table(out: Path) -> str:
    """Each floor with each seed: perplexity minus the twin's, with its 95 % interval."""
    rows = []
    for name, (said, lower) in FLOORS.items():
        for seed in seeds_of(out):
            path = out / f"seed{seed}" / "scores" / name / "scores.json"
            if path.is_file():
                found = json.loads(path.read_text(encoding="utf-8"))["comparison"]["perplexity"]
                holds = (found["high"] < 0) == lower
                interval = f"{found['delta']:+.1f} [{found['low']:+.1f}, {found['high']:+.1f}]"
                rows.append(
                    [said, seed, interval, "below" if lower else "not below", "holds" if holds else "DOES NOT HOLD"]
                )
    head = ["i2t minus none-captions, captions", "seed", "perplexity", "should be", ""]
    return tabulate(rows, head, tablefmt="github", disable_numparse=True)


def memory(out: Path, log: str) -> dict[str, str]:
    """Positions -> GB, of what was measured."""
    path = out / "logs" / f"{log}.log"
    return dict(re.findall(r"^(\d+) positions: ([\d.]+) GB$", path.read_text(), re.M)) if path.is_file() else {}


def perplexity_file(out: Path, seed: int, name: str) -> Path:
    """Scores of development captions with their own photo."""
    folder = f"captions.{name}" + ("" if name.startswith("none") else ".blank")
    return out / f"seed{seed}" / "scores" / folder / "scores.json"


def perplexity(out: Path, seed: int, name: str) -> float:
    """Of development captions with their own photo."""
    systems = json.loads(perplexity_file(out, seed, name).read_text(encoding="utf-8"))["systems"]
    return float(systems["hypothesis"]["perplexity"]["mean"])


def seconds(out: Path, seed: int, name: str) -> float | None:
    """Of an update, in the quickest tenth of the intervals that were logged; None where none was."""
    log = (out / "logs" / f"seed{seed}" / f"pretrain-{name}.log").read_text(encoding="utf-8")
    taken = sorted(1 / float(ups) for ups in re.findall(r"\| train_inner \|.*?\bups=([\d.]+)", log) if float(ups) > 0)
    return float(np.mean(taken[: max(1, len(taken) // 10)])) if taken else None


def spread(values: list[float], digits: int = 1) -> str:
    """Mean, and where there are several, standard deviation."""
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


if __name__ == "__main__":
    sys.exit(main())
