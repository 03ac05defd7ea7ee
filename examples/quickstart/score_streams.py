"""Score the models that read regions and text as one stream: ambiguous words in the right sense, by split."""

import argparse
from pathlib import Path

from language import AMBIGUOUS
from score import is_right

from visual_grounding.analysis.hypotheses import read_hypotheses
from visual_grounding.storage.artefact import write_json

SENSES = {first.english: {first.german, second.german} for first, second in AMBIGUOUS}


def words_right(sources: list[str], references: list[str], hypotheses: list[str]) -> tuple[int, int]:
    """How many ambiguous nouns have the German noun of their reference, and how many there are.

    >>> words_right(["the bat ."] * 2, ["die Fledermaus ."] * 2, ["eine Fledermaus .", "der Schläger ."])
    (1, 2)
    """
    found = []
    for source, reference, hypothesis in zip(sources, references, hypotheses, strict=True):
        for noun in SENSES.keys() & source.split():
            (right,) = SENSES[noun] & set(reference.split())
            (other,) = SENSES[noun] - {right}
            found.append(is_right(hypothesis, right, other))
    return sum(found), len(found)


def main() -> None:
    """Score `translations/SPLIT.MODEL.IMAGES.txt`, write `results.json`, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="the run's folder, with world/ and translations/")
    run = parser.parse_args().run
    results = {}
    for path in sorted((run / "translations").glob("*.txt")):
        split = path.name.partition(".")[0]
        source, reference = (
            (run / f"world/text/{split}.{language}").read_text(encoding="utf-8").splitlines()
            for language in ("en", "de")
        )
        right, count = words_right(source, reference, read_hypotheses(path))
        results[path.stem] = {"right": right, "of": count}
        print(f"{path.stem:36} {right / count:7.1%} of {count} ambiguous words right")
    write_json(run / "results.json", results)


if __name__ == "__main__":
    main()
