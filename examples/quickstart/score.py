"""Score the quickstart: BLEU, and the share of ambiguous words that are translated in the right sense.

Writes `results.json`, `report.html` and `report.png` into the run's folder and prints the table.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from visual_grounding.analysis.hypotheses import read_hypotheses
from visual_grounding.analysis.report import ReportRow, ReportSection, ReportTable, images_of_sentences, write_report
from visual_grounding.analysis.translation_scores import score_translations
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.storage.artefact import write_json

SYSTEMS = {"text_only": "text only", "images": "with images", "shuffled": "shuffled images", "blank": "no images"}
TESTS = {"paired": ("test", "pairs"), "retrieved": ("test1", "collection")}


def read_answers(path: Path) -> list[tuple[str, str, str]]:
    """For each test line: the English noun, the German noun that is right, that of the other sense."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(noun, right, other) for _, noun, right, other in rows]


def is_right(hypothesis: str, right: str, other: str) -> bool:
    """The right noun is there and the other isn't.

    >>> is_right("die Fledermaus ist hier", "Fledermaus", "Schläger")
    True
    """
    words = hypothesis.split()
    return right in words and other not in words


def mean_colour(path: Path) -> np.ndarray:
    """Mean red, green and blue of a picture, shape (3,)."""
    return np.asarray(Image.open(path).convert("RGB"), dtype=np.float64).mean(axis=(0, 1))


def mean_colour_accuracy(world: Path, pictures: list[list[Path]], answers: list[tuple[str, str, str]]) -> float:
    """What a nearest neighbour by mean colour would answer: if this were good, colour alone would tell the senses.

    For each picture of a test sentence: the training picture whose mean colour is nearest, among those whose English
    sentence has the same noun; its German noun is the answer. A sentence counts as the share of its pictures that are
    right: the same few pictures are the best for many sentences, so counting only those would be mostly chance.
    """
    english = (world / "text/train.en").read_text(encoding="utf-8").splitlines()
    german = (world / "text/train.de").read_text(encoding="utf-8").splitlines()
    keys = (world / "text/train.keys").read_text(encoding="utf-8").splitlines()
    colours = np.stack([mean_colour(world / "images/pairs" / key) for key in keys])  # (rows, 3)
    cache = {path: mean_colour(path) for path in {path for found in pictures for path in found}}
    words = [(set(en.split()), set(de.split())) for en, de in zip(english, german)]
    shares = []
    for found, (noun, right, other) in zip(pictures, answers):
        rows = [row for row, (en, de) in enumerate(words) if noun in en and de & {right, other}]
        nearest = [rows[int(np.square(colours[rows] - cache[path]).sum(axis=1).argmin())] for path in found]
        shares.append(float(np.mean([is_right(german[row], right, other) for row in nearest])))
    return float(np.mean(shares))


def main() -> None:
    """Score both tests and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=Path, required=True, help="what world.py drew")
    parser.add_argument(
        "--run", type=Path, required=True, help="the run's folder, with translations/, ids/ and features/"
    )
    args = parser.parse_args()
    results: dict[str, dict] = {}
    sections = []
    for test, (split, part) in TESTS.items():
        source = (args.world / f"text/{test}.en").read_text(encoding="utf-8").splitlines()
        reference = (args.world / f"text/{test}.de").read_text(encoding="utf-8").splitlines()
        answers = read_answers(args.world / f"text/{test}.answers.tsv")
        hypotheses = {name: read_hypotheses(args.run / f"translations/{test}.{name}.txt") for name in SYSTEMS}
        results[test] = {}
        for name, lines in hypotheses.items():
            right = [is_right(line, *answer[1:]) for line, answer in zip(lines, answers, strict=True)]
            bleu = score_translations(lines, reference).tokenised_bleu
            results[test][name] = {"bleu": round(bleu, 2), "ambiguous_accuracy": round(sum(right) / len(right), 4)}
        ids, store = ImageIds(args.run / f"ids/{split}"), FeatureStore(args.run / f"features/{part}")
        images = open_images(args.world / f"images/{part}")
        everything = images_of_sentences(ids, range(len(source)), store, images, ids.ids.shape[1])
        pictures = [[args.world / f"images/{part}" / shown.key for shown in found] for found in everything]
        control = mean_colour_accuracy(args.world, pictures, answers)
        results[test]["mean_colour"] = {"ambiguous_accuracy": round(control, 4)}
        chosen = np.random.default_rng(1).choice(len(source), size=4 if test == "retrieved" else 2, replace=False)
        # A sentence of `paired` is there once with each sense: both rows of it, one below the other.
        shown = [row for each in chosen for row, line in enumerate(source) if line == source[each]]
        rows = []
        for row, found in zip(shown, images_of_sentences(ids, shown, store, images, 4)):
            outputs = [("reference", reference[row], None)]
            outputs += [
                (SYSTEMS[name], lines[row], is_right(lines[row], *answers[row][1:]))
                for name, lines in hypotheses.items()
            ]
            rows.append(ReportRow(source[row], found, outputs))
        note = (
            "the sentence's own picture"
            if test == "paired"
            else "pictures found for the sentence, the best four of eight"
        )
        sections.append(ReportSection(f"{test}: {note}", rows))
    write_json(args.run / "results.json", results)
    table = make_table(results)
    print(table.note)
    for cells in table.cells:
        print(f"  {cells[0]:22}" + "".join(f"{cell:>22}" for cell in cells[1:]))
    write_report(args.run, "Translating ambiguous words with pictures", sections, table)
    print(f"Sentences, pictures and translations side by side: {args.run / 'report.html'}")


def make_table(results: dict[str, dict]) -> ReportTable:
    """One row a system, BLEU and accuracy for each test."""
    cells = [["", *(f"{test} {what}" for test in TESTS for what in ("BLEU", "words right"))]]
    for name, label in [*SYSTEMS.items(), ("mean_colour", "nearest mean colour")]:
        row = [label]
        for test in TESTS:
            scores = results[test][name]
            row += [f"{scores['bleu']:.1f}" if "bleu" in scores else "-", f"{scores['ambiguous_accuracy']:.1%}"]
        cells.append(row)
    note = "BLEU, and the share of ambiguous words translated in the right sense; guessing gives 50 %."
    return ReportTable(cells, note)


if __name__ == "__main__":
    main()
