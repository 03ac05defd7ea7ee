"""BLEU of the development rows over both stages of training (VLP Fig. 3), out of the logs of fairseq-train.

python figure3.py --logs out/logs/seed1 --model learned-last --out figure3.png
"""

import argparse
import re
import sys
from pathlib import Path

from visual_grounding.errors import InputError
from visual_grounding.storage.lines import read_lines

KINDS = {"masked": "masked nouns", "plain": "whole sources"}


def read_bleu(log: Path) -> list[tuple[int, float]]:
    """Epoch and BLEU of each validation; a run that was interrupted validated some epochs twice: the last counts.

    Raises:
        InputError: the log has none.
    """
    found = {}
    for line in read_lines(log):
        if match := re.search(r"\| valid \| epoch (\d+) \|.* \| bleu ([\d.]+)", line):
            found[int(match[1])] = float(match[2])
    if not found:
        raise InputError(f"{log} should have BLEU of validations, as fairseq-train --eval-bleu logs it, but has none.")
    return sorted(found.items())


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, required=True, help="folder with train-KIND-MODEL-STAGE.log")
    parser.add_argument("--model", required=True, help="such as learned-last")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of what both stages are trained"
    )
    parser.add_argument("--out", type=Path, required=True, help="a picture")
    args = parser.parse_args()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for number, kind in enumerate(args.kinds):
        said = KINDS[kind]
        first, second = (read_bleu(args.logs / f"train-{kind}-{args.model}-{stage}.log") for stage in (1, 2))
        last = first[-1][0]
        axes.plot(*zip(*first), color=f"C{number}", marker=".", label=f"{said}, stage 1: encoder frozen")
        second = [(last + epoch, bleu) for epoch, bleu in second]
        axes.plot(*zip(*second), color=f"C{number}", marker=".", linestyle="--", label=f"{said}, stage 2: everything")
    axes.set(xlabel="epoch", ylabel="BLEU, development rows (greedy)")
    axes.legend()
    whole = args.out.with_name(f"{args.out.name}.new")  # which a killed run leaves, not half of the picture
    figure.savefig(whole, format=args.out.suffix[1:] or "png")
    whole.replace(args.out)
    print(f"{args.out} shows {', '.join(args.kinds)}.")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
