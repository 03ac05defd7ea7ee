"""The translation of each ambiguous sentence, and that of its other sense, line by line as CoMMuTE has them.

    python other_sense.py --text world/text/paired --out contrastive/text

Every English sentence of TEXT.en is there twice, once with either sense; the German sentence of the one is the wrong
translation of the other. Writes OUT/{correct,incorrect}.{en,de}.
"""

import argparse
from collections import defaultdict
from pathlib import Path


def main() -> None:
    """Write the four files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="without .en and .de")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args()
    english, german = (
        args.text.with_name(f"{args.text.name}.{side}").read_text(encoding="utf-8").splitlines()
        for side in ("en", "de")
    )
    args.out.mkdir(parents=True, exist_ok=True)
    for name, lines in (("correct", german), ("incorrect", other_senses(english, german))):
        for side, content in (("en", english), ("de", lines)):
            (args.out / f"{name}.{side}").write_text("".join(f"{line}\n" for line in content), encoding="utf-8")


def other_senses(english: list[str], german: list[str]) -> list[str]:
    """For each line the German one that its English sentence has where it means something else.

    >>> other_senses(["a bat", "a seal", "a bat", "a seal"], ["Schläger", "Robbe", "Fledermaus", "Siegel"])
    ['Fledermaus', 'Siegel', 'Schläger', 'Robbe']
    """
    senses = defaultdict(list)
    for source, target in zip(english, german, strict=True):
        senses[source].append(target)
    others = {
        (source, found[at]): found[1 - at] for source, found in senses.items() if len(found) == 2 for at in (0, 1)
    }
    missing = [source for source, found in senses.items() if len(set(found)) != 2 or len(found) != 2]
    if missing:
        raise SystemExit(f"every sentence should be there once with either sense, but {missing[0]!r} isn't")
    return [others[pair] for pair in zip(english, german)]


if __name__ == "__main__":
    main()
