"""Rows of whole sources by what could make their images useful: short ones, those with words rare in training.

    python groups.py --run out --language de

Reads the five sets' sources, references and translations in RUN; writes RUN/groups/GROUP.{en,de} and
RUN/translations/groups.GROUP.NAME.txt for `all` of their rows, the `short` ones, and those with a `rare` word. A row
can be in both groups. What is short and what is rare was set before anything was measured.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from visual_grounding.analysis.hypotheses import read_hypotheses
from visual_grounding.errors import InputError
from visual_grounding.storage.lines import read_lines

sys.path.insert(0, str(Path(__file__).parents[1] / "multi30k"))
from rows import write_lines

SETS = {"valid1": "photos", "test": "test.photos", "test1": "test.2016", "test2": "test.2017", "test3": "test.coco"}
SYSTEMS = ("text-only", "retrieved", "shuffled")
SHORT = 8  # words at most, punctuation among them
RARE = 5  # occurrences in training at most


def groups_of(sources: list[str], training: list[str]) -> dict[str, list[int]]:
    """Group -> its rows.

    >>> groups_of(["a dog .", "a b c d e f g h i", "a cat ."], ["a dog . b c d e f g h i"] * 6)
    {'all': [0, 1, 2], 'short': [0, 2], 'rare': [2]}
    """
    counts = Counter(word for line in training for word in line.split())
    rows = [source.split() for source in sources]
    return {
        "all": list(range(len(rows))),
        "short": [number for number, words in enumerate(rows) if len(words) <= SHORT],
        "rare": [number for number, words in enumerate(rows) if any(counts[word] <= RARE for word in words)],
    }


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="the OUT of the other scripts")
    parser.add_argument("--language", choices=("de", "fr"), default="de", help="of the translations")
    args = parser.parse_args()
    lines = {
        ending: [line for name in SETS.values() for line in read_lines(args.run / f"plain/{name}.{ending}")]
        for ending in ("en", args.language)
    }
    said = {
        system: [
            line for subset in SETS for line in read_hypotheses(args.run / f"translations/plain.{subset}.{system}.txt")
        ]
        for system in SYSTEMS
    }
    for group, rows in groups_of(lines["en"], read_lines(args.run / "plain/train.en")).items():
        for ending, of_all in lines.items():
            write_lines(args.run / "groups" / f"{group}.{ending}", (of_all[row] for row in rows))
        for system, of_all in said.items():
            write_lines(args.run / f"translations/groups.{group}.{system}.txt", (of_all[row] for row in rows))
        print(f"{group}: {len(rows)} of {len(lines['en'])} rows")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
