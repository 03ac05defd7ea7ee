"""Perplexity, memory and time against the regions of a photo, as one table (GS Table 1).

    python cost.py --out out --seeds 3

Reads of each strategy OUT/seedN/scores/captions.NAME.blank/scores.json, the seconds that its pre-training took of
OUT/done/seedN/pretrain-NAME, and the memory of a step with as many regions of OUT/logs/memory.log, which
`benchmarks/region_memory.py` printed; writes OUT/cost.md.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import numpy as np
from tabulate import tabulate

ROWS = {
    "0": "none-captions",
    "whole image": "i2t",
    "1": "regions-1",
    "4": "regions-4",
    "8": "regions-8",
    "16": "regions-16",
}


def main() -> int:
    """Write the table of those strategies that were trained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    memory = dict(re.findall(r"^(\d+) positions: ([\d.]+) GB$", (args.out / "logs/memory.log").read_text(), re.M))
    rows, seeds = [], range(1, args.seeds + 1)
    for regions, name in ROWS.items():
        if (args.out / "done" / "seed1" / f"pretrain-{name}").is_file():
            told = spread([perplexity(args.out, seed, name) for seed in seeds])
            taken = spread([time(args.out, seed, name) for seed in seeds], digits=0)
            rows.append([regions, told, memory[regions if regions.isdecimal() else "1"], taken])
    head = ["regions", "perplexity of captions", "memory of a step, GB", "seconds of pre-training"]
    table = tabulate(rows, head, tablefmt="github", disable_numparse=True)
    (args.out / "cost.md").write_text(f"{table}\n", encoding="utf-8")
    print(table)
    return 0


def perplexity(out: Path, seed: int, name: str) -> float:
    """Of development captions with their own photo."""
    folder = out / f"seed{seed}" / "scores" / (f"captions.{name}" + ("" if name.startswith("none") else ".blank"))
    systems = json.loads((folder / "scores.json").read_text(encoding="utf-8"))["systems"]
    return float(systems["hypothesis"]["perplexity"]["mean"])


def time(out: Path, seed: int, name: str) -> float:
    """Seconds that pre-training took, beside another one."""
    return float((out / "done" / f"seed{seed}" / f"pretrain-{name}").read_text(encoding="utf-8").split(" ")[0])


def spread(values: list[float], digits: int = 1) -> str:
    """Mean, and where there are several, standard deviation."""
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


if __name__ == "__main__":
    sys.exit(main())
